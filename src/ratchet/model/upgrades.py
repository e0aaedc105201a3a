"""What an upgrade of the schema would do: which tables it changes, who has to wait meanwhile, and which older code may stay."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class TableLock(StrEnum):
    """Who waits while a table is changed."""

    NOBODY = "nobody"
    WRITERS = "writers"
    EVERYBODY = "everybody"


class LockTime(StrEnum):
    """How long: independent of the table's size, or as long as each of its rows is read, or written anew."""

    MOMENT = "moment"
    READING = "reading"
    COPYING = "copying"


class PlannedChange(Struct, frozen=True, kw_only=True):
    """
    What a migration does to one table.

    ``rows`` is what the table has now, as an estimate where the database has one; None for a table that is not there yet.
    ``seconds`` is how long those wait who wait, by rates that were measured; None where that is a moment or nobody.
    """

    table: str
    does: str
    waits: TableLock
    lasts: LockTime = LockTime.MOMENT
    rows: int | None = None
    seconds: float | None = None


class PlannedMigration(Struct, frozen=True, kw_only=True):
    """One migration that is missing. ``stays``: running nodes of the version that made this schema go on working after it."""

    name: str
    changes: tuple[PlannedChange, ...]
    stays: bool


class UpgradePlan(Struct, frozen=True, kw_only=True):
    """
    Every migration that is missing, in order.

    ``restarts``: code of the version that made this schema may also be *started* after the upgrade.
    """

    migrations: tuple[PlannedMigration, ...] = ()
    is_new: bool = False  # there is no schema yet
    restarts: bool = True

    @property
    def stays(self) -> bool:
        """True if running nodes of the version before need not be stopped for any of it."""
        return all(migration.stays for migration in self.migrations)
