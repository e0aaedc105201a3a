"""`JobStore`: everything that a store does, composed from small interfaces."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ratchet.model.cluster import UnreadableRow
from ratchet.model.storage import StoreSize
from ratchet.model.upgrades import UpgradePlan
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.store.audit import AuditStore
from ratchet.spi.store.batches import BatchMetricsStore, BatchStore
from ratchet.spi.store.claims import JobClaimStore
from ratchet.spi.store.cluster import LockStore, NodeStore
from ratchet.spi.store.dead_letters import DlqAlertStore
from ratchet.spi.store.history import ArchiveStore, ExecutionStore, FlowStore, JobLogStore
from ratchet.spi.store.jobs import JobBulkStore, JobCrudStore, TagStore
from ratchet.spi.store.permits import BreakerStore, ResourcePermitStore
from ratchet.spi.store.recurring import RecurringStore
from ratchet.spi.store.signals import SignalStore
from ratchet.spi.store.streams import StreamStore
from ratchet.spi.store.transitions import (
    JobBatchStatusStore,
    JobPauseStore,
    JobRetryStore,
    JobStatusStore,
    JobTerminalStore,
)
from ratchet.spi.store.workflows import WorkflowConditionStore


class Capabilities:
    """What a store declares about itself; the conformance kit goes by this, never by product names."""

    def __init__(
        self,
        *,
        transactions: bool = True,
        within: bool = True,
        survives_restart: bool = True,
        several_processes: bool = True,
        concurrent_writers: bool = True,
        wakeups: str | None = None,
        migrates_itself: bool = False,
        bulk: int = 1000,
        sends: bool = False,
        commit_wakes: bool = False,
        several_writers: bool = False,
        shows_values: bool = False,
    ) -> None:
        self.transactions = transactions  # begin() gives a connection on which users can write too
        self.within = within  # insert(within=…) joins a caller's transaction
        self.survives_restart = survives_restart  # what was acknowledged is there after a crash
        self.several_processes = several_processes
        self.concurrent_writers = concurrent_writers  # two transactions can write at once
        self.migrates_itself = migrates_itself  # creates and upgrades its own schema when it is first used
        self.bulk = bulk  # the most jobs in one transaction of a large bulk submission
        self.sends = sends  # the store is a `SendingStore` too
        self.commit_wakes = (
            commit_wakes  # a commit wakes other processes by itself; its coordinator sends nothing
        )
        self.shows_values = shows_values  # the store is a `ValueStore` too
        #: Several servers take writes, and compare them when they are committed; known once a store is connected.
        self.several_writers = several_writers
        #: Settings of the database that break a promise, a sentence for each; known once a store is connected.
        self.unsound: tuple[str, ...] = ()
        self.wakeups = wakeups  # how another process learns of new work: "notify", "data_version", None


class StoreLifecycle(Protocol):
    """Opens, checks and closes a store."""

    name: str
    capabilities: Capabilities

    def migrate(self) -> list[str]:
        """
        Create or upgrade the schema; the scripts that were applied. If two callers come at once, one
        applies and the other waits.
        """
        ...

    def check_schema(self) -> None:
        """Raise `SchemaOutOfDate` or `SchemaTooNew`, with what to do, if the schema does not fit."""
        ...

    def upgrade_plan(self) -> UpgradePlan:
        """
        What `migrate` would do now, table by table, and who would have to wait; nothing is changed.

        Raises `SchemaTooNew` as `check_schema` does; a schema that is missing or out of date is what the plan is about.
        """
        ...

    def roll_back_schema(self) -> list[str]:
        """
        Let code of 0.1.0, which refuses whatever it does not know, start on this schema again; what was hidden from it.

        Nothing else changes: running nodes of any version go on, and `migrate` takes it back. `SchemaTooNew` if the schema
        has something that does not serve such code.
        """
        ...

    def begin(self, *, within: object | None = None) -> AbstractContextManager[object]:
        """
        A transaction whose connection the caller may use; it commits at the end, and rolls back on an error.

        It yields the driver's connection (or session), which is accepted as ``within=``.
        """
        ...

    def unreadable(self) -> list[UnreadableRow]:
        """
        The rows that cannot be read, and which everything passes by: those of schedules, limits, breakers and nodes, and
        of jobs that no claim reaches (any of them, at most a few). Other jobs that cannot be read are dead letters.

        A health check asks: it costs no more where many jobs wait.
        """
        ...

    def size(self) -> StoreSize:
        """
        How many rows and bytes each table has: estimates where the database has them, and nothing that would make it
        read all of a large table.
        """
        ...

    def coordinator(self) -> ClusterCoordinator | None:
        """How processes on this store wake each other; None if they cannot, and pollers look more often."""
        ...

    def close(self) -> None:
        """Close every connection; idempotent. The store opens them again when it is used again."""
        ...


class JobStore(
    JobCrudStore,
    JobBulkStore,
    TagStore,
    JobClaimStore,
    JobStatusStore,
    BatchStore,
    BatchMetricsStore,
    WorkflowConditionStore,
    RecurringStore,
    ExecutionStore,
    FlowStore,
    JobLogStore,
    ArchiveStore,
    NodeStore,
    LockStore,
    ResourcePermitStore,
    BreakerStore,
    DlqAlertStore,
    SignalStore,
    StreamStore,
    AuditStore,
    StoreLifecycle,
    Protocol,
):
    """
    A store: all of the above in one object.

    It is safe to use from many threads. Methods that take ``now`` take the engine's time, and compare
    stored times only with it, never with the database's clock. Errors are `StoreError`s. After
    `StoreUnavailable` the call may be tried again. After `CommitUnknown` the caller must find out by
    repeating it: submit again with the same ids, complete again with the same claims.
    """


__all__ = [
    "ArchiveStore",
    "AuditStore",
    "BatchMetricsStore",
    "BatchStore",
    "BreakerStore",
    "Capabilities",
    "DlqAlertStore",
    "ExecutionStore",
    "FlowStore",
    "JobBatchStatusStore",
    "JobBulkStore",
    "JobClaimStore",
    "JobCrudStore",
    "JobLogStore",
    "JobPauseStore",
    "JobRetryStore",
    "JobStatusStore",
    "JobStore",
    "JobTerminalStore",
    "LockStore",
    "NodeStore",
    "RecurringStore",
    "ResourcePermitStore",
    "SignalStore",
    "StoreLifecycle",
    "StreamStore",
    "TagStore",
    "WorkflowConditionStore",
]
