"""`MongoStore`: the nouns as one object."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from pymongo.errors import OperationFailure

from ratchet.model.cluster import UnreadableRow
from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.options import Options
from ratchet.model.storage import StoreSize, TableSize
from ratchet.model.upgrades import UpgradePlan
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.store import Capabilities
from ratchet.spi.store.audit import by_node
from ratchet.stores.mongo.audit import MongoAudit
from ratchet.stores.mongo.batches import MongoBatches
from ratchet.stores.mongo.claiming.unreachable import unreachable_jobs
from ratchet.stores.mongo.claims import MongoClaims
from ratchet.stores.mongo.cluster import MongoCluster
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import Database
from ratchet.stores.mongo.dead_letters import MongoDeadLetters
from ratchet.stores.mongo.history import MongoHistory
from ratchet.stores.mongo.jobs import MongoJobs
from ratchet.stores.mongo.moving import MongoMoving
from ratchet.stores.mongo.permits import MongoPermits
from ratchet.stores.mongo.recurring import MongoRecurring
from ratchet.stores.mongo.schema import ALL_NAMES, Schema
from ratchet.stores.mongo.signals import MongoSignals
from ratchet.stores.mongo.stored_values import MongoStoredValues
from ratchet.stores.mongo.streams import MongoStreams
from ratchet.stores.mongo.submissions import MongoSubmissions
from ratchet.stores.mongo.transitions import MongoTransitions
from ratchet.stores.mongo.wakeups import mongo_wakeups
from ratchet.stores.mongo.workflows import MongoWorkflows
from ratchet.stores.unreadable import unreadable_rows

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore


class MongoStore(
    MongoSubmissions,
    MongoJobs,
    MongoClaims,
    MongoTransitions,
    MongoBatches,
    MongoWorkflows,
    MongoRecurring,
    MongoHistory,
    MongoCluster,
    MongoPermits,
    MongoDeadLetters,
    MongoSignals,
    MongoStreams,
    MongoStoredValues,
    MongoMoving,
    MongoAudit,
):
    """
    A `JobStore` on a MongoDB replica set.

    The methods of the contract are in the class of their noun; here is what concerns the store as a whole.
    Collections and indexes are made when it is first used. ``begin()`` yields a `ClientSession` in a
    transaction, and ``within=`` takes one: use your own collections with ``session=``.
    """

    name = "mongodb"

    def __init__(self, url: str, options: Options | None = None) -> None:
        super().__init__(Database(url, options if options is not None else Options()))
        self.capabilities = Capabilities(wakeups="change_stream", migrates_itself=True, shows_values=True)
        self.schema = Schema(self.database)
        self.database.prepare_with(self._upgrade)
        self._coordinator: ClusterCoordinator | None = None
        self._lock = threading.Lock()

    # --- lifecycle ------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Make or upgrade the collections and indexes; the steps that this call has recorded."""
        return self.schema.migrate()

    def check_schema(self) -> None:
        """`SchemaOutOfDate` or `SchemaTooNew`, saying what to do; nothing when all is well."""
        self.schema.check()

    def upgrade_plan(self) -> UpgradePlan:
        """What `migrate` would do; nobody would have to wait."""
        return self.schema.plan()

    def roll_back_schema(self) -> list[str]:
        """Let code of 0.1.0 start on this schema; what it does not see any more."""
        return self.schema.roll_back()

    def unreadable(self) -> list[UnreadableRow]:
        """The rows that everything passes by: of schedules, limits, breakers and nodes, and of jobs that no claim reaches."""
        nodes = partial(self.nodes, counting=False)
        passed = unreadable_rows(self.schedules, self.limits, self.breakers, nodes)
        return passed + self.database.read(unreachable_jobs)

    def size(self) -> StoreSize:
        """Documents and bytes of our collections, in what the server keeps about them."""
        return self.database.read(lambda c: StoreSize.of([_size(c, name) for name in ALL_NAMES]))

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
            with by_node("upgrade", "schema"):
                self.migrate()


def _size(collections: Collections, name: str) -> TableSize:
    """What the server keeps about one collection; one that was not made yet is empty."""
    try:
        found = collections.database.command("collStats", name)
    except OperationFailure:
        found = {}
    return TableSize(
        name=name,
        rows=int(found.get("count", 0)),
        estimated=True,
        bytes=int(found.get("storageSize", 0)),
        indexes=int(found.get("nindexes", 0)),
        index_bytes=int(found.get("totalIndexSize", 0)),
    )


if TYPE_CHECKING:

    def _is_a_store(store: MongoStore) -> JobStore:
        return store
