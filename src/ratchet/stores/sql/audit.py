"""The audit log in SQL. `append_entry` runs in the transaction of the change (see `SqlPart.change`)."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from ratchet.model.audit import EQUAL_CRITERIA, AuditEntry, AuditFilter
from ratchet.model.cursors import audit_cursor, audit_position
from ratchet.model.job import Page
from ratchet.stores.sql.audit_entries import ENTRY_COLUMNS, append_entry
from ratchet.stores.sql.database import Row, SqlPart
from ratchet.stores.unreadable import readable

_TABLE = "scheduler_audit"

OLDEST = "SELECT audited_at FROM scheduler_audit ORDER BY audited_at LIMIT 1"

FIND_OLD = """
    SELECT audit_id FROM scheduler_audit WHERE audited_at < :before ORDER BY audited_at LIMIT :limit
"""

PURGE = "DELETE FROM scheduler_audit WHERE audit_id {in ids uuid}"

#: The column of each criterion whose name is not the column's.
_COLUMNS = {"object": "object_name"}


class SqlAudit(SqlPart):
    """Reads and keeps the audit log."""

    def append_audit(self, entry: AuditEntry, *, within: object | None = None) -> None:
        """Store an entry by itself."""
        self.database.run(lambda session: append_entry(session, entry, True), within=within)

    def find_audit(self, where: AuditFilter, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """One page of matching entries, newest first."""
        sql, binds = _search(where, None if cursor is None else audit_position(cursor))
        rows = self.database.read(lambda session: session.rows(sql, {**binds, "limit": limit + 1}))
        entries = readable(rows[:limit], _entry, _TABLE, itemgetter(0))
        last = rows[limit - 1] if len(rows) > limit else None
        return Page(entries, None if last is None else audit_cursor(last[1], last[0]))

    def purge_audit(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest entries from before *before*, at most *limit*; how many."""
        values = {"before": before, "limit": limit}
        ids = [audit_id for (audit_id,) in self.database.read(lambda session: session.rows(FIND_OLD, values))]
        return self.database.run(lambda session: session.execute(PURGE, {"ids": sorted(ids)})) if ids else 0

    def oldest_audit_at(self) -> datetime | None:
        """When the oldest entry was made; None if there is none."""
        found: datetime | None = self.database.read(lambda session: session.value(OLDEST))
        return found


def _search(where: AuditFilter, after: tuple[datetime, Any] | None) -> tuple[str, dict[str, object]]:
    binds: dict[str, object] = {
        name: value for name in EQUAL_CRITERIA if (value := getattr(where, name)) is not None
    }
    criteria = [f"{_COLUMNS.get(name, name)} = :{name}" for name in binds]
    if where.after is not None:
        criteria.append("audited_at >= :since")
        binds["since"] = where.after
    if where.before is not None:
        criteria.append("audited_at < :until")
        binds["until"] = where.before
    if after is not None:
        criteria.append("(audited_at, audit_id) < (CAST(:last_at AS {time}), CAST(:last AS {uuid}))")
        binds |= {"last_at": after[0], "last": after[1]}
    return (
        f"""
        SELECT {ENTRY_COLUMNS}
          FROM scheduler_audit
         WHERE {" AND ".join(criteria) or "true"}
         ORDER BY audited_at DESC, audit_id DESC
         LIMIT :limit
        """,
        binds,
    )


def _entry(row: Row) -> AuditEntry:
    audit_id, at, principal, source, verb, job_id, name, criteria, affected, reason, outcome = row
    return AuditEntry(
        id=audit_id,
        at=at,
        principal=principal,
        source=source,
        verb=verb,
        job_id=job_id,
        object=name,
        filter=None if criteria is None else msgspec.json.decode(criteria, type=dict[str, Any]),
        count=affected,
        reason=reason,
        outcome=outcome,
    )
