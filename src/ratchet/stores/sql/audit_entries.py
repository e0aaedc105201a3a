"""An entry of the audit log as a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ratchet.model.audit import AuditEntry

if TYPE_CHECKING:
    from ratchet.stores.sql.database import Session

ENTRY_COLUMNS = (
    "audit_id, audited_at, principal, source, verb, job_id, object_name, criteria, affected, reason, outcome"
)

UPDATE_ENTRY = """
    UPDATE scheduler_audit SET affected = :affected, reason = :reason, outcome = :outcome WHERE audit_id = :audit_id
"""


def append_entry(session: Session, entry: AuditEntry, new: bool) -> None:
    """
    Write *entry* in this transaction; unless it is *new*, its count, reason and outcome are brought up to date.

    One that is there already stays as it is: the verb was sent again because the answer to its commit was lost.
    """
    if not new:
        changed = {"affected": entry.count, "reason": entry.reason, "outcome": entry.outcome}
        session.execute(UPDATE_ENTRY, {"audit_id": entry.id, **changed})
        return
    row = (
        entry.id,
        entry.at,
        entry.principal,
        entry.source,
        entry.verb,
        entry.job_id,
        entry.object,
        None if entry.filter is None else msgspec.json.encode(entry.filter).decode(),
        entry.count,
        entry.reason,
        entry.outcome,
    )
    session.insert_rows("scheduler_audit", ENTRY_COLUMNS.split(", "), [row], on_conflict_do_nothing=True)
