"""The audit log of a store, and how the entry of a verb gets into the transaction of the change."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from typing import Protocol

from msgspec import structs

from ratchet.model.audit import AuditEntry, AuditFilter, AuditOutcome
from ratchet.model.job import Page


class PendingEntry:
    """
    The entry of a verb that is being carried out.

    The store writes it in the transaction of the change. A verb of several transactions writes it with the first, and brings
    its count up to date with each of the others.
    """

    __slots__ = ("_entry", "_many", "changed", "is_written")

    def __init__(self, entry: AuditEntry, *, many: bool) -> None:
        self._entry = entry
        self._many = many
        #: How much transactions that have ended changed.
        self.changed = 0
        #: True once a transaction with the entry has ended.
        self.is_written = False

    def entry(self, changed: int) -> AuditEntry:
        """The entry, if *changed* things have been changed in all."""
        outcome = AuditOutcome.DONE if changed else AuditOutcome.UNCHANGED
        return structs.replace(
            self._entry, outcome=outcome.value, count=changed if self._many else self._entry.count
        )

    def settle(self, changed: int) -> None:
        """A transaction has ended, and *changed* things have been changed in all."""
        self.changed = changed
        self.is_written = True


#: The entry of the verb that the calling code carries out; None: what it changes is not audited.
pending_entry: ContextVar[PendingEntry | None] = ContextVar("ratchet_audit", default=None)


class AuditStore(Protocol):
    """
    Keeps the audit log.

    A method that people call to change something (in `audited` of the capabilities' documentation: those that take ``within``,
    and those of queues, limits, breakers, nodes and dead letters) asks `pending_entry`, and if there is one writes it in the
    same transaction as the change: both are there, or neither.
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
