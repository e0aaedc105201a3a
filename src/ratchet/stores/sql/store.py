"""`SqlStore`: every noun behind one object."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.options import Options
from ratchet.spi.constraint_detector import ConstraintDetector
from ratchet.stores.sql.batches import SqlBatches
from ratchet.stores.sql.claims import SqlClaims
from ratchet.stores.sql.cluster import SqlCluster
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dead_letters import SqlDeadLetters
from ratchet.stores.sql.dialect import Dialect
from ratchet.stores.sql.history import SqlHistory
from ratchet.stores.sql.jobs import SqlJobs
from ratchet.stores.sql.migrations import SchemaMigrator
from ratchet.stores.sql.permits import SqlPermits
from ratchet.stores.sql.recurring import SqlRecurring
from ratchet.stores.sql.signals import SqlSignals
from ratchet.stores.sql.streams import SqlStreams, StreamRegistry
from ratchet.stores.sql.transitions import SqlTransitions
from ratchet.stores.sql.workflows import SqlWorkflows

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore


class SqlStore:
    """
    A `JobStore` on a SQL database.

    Each method is that of the part that knows the noun, bound here under the name that the contract
    gives it; a test compares the two.
    """

    def __init__(self, dialect: Dialect, options: Options) -> None:
        self.name = dialect.name
        self.capabilities = dialect.capabilities
        self.constraints: ConstraintDetector = dialect.constraints
        self.database = Database(dialect)
        self.migrator = SchemaMigrator(self.database)
        self.database.prepare_with(self._upgrade if dialect.migrates_itself or options.auto_migrate else self.check_schema)
        self.stream_registry = StreamRegistry(self.database)
        self._bind_jobs()
        self._bind_runs()
        self._bind_compositions()
        self._bind_cluster()

    # --- lifecycle ----------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied. Two callers at once: one applies, the other waits."""
        return self.migrator.migrate()

    def check_schema(self) -> None:
        """`SchemaOutOfDate` or `SchemaTooNew`, saying what to do; nothing when all is well."""
        self.migrator.check()

    def begin(self, *, within: object | None = None) -> AbstractContextManager[object]:
        """A transaction whose driver connection the caller may use, and pass as ``within=``."""
        return self.database.begin(within=within)

    def close(self) -> None:
        """Free every connection; idempotent. The store opens them again when it is used again."""
        self.database.close()

    def _upgrade(self) -> None:
        try:
            self.check_schema()  # without a lock: a caller's open transaction may hold the one that upgrading takes
        except SchemaOutOfDate:
            self.migrate()
