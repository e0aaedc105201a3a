"""Who waits while PostgreSQL changes a table, and how long; a test compares it with `pg_locks`."""

from __future__ import annotations

from typing import Final

from ratchet.model.upgrades import LockTime, TableLock
from ratchet.stores.sql.upgrade_plan import Action, Locking, Locks

LOCKS: Final[Locks] = {
    Action.CREATE_TABLE: Locking(TableLock.NOBODY),
    Action.ADD_COLUMN: Locking(
        TableLock.EVERYBODY
    ),  # ACCESS EXCLUSIVE; a column without a default is the catalog's only
    Action.ADD_CHECK: Locking(TableLock.EVERYBODY, remark="its rows are read before, without a lock"),
    Action.CREATE_TRIGGER: Locking(TableLock.WRITERS),  # SHARE ROW EXCLUSIVE
    Action.BUILD_INDEX: Locking(TableLock.NOBODY),  # CONCURRENTLY; where there are few rows, at once
    Action.CREATE_INDEX: Locking(TableLock.WRITERS, LockTime.READING, rate=1_000_000),  # SHARE
}
