"""Who waits while SQLite changes a table: whoever writes to the file. Readers go on with what they see."""

from __future__ import annotations

from typing import Final

from ratchet.model.upgrades import LockTime, TableLock
from ratchet.stores.sql.upgrade_plan import Action, Locking, Locks

LOCKS: Final[Locks] = {
    Action.CREATE_TABLE: Locking(TableLock.WRITERS),
    Action.ADD_COLUMN: Locking(TableLock.WRITERS),
    Action.CREATE_TRIGGER: Locking(TableLock.WRITERS),
    Action.CREATE_INDEX: Locking(TableLock.WRITERS, LockTime.READING, rate=500_000),
}
