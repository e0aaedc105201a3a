"""`MongoStore`: every noun behind one object."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.options import Options
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.store import Capabilities
from ratchet.stores.mongo.batches import MongoBatches
from ratchet.stores.mongo.claims import MongoClaims
from ratchet.stores.mongo.cluster import MongoCluster
from ratchet.stores.mongo.database import Database
from ratchet.stores.mongo.dead_letters import MongoDeadLetters
from ratchet.stores.mongo.history import MongoHistory
from ratchet.stores.mongo.jobs import MongoJobs
from ratchet.stores.mongo.permits import MongoPermits
from ratchet.stores.mongo.recurring import MongoRecurring
from ratchet.stores.mongo.schema import Schema
from ratchet.stores.mongo.signals import MongoSignals
from ratchet.stores.mongo.streams import MongoStreams
from ratchet.stores.mongo.submit.submissions import MongoSubmissions
from ratchet.stores.mongo.transitions import MongoTransitions
from ratchet.stores.mongo.unused_streams import MongoUnusedStreams
from ratchet.stores.mongo.wakeups import mongo_wakeups
from ratchet.stores.mongo.workflows import MongoWorkflows

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore


class MongoStore:
    """
    A `JobStore` on a MongoDB replica set. What each method does is said in `ratchet.spi.store`.

    Collections and indexes are made when it is first used. ``begin()`` yields a `ClientSession` in a
    transaction, and ``within=`` takes one: use your own collections with ``session=``.
    """

    name = "mongodb"

    def __init__(self, url: str, options: Options | None = None) -> None:
        self.capabilities = Capabilities(wakeups="change_stream", migrates_itself=True)
        options = options if options is not None else Options()
        self.database = Database(url, options)
        self.schema = Schema(self.database)
        self.database.prepare_with(self._upgrade)
        self._coordinator: ClusterCoordinator | None = None
        self._lock = threading.Lock()
        self._bind_jobs(notify=options.notify)
        self._bind_runs()
        self._bind_compositions()
        self._bind_cluster()

    # --- lifecycle ------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Make or upgrade the collections and indexes; the steps that this call has recorded."""
        return self.schema.migrate()

    def check_schema(self) -> None:
        """`SchemaOutOfDate` or `SchemaTooNew`, saying what to do; nothing when all is well."""
        self.schema.check()

    def begin(self, *, within: object | None = None) -> AbstractContextManager[object]:
        """A transaction as a pymongo `ClientSession`, which may be passed as ``within=``."""
        return self.database.begin(within=within)

    def coordinator(self) -> ClusterCoordinator | None:
        """How processes on this store wake each other: a change stream."""
        with self._lock:
            if self._coordinator is None:
                self._coordinator = mongo_wakeups(self.database)
            return self._coordinator

    def close(self) -> None:
        """Free every connection; idempotent. The store opens them again when it is used again."""
        if self._coordinator is not None:
            self._coordinator.stop()
        self.database.close()

    def _upgrade(self) -> None:
        try:
            self.check_schema()
        except SchemaOutOfDate:
            self.migrate()

    # --- the nouns ------------------------------------------------------------------------------

    def _bind_jobs(self, *, notify: bool) -> None:
        submissions = MongoSubmissions(self.database, notify=notify)
        self.insert = submissions.insert
        self.replace = submissions.replace

        jobs = MongoJobs(self.database)
        self.get = jobs.get
        self.results = jobs.results
        self.find = jobs.find
        self.count = jobs.count
        self.counts = jobs.counts
        self.delete = jobs.delete
        self.reschedule = jobs.reschedule
        self.cancel_matching = jobs.cancel_matching
        self.retry_matching = jobs.retry_matching
        self.purge_dead_letters = jobs.purge_dead_letters
        self.tags_of = jobs.tags_of
        self.tag_counts = jobs.tag_counts

        dead_letters = MongoDeadLetters(self.database)
        self.dead_letters = dead_letters.dead_letters
        self.alerts = dead_letters.alerts
        self.alerts_of = dead_letters.alerts_of

        history = MongoHistory(self.database)
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
        claims = MongoClaims(self.database)
        self.claim_next_batch = claims.claim_next_batch
        self.claim_next_batch_optimized = claims.claim_next_batch_optimized
        self.bodies = claims.bodies
        self.next_due_at = claims.next_due_at
        self.next_due_of = claims.next_due_of
        self.claims_of = claims.claims_of
        self.explain = claims.explain

        transitions = MongoTransitions(self.database)
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
        batches = MongoBatches(self.database)
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

        workflows = MongoWorkflows(self.database)
        self.conditions_of = workflows.conditions_of
        self.edges_of = workflows.edges_of
        self.parents_of = workflows.parents_of
        self.graph = workflows.graph

        recurring = MongoRecurring(self.database)
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

        signals = MongoSignals(self.database)
        self.send_signal = signals.send_signal
        self.waiting_for = signals.waiting_for
        self.purge_signals = signals.purge_signals

    def _bind_cluster(self) -> None:
        cluster = MongoCluster(self.database)
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

        permits = MongoPermits(self.database)
        self.set_limit = permits.set_limit
        self.remove_limit = permits.remove_limit
        self.limits = permits.limits
        self.holders = permits.holders
        self.release_permits = permits.release_permits
        self.breaker = permits.breaker
        self.breakers = permits.breakers
        self.save_breaker = permits.save_breaker

        streams = MongoStreams(self.database)
        self.streams = streams.all_streams
        self.parked_targets = streams.parked_targets
        self.queues = streams.queues
        self.pause_queue = streams.pause_queue
        self.resume_queue = streams.resume_queue
        self.purge_streams = MongoUnusedStreams(self.database).purge_streams


if TYPE_CHECKING:

    def _is_a_store(store: MongoStore) -> JobStore:
        return store
