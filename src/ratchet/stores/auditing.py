"""How a store writes the entry of a verb in the transaction of the change; the same for all stores."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar

from ratchet.model.audit import AuditEntry
from ratchet.spi.store.audit import pending_entry

S = TypeVar("S")
T = TypeVar("T")

#: Writes an entry in the transaction of a session: a new one, or with False the new count of one that is there.
Append = Callable[[S, AuditEntry, bool], object]


def counted(answer: object) -> int:
    """How much was changed, by the answer of a change: a bool, a number, a list, or a record or None."""
    if isinstance(answer, int):
        return int(answer)
    if isinstance(answer, Sized):
        return len(answer)
    return 0 if answer is None else 1


def always(answer: object) -> int:
    """For a change that is made whatever there was before."""
    return 1


def carry_out(
    run: Callable[[Callable[[S], T]], T],
    work: Callable[[S], T],
    append: Append[S],
    count: Callable[[T], int] = counted,
) -> T:
    """
    What *run* returns for *work*, one transaction; the entry of the verb, if there is one, is written in it.

    *work* may be called several times, and after the answer to a commit was lost the verb may be sent again: the entry
    has an id of its own, and is there once.
    """
    pending = pending_entry.get()
    if pending is None:
        return run(work)
    before, new = pending.changed, not pending.is_written

    def audited(session: S) -> T:
        # Work that is nested in this one is part of it.
        token = pending_entry.set(None)
        try:
            answer = work(session)
        finally:
            pending_entry.reset(token)
        append(session, pending.entry(before + count(answer)), new)
        return answer

    answer = run(audited)
    pending.settle(before + count(answer))
    return answer
