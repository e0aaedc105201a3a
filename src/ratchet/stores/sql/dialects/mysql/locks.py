"""Who waits while MySQL or MariaDB changes a table, and how long; a test asks a server which algorithm it accepts."""

from __future__ import annotations

from typing import Final

from ratchet.model.upgrades import LockTime, TableLock
from ratchet.stores.sql.upgrade_plan import Action, Locking, Locks

LOCKS: Final[Locks] = {
    Action.CREATE_TABLE: Locking(TableLock.NOBODY),
    Action.ADD_COLUMN: Locking(TableLock.EVERYBODY),  # ALGORITHM=INSTANT, under an exclusive metadata lock
    Action.ADD_CHECK: Locking(
        TableLock.WRITERS, LockTime.COPYING, rate=90_000
    ),  # ALGORITHM=COPY, LOCK=SHARED
    Action.CREATE_TRIGGER: Locking(TableLock.EVERYBODY),
    Action.CREATE_INDEX: Locking(TableLock.NOBODY),  # ALGORITHM=INPLACE, LOCK=NONE
}
