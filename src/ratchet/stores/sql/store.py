"""`SqlStore`: the nouns as one object."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from ratchet.model.cluster import UnreadableRow
from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.options import Options
from ratchet.model.storage import StoreSize
from ratchet.model.upgrades import UpgradePlan
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.constraint_detector import ConstraintDetector
from ratchet.spi.store.audit import by_node
from ratchet.stores.sql.audit import SqlAudit
from ratchet.stores.sql.batches import SqlBatches
from ratchet.stores.sql.claiming.unreachable import unreachable_jobs
from ratchet.stores.sql.claims import SqlClaims
from ratchet.stores.sql.cluster import SqlCluster
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dead_letters import SqlDeadLetters
from ratchet.stores.sql.dialect import Dialect
from ratchet.stores.sql.history import SqlHistory
from ratchet.stores.sql.jobs import SqlJobs
from ratchet.stores.sql.migrations import SchemaMigrator
from ratchet.stores.sql.moving import SqlMoving
from ratchet.stores.sql.permits import SqlPermits
from ratchet.stores.sql.recurring import SqlRecurring
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.sql.signals import SqlSignals
from ratchet.stores.sql.stored_values import SqlStoredValues
from ratchet.stores.sql.streams import SqlStreams
from ratchet.stores.sql.transitions import SqlTransitions
from ratchet.stores.sql.urls import dialect_of
from ratchet.stores.sql.workflows import SqlWorkflows
from ratchet.stores.unreadable import unreadable_rows

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore


def open_store(url: str, options: Options | None = None) -> SqlStore:
    """The SQL store of a URL; nothing is connected before its first use."""
    options = options if options is not None else Options()
    return SqlStore(dialect_of(url, options), options)


class SqlStore(
    SqlJobs,
    SqlClaims,
    SqlTransitions,
    SqlBatches,
    SqlWorkflows,
    SqlRecurring,
    SqlHistory,
    SqlCluster,
    SqlPermits,
    SqlDeadLetters,
    SqlSignals,
    SqlStreams,
    SqlStoredValues,
    SqlMoving,
    SqlAudit,
):
    """
    A `JobStore` on a SQL database.

    The methods of the contract are in the class of their noun; no two of these classes define the same name (a test
    compares them). Here is what concerns the store as a whole.
    """

    def __init__(self, dialect: Dialect, options: Options) -> None:
        database = Database(dialect)
        super().__init__(database, StreamRegistry(database))
        self.migrator = SchemaMigrator(database)
        self.name = dialect.name
        self.capabilities = dialect.capabilities
        self.constraints: ConstraintDetector = dialect.constraints
        self._coordinator: ClusterCoordinator | None = None
        self._lock = threading.Lock()
        database.prepare_with(
            self._upgrade if dialect.migrates_itself or options.auto_migrate else self.check_schema
        )

    # --- lifecycle ----------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied. Two callers at once: one applies, the other waits."""
        return self.migrator.migrate()

    def check_schema(self) -> None:
        """`SchemaOutOfDate` or `SchemaTooNew`, saying what to do; nothing when all is well."""
        self.migrator.check()

    def upgrade_plan(self) -> UpgradePlan:
        """What `migrate` would do, and who would have to wait."""
        return self.migrator.plan()

    def roll_back_schema(self) -> list[str]:
        """Let code of 0.1.0 start on this schema; what it does not see any more."""
        return self.migrator.roll_back()

    def unreadable(self) -> list[UnreadableRow]:
        """The rows that everything passes by: of schedules, limits, breakers and nodes, and of jobs that no claim reaches."""
        nodes = partial(self.nodes, counting=False)
        passed = unreadable_rows(self.schedules, self.limits, self.breakers, nodes)
        return passed + self.database.read(unreachable_jobs)

    def size(self) -> StoreSize:
        """Rows and bytes of our tables, as the product tells them."""
        return self.database.read(self.database.dialect.size)

    def begin(self, *, within: object | None = None) -> AbstractContextManager[object]:
        """A transaction whose driver connection the caller may use, and pass as ``within=``."""
        return self.database.begin(within=within)

    def coordinator(self) -> ClusterCoordinator | None:
        """How processes on this store wake each other; None: in memory there is no other process."""
        with self._lock:
            if self._coordinator is None:
                self._coordinator = self.database.dialect.coordinator()
            return self._coordinator

    def close(self) -> None:
        """Free every connection; idempotent. The store opens them again when it is used again."""
        if self._coordinator is not None:
            self._coordinator.stop()
        self.database.close()

    def _upgrade(self) -> None:
        try:
            self.check_schema()  # without a lock: a caller's open transaction may hold the one that upgrading takes
        except SchemaOutOfDate:
            with by_node("upgrade", "schema"):
                self.migrate()


if TYPE_CHECKING:

    def _is_a_store(store: SqlStore) -> JobStore:
        return store
