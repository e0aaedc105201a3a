"""The audit log of a store, and how the entry of a verb gets into the transaction of the change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol

from msgspec import structs

from ratchet.model.audit import AuditEntry, AuditFilter, AuditOutcome, AuditSource
from ratchet.model.identifiers import new_id
from ratchet.model.job import Page


class PendingEntry:
    """
    The entry of a verb that is being carried out.

    The store writes it in the transaction of the change. A verb of several transactions writes it with the first, and brings
    its count up to date with each of the others.
    """

    __slots__ = ("_certain", "_entry", "_many", "changed", "is_written")

    def __init__(self, entry: AuditEntry, *, many: bool, certain: bool = False) -> None:
        self._entry = entry
        self._many = many
        self._certain = certain  # the verb changes something even if it changes no job
        #: How much transactions that have ended changed.
        self.changed = 0
        #: True once a transaction with the entry has ended.
        self.is_written = False

    def entry(self, changed: int) -> AuditEntry:
        """The entry, if *changed* things have been changed in all."""
        outcome = AuditOutcome.DONE if changed or self._certain else AuditOutcome.UNCHANGED
        return structs.replace(
            self._entry, outcome=outcome.value, count=changed if self._many else self._entry.count
        )

    def settle(self, changed: int) -> None:
        """A transaction has ended, and *changed* things have been changed in all."""
        self.changed = changed
        self.is_written = True


#: The entry of the verb that the calling code carries out; None: what it changes is not audited.
pending_entry: ContextVar[PendingEntry | None] = ContextVar("ratchet_audit", default=None)


@contextmanager
def auditing(pending: PendingEntry | None) -> Iterator[None]:
    """What the block changes in a store is written down as *pending*."""
    token = pending_entry.set(pending)
    try:
        yield
    finally:
        pending_entry.reset(token)


def by_node(verb: str, about: str, *, reason: str | None = None) -> AbstractContextManager[None]:
    """What the block changes is done by this process itself, and by nobody in particular."""
    entry = AuditEntry(
        id=new_id(),
        at=datetime.now(UTC),
        principal=None,
        source=AuditSource.NODE.value,
        verb=verb,
        object=about,
        reason=reason,
    )
    return auditing(PendingEntry(entry, many=False))


class AuditStore(Protocol):
    """
    Keeps the audit log.

    Each method with which people change something writes the `pending_entry` of its context, if there is one, in the
    transaction of the change, so that both are there or neither: cancel, pause, resume, retry, reschedule, set_priority,
    replace, delete, cancel_matching, retry_matching, delete_dead_letters, cancel_batch, retry_failed, send_signal,
    upsert_schedule, remove_schedule, pause_schedule, resume_schedule, trigger, pause_queue, resume_queue, set_limit,
    remove_limit, save_breaker, deregister, request_of_node, archive, purge_dead_letters, purge_logs, purge_executions,
    purge_fires, purge_archive, swap_values and migrate.
    """

    def append_audit(self, entry: AuditEntry, *, within: object | None = None) -> None:
        """Store an entry by itself: of a verb that was refused, or that had nothing to change."""
        ...

    def find_audit(self, where: AuditFilter, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """One page of matching entries, newest first."""
        ...

    def purge_audit(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest entries from before *before*, at most *limit*; how many."""
        ...

    def oldest_audit_at(self) -> datetime | None:
        """When the oldest entry was made; None if there is none."""
        ...
