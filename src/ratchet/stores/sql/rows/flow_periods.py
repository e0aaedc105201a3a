"""Rates over time: the rows of scheduler_flow. A node writes its own, so none is written by two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

from ratchet.model.flow_history import MERGED, FlowPeriod, floor, merged
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.unreadable import readable

TABLE = "scheduler_flow"
COLUMNS = ("seconds", "begins_at", "source", "document")

_COLUMNS = ", ".join(COLUMNS)
_LENGTHS = "seconds IN (60, 600)"

FIND_PERIODS = f"""
    SELECT {_COLUMNS} FROM scheduler_flow
     WHERE {_LENGTHS} AND begins_at >= :since AND begins_at < :until
     ORDER BY begins_at, seconds, source
"""
OLDEST_MINUTE = """
    SELECT begins_at FROM scheduler_flow WHERE seconds = 60 AND begins_at < :before ORDER BY begins_at LIMIT 1
"""
LOCK_PERIODS = f"""
    SELECT {_COLUMNS} FROM scheduler_flow
     WHERE {_LENGTHS} AND begins_at >= :since AND begins_at < :until
     ORDER BY seconds, begins_at, source
    {{for update}}
"""
# With every column of the key: a row that came later must not go without having been merged.
DELETE_PERIODS = """
    DELETE FROM scheduler_flow WHERE seconds = :seconds AND begins_at = :begins_at AND source {in sources text}
"""
FIND_OLD = f"""
    SELECT seconds, begins_at, source FROM scheduler_flow
     WHERE {_LENGTHS} AND begins_at < :before ORDER BY seconds, begins_at, source LIMIT :limit
"""


def insert_periods(session: Session, periods: Sequence[FlowPeriod]) -> int:
    """`FlowStore.record_flow`."""
    rows = [(one.seconds, one.at, one.source, one.document) for one in periods]
    return session.insert_rows(TABLE, COLUMNS, rows, on_conflict_do_nothing=True)


def find_periods(
    session: Session, since: datetime, until: datetime, only: str | None = None
) -> list[FlowPeriod]:
    """`FlowStore.flow`."""
    return _periods(session.rows(FIND_PERIODS, {"since": since, "until": until}), only)


def oldest_minute(session: Session, before: datetime) -> datetime | None:
    """When the oldest minute that began before this time did; None: there is none."""
    found = session.row(OLDEST_MINUTE, {"before": before})
    return found[0] if found and isinstance(found[0], datetime) else None


def merge_slot(session: Session, at: datetime) -> int:
    """Make one period of those in the slot that *at* is in; how many minutes that were."""
    begin = floor(at, MERGED)
    rows = session.rows(LOCK_PERIODS, {"since": begin, "until": begin + MERGED})
    minutes = len([row for row in rows if row[0] == 60])
    if minutes:
        delete_periods(session, rows)
        insert_periods(session, [merged(_periods(rows), begin)])
    return minutes


def delete_periods(session: Session, rows: Sequence[Row]) -> int:
    """Delete the rows whose keys these begin with."""
    sources: dict[tuple[int, datetime], list[str]] = {}
    for row in rows:
        sources.setdefault((row[0], row[1]), []).append(row[2])
    return sum(
        session.execute(DELETE_PERIODS, {"seconds": seconds, "begins_at": at, "sources": names})
        for (seconds, at), names in sources.items()
    )


def purge_periods(session: Session, before: datetime, limit: int) -> int:
    """`FlowStore.purge_flow`."""
    return delete_periods(session, session.rows(FIND_OLD, {"before": before, "limit": limit}))


def _periods(rows: Sequence[Row], only: str | None = None) -> list[FlowPeriod]:
    return readable(
        rows,
        lambda row: FlowPeriod.of_document(row[0], row[1], row[2], row[3], only),
        TABLE,
        itemgetter(slice(3)),
    )
