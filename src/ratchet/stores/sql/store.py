"""`SqlStore`: every noun behind one object."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.options import Options
from ratchet.spi.cluster_coordinator import ClusterCoordinator
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
from ratchet.stores.sql.unused_streams import SqlUnusedStreams
from ratchet.stores.sql.urls import dialect_of
from ratchet.stores.sql.workflows import SqlWorkflows

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore


def open_store(url: str, options: Options | None = None) -> SqlStore:
    """The SQL store of a URL; nothing is connected before its first use."""
    options = options if options is not None else Options()
    return SqlStore(dialect_of(url, options), options)


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
        self._coordinator: ClusterCoordinator | None = None
        self._lock = threading.Lock()
        self.database.prepare_with(
            self._upgrade if dialect.migrates_itself or options.auto_migrate else self.check_schema
        )
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
            self.migrate()

    # --- the nouns ----------------------------------------------------------------------------

    def _bind_jobs(self) -> None:
        jobs = SqlJobs(self.database, self.stream_registry)
        self.insert = jobs.insert
        self.send_insert = jobs.send_insert
        self.get = jobs.get
        self.results = jobs.results
        self.find = jobs.find
        self.count = jobs.count
        self.counts = jobs.counts
        self.delete = jobs.delete
        self.reschedule = jobs.reschedule
        self.replace = jobs.replace
        self.cancel_matching = jobs.cancel_matching
        self.retry_matching = jobs.retry_matching
        self.purge_dead_letters = jobs.purge_dead_letters
        self.tags_of = jobs.tags_of
        self.tag_counts = jobs.tag_counts

        dead_letters = SqlDeadLetters(self.database, self.stream_registry)
        self.dead_letters = dead_letters.dead_letters
        self.alerts = dead_letters.alerts
        self.alerts_of = dead_letters.alerts_of

        history = SqlHistory(self.database, self.stream_registry)
        self.executions = history.executions
        self.purge_executions = history.purge_executions
        self.append_logs = history.append_logs
        self.logs = history.logs
        self.purge_logs = history.purge_logs
        self.archive = history.archive
        self.purge_archive = history.purge_archive
        self.oldest_created_at = history.oldest_created_at
        self.oldest_archived_at = history.oldest_archived_at

    def _bind_runs(self) -> None:
        claims = SqlClaims(self.database, self.stream_registry)
        self.claim_next_batch = claims.claim_next_batch
        self.claim_next_batch_optimized = claims.claim_next_batch_optimized
        self.bodies = claims.bodies
        self.next_due_at = claims.next_due_at
        self.next_due_of = claims.next_due_of
        self.claims_of = claims.claims_of
        self.explain = claims.explain

        transitions = SqlTransitions(self.database, self.stream_registry)
        self.complete = transitions.complete
        self.cancel = transitions.cancel
        self.settle = transitions.settle
        self.expire = transitions.expire
        self.retry = transitions.retry
        self.pause = transitions.pause
        self.resume = transitions.resume
        self.hand_back = transitions.hand_back
        self.hand_back_unknown = transitions.hand_back_unknown
        self.park = transitions.park
        self.save_progress = transitions.save_progress
        self.save_state = transitions.save_state

    def _bind_compositions(self) -> None:
        batches = SqlBatches(self.database, self.stream_registry)
        self.append_children = batches.append_children
        self.seal = batches.seal
        self.batch = batches.batch
        self.batches = batches.batches
        self.cancel_batch = batches.cancel_batch
        self.retry_failed = batches.retry_failed
        self.unfinished = batches.unfinished
        self.unsealed = batches.unsealed
        self.finish = batches.finish
        self.batch_metrics = batches.batch_metrics

        workflows = SqlWorkflows(self.database, self.stream_registry)
        self.conditions_of = workflows.conditions_of
        self.edges_of = workflows.edges_of
        self.parents_of = workflows.parents_of
        self.graph = workflows.graph

        recurring = SqlRecurring(self.database, self.stream_registry)
        self.upsert_schedule = recurring.upsert_schedule
        self.schedule = recurring.schedule
        self.schedules = recurring.schedules
        self.remove_schedule = recurring.remove_schedule
        self.pause_schedule = recurring.pause_schedule
        self.resume_schedule = recurring.resume_schedule
        self.claim_due_recurring = recurring.claim_due_recurring
        self.advance = recurring.advance
        self.fires = recurring.fires
        self.purge_fires = recurring.purge_fires
        self.trigger = recurring.trigger

        signals = SqlSignals(self.database, self.stream_registry)
        self.send_signal = signals.send_signal
        self.waiting_for = signals.waiting_for
        self.purge_signals = signals.purge_signals

    def _bind_cluster(self) -> None:
        cluster = SqlCluster(self.database, self.stream_registry)
        self.register = cluster.register
        self.beat = cluster.beat
        self.beat_only = cluster.beat_only
        self.set_node_state = cluster.set_node_state
        self.nodes = cluster.nodes
        self.rescue = cluster.rescue
        self.strays = cluster.strays
        self.deregister = cluster.deregister
        self.purge_nodes = cluster.purge_nodes
        self.database_time = cluster.database_time
        self.acquire_lock = cluster.acquire_lock
        self.release_lock = cluster.release_lock
        self.lock = cluster.lock

        permits = SqlPermits(self.database, self.stream_registry)
        self.set_limit = permits.set_limit
        self.remove_limit = permits.remove_limit
        self.limits = permits.limits
        self.holders = permits.holders
        self.release_permits = permits.release_permits
        self.breaker = permits.breaker
        self.breakers = permits.breakers
        self.save_breaker = permits.save_breaker

        streams = SqlStreams(self.database, self.stream_registry)
        self.streams = streams.all_streams
        self.parked_targets = streams.parked_targets
        self.queues = streams.queues
        self.pause_queue = streams.pause_queue
        self.resume_queue = streams.resume_queue
        self.purge_streams = SqlUnusedStreams(self.database, self.stream_registry).purge_streams


if TYPE_CHECKING:

    def _is_a_store(store: SqlStore) -> JobStore:
        return store
