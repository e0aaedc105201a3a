"""
`Work`: what one transaction reads, decides and writes.

The rules of the contract are the in-memory store's (`ratchet.stores.memory`): functions over tables. Here
the tables are collections, read on demand in the transaction's snapshot; what the rules have changed is
written at the end, each collection in one go. A savepoint costs nothing, and a refusal (`BusinessKeyBusy`)
has sent nothing to the server yet, so that a caller's own transaction stays usable.

**Isolation.** MongoDB refuses to change a document that was changed since the snapshot. That is enough
where the document that was decided about is also written. Where a rule decides by *other* documents, one
document that both transactions know is touched (``rev`` + 1). So of two transactions that do not see each
other, one is repeated:

- an edge that is stored or settled touches its child (which counts its edges), a new one also its parent
  (which may end at this moment);
- a batch that is finished or opened touches its parent job (which may wait for other things as well);
- a run whose code is still running, or has now ended, touches its job (whose key waits for it);
- a limit is touched by every claim that takes a permit; a new one touches the jobs that run behind it;
- a signal's key has a gate, touched by who sends and by who is stored to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.cursor import Cursor

from ratchet.model.cluster import BreakerRecord, LockRecord, NodeRecord, PermitRecord
from ratchet.model.composition import BatchRecord, Edge, ScheduleRecord
from ratchet.model.identifiers import new_id
from ratchet.model.job import Alert, Execution, StreamKey
from ratchet.model.schedules import LATEST_RUNS
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.memory.batches import MemoryBatches
from ratchet.stores.memory.cluster import MemoryCluster
from ratchet.stores.memory.permits import MemoryPermits
from ratchet.stores.memory.recurring import MemoryRecurring
from ratchet.stores.memory.rows import (
    Cost,
    FireRow,
    Limit,
    Reservation,
    Row,
    SignalRow,
    awaited_signal,
    may_expire,
    running_on,
    unended_run_of,
)
from ratchet.stores.memory.signals import MemorySignals
from ratchet.stores.memory.state import State
from ratchet.stores.memory.tables import Group, Journal, Pending
from ratchet.stores.memory.transitions import MemoryTransitions
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import (
    ALERTS,
    BATCHES,
    BREAKERS,
    COSTS,
    EDGES,
    FIRES,
    LIMITS,
    LOCKS,
    NODES,
    PERMITS,
    RESERVATIONS,
    RUNS,
    SCHEDULES,
    SIGNALS,
    Document,
    fire_identity,
    run_identity,
    time_of,
)
from ratchet.stores.mongo.schema import BATCH, Names
from ratchet.stores.mongo.transaction.flush import Flush
from ratchet.stores.mongo.transaction.tables import (
    CodedTables,
    JobTable,
    LoadedGroup,
    LoadedTable,
    ReservationTable,
    WholeTable,
    Writer,
)

if TYPE_CHECKING:
    from ratchet.stores.mongo.database import Database

_FIRST_SERIAL = 1 << 128


class Work(State):
    """The tables of one transaction. Use it from one thread, and call `flush` at the end."""

    jobs: JobTable
    running_on: LoadedGroup[UUID, Row, str]
    by_batch: LoadedGroup[UUID, Row, UUID]
    unended_runs: LoadedGroup[UUID, Row, str]
    awaiting: LoadedGroup[UUID, Row, str]
    edges: LoadedTable[tuple[UUID, UUID], Edge]
    edges_out: LoadedGroup[tuple[UUID, UUID], Edge, UUID]
    edges_in: LoadedGroup[tuple[UUID, UUID], Edge, UUID]
    executions: LoadedTable[tuple[UUID, UUID], Execution]
    runs_of: LoadedGroup[tuple[UUID, UUID], Execution, UUID]
    alerts: LoadedTable[UUID, Alert]
    alerts_of: LoadedGroup[UUID, Alert, UUID]
    reservations: LoadedTable[str, Reservation]
    idempotency: LoadedTable[str, UUID]
    still_running: LoadedTable[tuple[UUID, UUID], str]
    permits: LoadedTable[tuple[str, UUID, UUID], PermitRecord]
    permits_of: LoadedGroup[tuple[str, UUID, UUID], PermitRecord, str]
    limits: LoadedTable[str, Limit]
    breakers: LoadedTable[str, BreakerRecord]
    nodes: LoadedTable[str, NodeRecord]
    locks: LoadedTable[str, LockRecord]
    batches: LoadedTable[UUID, BatchRecord]
    batches_of: LoadedGroup[UUID, BatchRecord, UUID]
    costs: LoadedTable[UUID, Cost]
    schedules: LoadedTable[str, ScheduleRecord]
    fires: LoadedTable[tuple[str, datetime], FireRow]
    signals: LoadedTable[UUID, SignalRow]
    signals_of: LoadedGroup[UUID, SignalRow, str]

    def __init__(self, database: Database, session: ClientSession) -> None:
        self._database = database
        self.session = session  # pass it to every method of a collection
        self._names = database.collections(session)
        self.touched: dict[str, set[Any]] = {}  # by collection; see `touch`
        self.signal_gates: set[str] = set()  # see `pass_gate`
        self._afterwards: list[Callable[[], object]] = []
        self._writers: list[Writer] = []
        self._serials = _FIRST_SERIAL
        self.wrote = False
        super().__init__(lock_wait=timedelta(), database_time=database.clock)
        self._depth = 1  # everything happens inside one operation: `run` is a savepoint

    # --- small things ---------------------------------------------------------------------------

    def collection(self, name: str) -> Collection[Document]:
        """A collection; pass ``session=work.session`` to its methods."""
        return self._names[name]

    def next_serial(self) -> int:
        self._serials += 1
        return self._serials

    def new_id(self, now: datetime) -> UUID:
        return new_id()

    def stream(self, key: StreamKey) -> int:
        return self._database.streams.id_of(key)

    def stream_key(self, stream_id: int) -> StreamKey:
        """The key of a stream."""
        return self._database.streams.key_of(stream_id)

    def has_failed_child(self, batch_id: UUID) -> bool:
        """True where a child of the batch has failed and could be retried; its children are not read."""
        failed = {"$or": [{"status": JobStatus.FAILED.value}, {"paused_from": JobStatus.FAILED.value}]}
        children = {"links": link(Link.BATCH, batch_id), **failed}
        found = self._names[Names.JOBS].find_one(children, {"_id": 1}, session=self.session)
        return found is not None

    def running_with(self, resource: str) -> list[Row]:
        """The RUNNING jobs that use a resource; they are touched, for one may end at this moment."""
        uses = {"$or": [{"resource": resource}, {"limit_key": resource}]}
        streams = [
            one["_id"] for one in self._names[Names.STREAMS].find(uses, {"_id": 1}, session=self.session)
        ]
        # with the node, so that only the index of what runs is read
        running = {"status": JobStatus.RUNNING.value, "node_id": {"$gt": ""}, "stream_id": {"$in": streams}}
        found = self._names[Names.JOBS].find(running, {"_id": 1}, session=self.session) if streams else ()
        ids = [one["_id"] for one in found]
        self.jobs.load(ids)
        for job_id in ids:
            self.touch(Names.JOBS, job_id)
        return [self.jobs[job_id] for job_id in ids]

    def backdated(self, stream_id: int) -> None:
        """Claims always read from the start of the index, so there is nothing to do."""

    def touch(self, collection: str, identity: Any) -> None:
        """Write to a document, so that another transaction that decides by the same documents conflicts with this one."""
        self.touched.setdefault(collection, set()).add(identity)

    def pass_gate(self, key: str) -> None:
        """Conflict with every transaction that sends a signal of this key, or stores a job that waits for it."""
        self.signal_gates.add(key)

    def afterwards(self, collection: str, operation: Callable[[Collection[Document]], object]) -> None:
        """Do something to a collection directly when everything else has been written."""
        self._afterwards.append(lambda: self.write(collection, operation))

    def write(self, collection: str, operation: Callable[[Collection[Document]], Any]) -> Any:
        """Do something to a collection directly, in this transaction."""
        self.wrote = True
        return operation(self._names[collection])

    # --- the tables -----------------------------------------------------------------------------

    def _make_job_tables(self, journal: Journal) -> None:
        self.pending = Pending()
        self.by_status = Group(lambda row: None)
        self.running_on = LoadedGroup(running_on, "node_id", {"status": JobStatus.RUNNING.value})
        self.by_root = Group(lambda row: None)
        self.by_batch = LoadedGroup(lambda row: row.spec.batch_id, "links", stored=partial(link, Link.BATCH))
        self.unended_runs = LoadedGroup(
            unended_run_of, "links", stored=partial(link, Link.SCHEDULE), latest=LATEST_RUNS
        )
        self.awaiting = LoadedGroup(
            awaited_signal, "links", stored=partial(link, Link.SIGNAL), asked=self.pass_gate
        )
        self.expiring = Group(may_expire)  # of what has been read
        self.jobs = JobTable(
            "job",
            journal,
            self,
            self.running_on,
            self.by_batch,
            self.unended_runs,
            self.awaiting,
            self.expiring,
        )
        tables = self._tables(journal)
        self.edges_out = LoadedGroup(lambda edge: edge.parent_id, "_id.parent_id")
        self.edges_in = LoadedGroup(lambda edge: edge.child_id, "_id.child_id")
        self.edges = tables.rows(
            "edge",
            Names.DEPENDENCIES,
            EDGES,
            lambda edge: (edge.parent_id, edge.child_id),
            ("parent_id", "child_id"),
            self.edges_out,
            self.edges_in,
        )
        self.runs_of = LoadedGroup(lambda run: run.job_id, "_id.job_id")
        self.executions = tables.rows(
            "execution",
            Names.EXECUTIONS,
            RUNS,
            lambda run: (run.job_id, run.claim_id),
            ("job_id", "claim_id"),
            self.runs_of,
            fresh=True,
        )
        self.alerts_of = LoadedGroup(lambda alert: alert.job_id, "job_id")
        self.alerts = tables.rows(
            "alert", Names.ALERTS, ALERTS, lambda alert: alert.alert_id, (), self.alerts_of, fresh=True
        )

    def _make_other_tables(self, journal: Journal) -> None:
        tables = self._tables(journal)
        self.reservations = tables.keyed(
            "business_key", Names.BUSINESS_KEYS, RESERVATIONS, kind=ReservationTable
        )
        self.idempotency = tables.custom(
            "idempotency_key",
            Names.IDEMPOTENCY_KEYS,
            lambda doc: (doc["_id"], doc["job_id"]),
            lambda key, job_id: {"_id": key, "job_id": job_id},
            lambda key: key,
        )
        self.still_running = tables.custom(
            "still_running",
            Names.STILL_RUNNING,
            lambda doc: ((doc["_id"]["job_id"], doc["_id"]["claim_id"]), doc["node_id"]),
            lambda run, node_id: {"_id": run_identity(run), "node_id": node_id},
            run_identity,
            kind=WholeTable,
        )
        self.permits_of = LoadedGroup(lambda permit: permit.resource, "_id.resource")
        self.permits = tables.rows(
            "permit",
            Names.PERMITS,
            PERMITS,
            lambda permit: (permit.resource, permit.job_id, permit.claim_id),
            ("resource", "job_id", "claim_id"),
            self.permits_of,
        )
        self.limits = tables.rows("limit", Names.LIMITS, LIMITS, lambda limit: limit.name)
        self.breakers = tables.rows("breaker", Names.BREAKERS, BREAKERS, lambda record: record.service)
        self.nodes = tables.rows("node", Names.NODES, NODES, lambda node: node.node_id)
        self.locks = tables.keyed("lock", Names.LOCKS, LOCKS, kind=WholeTable)
        self._make_composition_tables(tables)

    def _make_composition_tables(self, tables: CodedTables) -> None:
        self.batches_of = LoadedGroup(lambda batch: batch.parent_id, "parent_id")
        self.batches = tables.rows(
            "batch", Names.BATCHES, BATCHES, lambda batch: batch.batch_id, (), self.batches_of
        )
        self.costs = tables.keyed("batch_metrics", Names.BATCH_METRICS, COSTS)
        self.schedules = tables.keyed("recurring_job", Names.SCHEDULES, SCHEDULES)
        self.fires = tables.custom(
            "recurring_fire",
            Names.FIRES,
            lambda doc: ((doc["_id"]["schedule"], time_of(doc["_id"]["fire_at"])), FIRES.value(doc)),
            lambda key, row: {"_id": fire_identity(key), **FIRES.document(row)},
            fire_identity,
        )
        self.signals_of = LoadedGroup(lambda row: row.spec.key, "spec.key", asked=self.pass_gate)
        self.signals = tables.keyed("signal", Names.SIGNALS, SIGNALS, self.signals_of)

    def _tables(self, journal: Journal) -> CodedTables:
        return CodedTables(journal, self._find, self._writers)

    def _find(self, name: str, query: Mapping[str, Any]) -> Cursor[Document]:
        return self._names[name].find(query, session=self.session, batch_size=BATCH)

    # --- reading ahead --------------------------------------------------------------------------

    def load_jobs(self, job_ids: Iterable[UUID]) -> None:
        """Read these jobs, and what their end will ask for, in as few queries as there are levels."""
        ids = list(job_ids)
        self.jobs.load(ids)
        rows = [row for job_id in ids if (row := self.jobs.get(job_id)) is not None]
        self.batches.load({row.spec.batch_id for row in rows if row.spec.batch_id is not None})
        self.reservations.load({row.spec.business_key for row in rows if row.spec.business_key is not None})
        self.load_children(ids)

    def load_children(self, job_ids: Iterable[UUID]) -> None:
        """Read the edges out of these jobs, their children, and the children's other edges."""
        parents = list(job_ids)
        self.edges_out.load(parents)
        children = {child_id for _, child_id in self.edges_out.known(parents)}
        if children:
            self.jobs.load(children)
            self.edges_in.load(children)

    def load_parents(self, job_ids: Iterable[UUID]) -> None:
        """Read the edges into those of these jobs that the end of another has canceled, and their parents."""
        rows = (self.jobs.get(job_id) for job_id in job_ids)
        canceled = [row.job_id for row in rows if row is not None and row.canceled_by is not None]
        self.edges_in.load(canceled)
        self.jobs.load({parent_id for parent_id, _ in self.edges_in.known(canceled)})

    def load_new(self, job_ids: Iterable[UUID], *, fresh: bool = False) -> None:
        """
        The same for jobs that are about to be stored: those that are not there have nothing around them.

        With *fresh* they are not looked up; the server refuses the write where one is there.
        """
        ids = list(job_ids)
        if fresh:
            self.jobs.assume_absent(ids)
        self.jobs.load(ids)
        absent = [job_id for job_id in ids if job_id not in self.jobs]
        self.edges_out.assume_complete(absent)
        self.edges_in.assume_complete(absent)
        self.batches_of.assume_complete(absent)

    def seen(self, document: Document) -> None:
        """What a job's document says about the collections around it."""
        job_id = document["_id"]
        if not document.get("has_dependants"):
            self.edges_out.assume_complete((job_id,))
        if document.get("type") != JobType.BATCH_PARENT.value:
            self.batches_of.assume_complete((job_id,))

    # --- writing --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send everything that was changed."""
        Flush(self).send(self._writers)
        for action in self._afterwards:
            action()


class Rules(MemoryTransitions, MemoryBatches, MemoryRecurring, MemorySignals, MemoryCluster, MemoryPermits):
    """
    The rules of the in-memory store, over the tables of one transaction: every verb that is decided by a few documents.

    Verbs that walk through many (claims, search, sweeps) are written for MongoDB in the class of their noun.
    """

    def __init__(self, work: Work) -> None:
        self._state = work
