"""
The audit log in memory, and the methods of the store that write to it.

The rules of the other modules know nothing of it: MongoDB uses them too, and writes its own entries.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ratchet.model.audit import EQUAL_CRITERIA, AuditEntry, AuditFilter
from ratchet.model.cursors import audit_cursor, audit_position
from ratchet.model.job import Page
from ratchet.spi.store.audit import pending_entry
from ratchet.stores.auditing import carry_out, counted
from ratchet.stores.memory.state import HasState, Part, State, atomic

P = ParamSpec("P")
S = TypeVar("S", bound=HasState)
T = TypeVar("T")


class MemoryAudit(Part):
    """Reads and keeps the audit log."""

    @atomic
    def append_audit(self, entry: AuditEntry, *, within: object | None = None) -> None:
        """Store an entry by itself."""
        append_entry(self._state, entry, True)

    @atomic
    def find_audit(self, where: AuditFilter, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """One page of matching entries, newest first."""
        after = None if cursor is None else audit_position(cursor)
        found = sorted(
            (one for one in self._state.audit.values() if _matches(one, where)),
            key=lambda one: (one.at, one.id),
            reverse=True,
        )
        rest = [one for one in found if after is None or (one.at, one.id) < after]
        page = rest[:limit]
        return Page(page, audit_cursor(page[-1].at, page[-1].id) if len(rest) > limit else None)

    @atomic
    def purge_audit(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest entries from before *before*, at most *limit*; how many."""
        entries = sorted(self._state.audit.values(), key=lambda one: (one.at, one.id))
        old = [one.id for one in entries if one.at < before][:limit]
        for entry_id in old:
            self._state.audit.remove(entry_id)
        return len(old)

    @atomic
    def oldest_audit_at(self) -> datetime | None:
        """When the oldest entry was made; None if there is none."""
        return min((one.at for one in self._state.audit.values()), default=None)


def by_hand(
    method: Callable[Concatenate[S, P], T], count: Callable[[T], int] = counted
) -> Callable[Concatenate[S, P], T]:
    """*method* of the store, with the entry of the verb that it carries out; *count* says how much was changed."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if pending_entry.get() is None:
            return method(self, *args, **kwargs)
        state, within = self._state, kwargs.get("within")

        def run(work: Callable[[State], T]) -> T:
            return state.run(lambda: work(state), within=within)

        # Inside of `run` the method's own transaction is a savepoint.
        return carry_out(run, lambda _: method(self, *args, **kwargs), append_entry, count)

    return call


def append_entry(state: State, entry: AuditEntry, new: bool) -> None:
    """Write *entry*; unless it is *new*, it takes the place of the one that is there."""
    if not new or entry.id not in state.audit:
        state.audit.put(entry.id, entry)


def _matches(entry: AuditEntry, where: AuditFilter) -> bool:
    if any(
        (wanted := getattr(where, name)) is not None and getattr(entry, name) != wanted
        for name in EQUAL_CRITERIA
    ):
        return False
    return (where.after is None or entry.at >= where.after) and (
        where.before is None or entry.at < where.before
    )
