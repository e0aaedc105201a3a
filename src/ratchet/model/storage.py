"""How large a store is, what its retention keeps, and what a purge would move or delete."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from ratchet.model.options import Options


class Kept(StrEnum):
    """What is kept for a while: ended jobs, dead letters, log lines, records of runs and of fire times, archived jobs."""

    JOBS = "jobs"
    DEAD_LETTERS = "dead_letters"
    LOGS = "logs"
    EXECUTIONS = "executions"
    ARCHIVE = "archive"


def retention_of(options: Options) -> dict[Kept, timedelta | None]:
    """How long each is kept; None: for ever, or as long as the job it belongs to."""
    return {
        Kept.JOBS: options.retention,
        Kept.DEAD_LETTERS: options.dead_letter_retention,
        Kept.LOGS: options.log_retention,
        Kept.EXECUTIONS: options.execution_retention,
        Kept.ARCHIVE: options.archive_retention,
    }


class TableSize(Struct, frozen=True, kw_only=True):
    """
    One table or collection. None: this database does not tell, or not without reading all of it.

    ``rows`` is an estimate where ``estimated`` says so, and at least so many where ``more`` does. ``bytes`` is without
    indexes; ``dead_rows`` were changed or deleted and wait for the database's own cleaning.
    """

    name: str
    rows: int | None
    estimated: bool = False
    more: bool = False
    bytes: int | None = None
    indexes: int | None = None
    index_bytes: int | None = None
    dead_rows: int | None = None


class StoreSize(Struct, frozen=True, kw_only=True):
    """The tables of a store. ``bytes`` is all of it, indexes included; ``free_bytes`` of that hold nothing."""

    tables: tuple[TableSize, ...]
    bytes: int | None = None
    free_bytes: int | None = None

    @classmethod
    def of(cls, tables: list[TableSize], *, free_bytes: int | None = None) -> StoreSize:
        """The size of these tables together."""
        known = [table.bytes + (table.index_bytes or 0) for table in tables if table.bytes is not None]
        return cls(
            tables=tuple(sorted(tables, key=lambda table: (-(table.bytes or 0), table.name))),
            bytes=sum(known) if known else None,
            free_bytes=free_bytes,
        )


class OldRows(Struct, frozen=True, kw_only=True):
    """What is older than it has to be kept; ``more``: at least so many, no more were counted."""

    count: int
    before: datetime
    more: bool = False


class StorageStats(Struct, frozen=True, kw_only=True):
    """The size of a store, how long each kind is kept, and how much of each a purge would move or delete."""

    size: StoreSize
    retention: Mapping[Kept, timedelta | None]
    old: Mapping[Kept, OldRows]
