"""
Everything the store remembers, and how calls change it: one at a time, whole or not at all.

A call that raises is undone. A transaction (`MemoryStore.begin`) is the list of its operations:
each is carried out to get its answer, undone again, and all are carried out together at the end.
What an open transaction has written is locked until then, as rows are in a database: whoever else
wants to write it waits, and claims skip it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

from ratchet.model.audit import AuditEntry
from ratchet.model.cluster import (
    BreakerRecord,
    LockRecord,
    NodeRecord,
    PermitRecord,
    QueueRecord,
    StreamRecord,
)
from ratchet.model.composition import BatchRecord, Edge, ScheduleRecord
from ratchet.model.errors import ConfigurationError, Conflict, RatchetError, StoreError
from ratchet.model.job import Alert, Execution, JobFilter, LogEntry, StreamKey
from ratchet.model.status import JobStatus
from ratchet.spi.loop_bound import unbound
from ratchet.spi.shield import undisturbed
from ratchet.stores.listing import match_of
from ratchet.stores.memory.rows import (
    Cost,
    FireRow,
    Limit,
    Reservation,
    Row,
    SignalRow,
    awaited_signal,
    indexed_status,
    may_expire,
    running_on,
    unended_run_of,
)
from ratchet.stores.memory.tables import Group, Journal, Pending, RowName, Table
from ratchet.stores.memory.values import check

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OVERTAKEN = "another call changed what this transaction had read; nothing of it was written: run it again"

T = TypeVar("T")
P = ParamSpec("P")


class RowLocked(Exception):
    """A row is held by a transaction that is still open."""

    def __init__(self, holder: Transaction) -> None:
        super().__init__("the row is held by an open transaction")
        self.holder = holder


class LockTimeout(Conflict):
    """A row was held by another open transaction for too long."""


class Transaction:
    """
    What `MemoryStore.begin` yields, and ``within=`` accepts.

    A test may write to ledgers of its own with it, which commit with the jobs: see `write`.
    """

    def __init__(self) -> None:
        self.ended = False
        self.locks: set[RowName] = set()
        self.operations: list[tuple[Callable[[], Any], Any]] = []
        self.writes: list[tuple[str, object]] = []

    def write(self, ledger: str, entry: object) -> None:
        """Append *entry* to a ledger (`MemoryStore.ledger`) when this transaction commits."""
        if self.ended:
            raise StoreError("this transaction has ended; write inside its with-block")
        self.writes.append((ledger, entry))


class State:
    """The tables, and the one lock."""

    def __init__(self, *, lock_wait: timedelta, database_time: Callable[[], datetime]) -> None:
        self.database_time = database_time
        self._changed = threading.Condition(threading.RLock())
        self._journal = Journal()
        self.lock_wait = lock_wait
        self._depth = 0
        self._current: Transaction | None = None
        self._open: list[Transaction] = []
        self._serial = 0
        self.ledgers: dict[str, list[object]] = {}
        self._make_job_tables(self._journal)
        self._make_other_tables(self._journal)
        # Streams are never undone: a stream without jobs means nothing, and must not lock anybody out.
        self._stream_ids: dict[StreamKey, int] = {}
        self._last_stream_id = 0
        self.streams: dict[int, StreamRecord] = {}
        self.streams_used_at: dict[int, datetime] = {}

    def _make_job_tables(self, journal: Journal) -> None:
        self.pending = Pending()
        self.by_status: Group[UUID, Row, JobStatus] = Group(indexed_status)
        self.running_on: Group[UUID, Row, str] = Group(running_on)
        self.by_root: Group[UUID, Row, UUID] = Group(lambda row: row.root_id)
        self.by_batch: Group[UUID, Row, UUID] = Group(lambda row: row.spec.batch_id)
        self.unended_runs: Group[UUID, Row, str] = Group(unended_run_of)
        self.awaiting: Group[UUID, Row, str] = Group(awaited_signal)
        self.expiring: Group[UUID, Row, bool] = Group(may_expire)
        self.jobs: Table[UUID, Row] = Table(
            "job",
            journal,
            self.pending,
            self.by_status,
            self.running_on,
            self.by_root,
            self.by_batch,
            self.unended_runs,
            self.awaiting,
            self.expiring,
        )
        self.edges_out: Group[tuple[UUID, UUID], Edge, UUID] = Group(lambda edge: edge.parent_id)
        self.edges_in: Group[tuple[UUID, UUID], Edge, UUID] = Group(lambda edge: edge.child_id)
        self.edges: Table[tuple[UUID, UUID], Edge] = Table("edge", journal, self.edges_out, self.edges_in)
        self.runs_of: Group[tuple[UUID, UUID], Execution, UUID] = Group(lambda run: run.job_id)
        self.executions: Table[tuple[UUID, UUID], Execution] = Table("execution", journal, self.runs_of)
        self.logs_of: Group[tuple[UUID, UUID, int], LogEntry, UUID] = Group(lambda entry: entry.job_id)
        self.logs: Table[tuple[UUID, UUID, int], LogEntry] = Table("log", journal, self.logs_of)
        self.alerts_of: Group[UUID, Alert, UUID] = Group(lambda alert: alert.job_id)
        self.alerts: Table[UUID, Alert] = Table("alert", journal, self.alerts_of)

    def _make_other_tables(self, journal: Journal) -> None:
        self.reservations: Table[str, Reservation] = Table("business_key", journal)
        self.idempotency: Table[str, UUID] = Table("idempotency_key", journal)
        # Runs that have ended on record while their code is still running, and the node that runs it.
        self.still_running: Table[tuple[UUID, UUID], str] = Table("still_running", journal)
        self.permits_of: Group[tuple[str, UUID, UUID], PermitRecord, str] = Group(
            lambda permit: permit.resource
        )
        self.permits: Table[tuple[str, UUID, UUID], PermitRecord] = Table("permit", journal, self.permits_of)
        self.limits: Table[str, Limit] = Table("limit", journal)
        self.breakers: Table[str, BreakerRecord] = Table("breaker", journal)
        self.batches_of: Group[UUID, BatchRecord, UUID] = Group(lambda batch: batch.parent_id)
        self.batches: Table[UUID, BatchRecord] = Table("batch", journal, self.batches_of)
        self.costs: Table[UUID, Cost] = Table("batch_metrics", journal)
        self.schedules: Table[str, ScheduleRecord] = Table("recurring_job", journal)
        self.fires_of: Group[tuple[str, datetime], FireRow, str] = Group(lambda row: row.record.schedule)
        self.fires: Table[tuple[str, datetime], FireRow] = Table("recurring_fire", journal, self.fires_of)
        self.signals_of: Group[UUID, SignalRow, str] = Group(lambda row: row.spec.key)
        self.signals: Table[UUID, SignalRow] = Table("signal", journal, self.signals_of)
        self.nodes: Table[str, NodeRecord] = Table("node", journal)
        self.locks: Table[str, LockRecord] = Table("lock", journal)
        self.queues: Table[str, QueueRecord] = Table("queue", journal)
        # Documents, so that what a caller does to a period later changes nothing here.
        self.flow: Table[tuple[int, datetime, str], str] = Table("flow", journal)
        self.audit: Table[UUID, AuditEntry] = Table("audit", journal)

    # --- calls ----------------------------------------------------------------------------------

    def run(self, operation: Callable[[], T], *, within: object | None = None) -> T:
        """
        The answer of *operation*, which changes everything it wants to, or nothing if it raises.

        *within*: the changes are made when that transaction commits. Inside another operation
        this is a savepoint.
        """
        with undisturbed():
            if self._owned_depth():
                return self._savepoint(operation)
            with self._changed:
                while True:
                    transaction = None if within is None else self.transaction(within)
                    try:
                        return self._attempt(operation, transaction)
                    except RowLocked as locked:
                        holder = locked.holder
                    self._wait_for(holder)

    def _wait_for(self, holder: Transaction) -> None:
        seconds = self.lock_wait.total_seconds()
        if not self._changed.wait_for(lambda: holder.ended, seconds):
            raise LockTimeout(
                f"another open transaction has held the row for {seconds:g} s; try again when it has ended"
            )

    def _owned_depth(self) -> int:
        # Another thread's depth must not be mistaken for ours; the lock is re-entrant, so this
        # waits for other threads only.
        with self._changed:
            return self._depth

    def _savepoint(self, operation: Callable[[], T]) -> T:
        mark = self._journal.mark()
        try:
            return operation()
        except BaseException:
            self._journal.undo_to(mark)
            raise

    def _attempt(self, operation: Callable[[], T], transaction: Transaction | None) -> T:
        with self._writing(transaction):
            if transaction is None:
                answer = operation()
                self._journal.keep()
                return answer
            for earlier, _ in transaction.operations:
                earlier()
            answer = operation()
            transaction.operations.append((operation, answer))
            transaction.locks = self._journal.touched()
            return answer

    @contextmanager
    def _writing(self, transaction: Transaction | None) -> Iterator[None]:
        """Undo, at the end, whatever was not kept."""
        self._depth = 1
        self._current = transaction
        self._journal.guard = self._refuse_locked if self._open else None
        try:
            yield
        finally:
            self._journal.guard = None
            self._journal.undo()
            self._depth = 0
            self._current = None

    def _refuse_locked(self, name: RowName) -> None:
        for transaction in self._open:
            if transaction is not self._current and name in transaction.locks:
                raise RowLocked(transaction)

    def is_locked(self, table: Table[Any, Any], key: object) -> bool:
        """True where an open transaction other than the current one has written the row."""
        name = (table.name, key)
        return any(name in open_.locks for open_ in self._open if open_ is not self._current)

    # --- transactions ---------------------------------------------------------------------------

    def begin(self) -> Transaction:
        """A new transaction; it must be given to `commit` or `rollback`."""
        with self._changed:
            transaction = Transaction()
            self._open.append(transaction)
            return transaction

    def transaction(self, within: object) -> Transaction:
        """*within* itself, if it is an open transaction of this store."""
        if not isinstance(within, Transaction):
            raise ConfigurationError(
                f"within= takes what this store's begin() yields, not {type(unbound(within)).__name__}: "
                f"the in-memory store has no database connection to join"
            )
        if within.ended or within not in self._open:
            raise StoreError("within= is a transaction that has ended, or of another store")
        return within

    def commit(self, transaction: Transaction) -> None:
        """Make all its changes, or none (`Conflict`) where an answer it was given no longer holds."""
        with self._changed:
            try:
                with self._writing(transaction):
                    self._carry_out(transaction)
                    self._journal.keep()
                for ledger, entry in transaction.writes:
                    self.ledgers.setdefault(ledger, []).append(entry)
            finally:
                self._end(transaction)

    def _carry_out(self, transaction: Transaction) -> None:
        try:
            kept = all(operation() == answer for operation, answer in transaction.operations)
        except (RatchetError, RowLocked) as error:
            raise Conflict(_OVERTAKEN) from error
        if not kept:
            raise Conflict(_OVERTAKEN)

    def rollback(self, transaction: Transaction) -> None:
        """Forget all its changes."""
        with self._changed:
            self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        transaction.ended = True
        self._open.remove(transaction)
        self._changed.notify_all()

    # --- small things ---------------------------------------------------------------------------

    def next_serial(self) -> int:
        """Numbers that only grow."""
        self._serial += 1
        return self._serial

    def new_id(self, now: datetime) -> UUID:
        """A UUIDv7 without randomness: the store must do the same thing twice when it is asked twice."""
        milliseconds = (now - _EPOCH) // timedelta(milliseconds=1)
        return UUID(int=milliseconds << 80 | 0x7 << 76 | 0b10 << 62 | self.next_serial())

    def stream(self, key: StreamKey) -> int:
        """The id of the stream of *key*, which is made if there is none."""
        stream_id = self._stream_ids.get(key)
        if stream_id is None:
            self._last_stream_id += 1
            stream_id = self._stream_ids[key] = self._last_stream_id
            self.streams[stream_id] = StreamRecord(stream_id=stream_id, key=key, epoch=0)
        self.streams_used_at[stream_id] = self.database_time()
        return stream_id

    def set_stream_aside(self, stream_id: int, now: datetime) -> None:
        """No new job gets this stream."""
        self.streams_used_at[stream_id] = now
        del self._stream_ids[self.streams[stream_id].key]

    def is_stream_aside(self, stream_id: int) -> bool:
        """True where no new job gets this stream."""
        return self._stream_ids.get(self.streams[stream_id].key) != stream_id

    def delete_stream(self, stream_id: int) -> None:
        """Forget a stream that was set aside."""
        del self.streams[stream_id], self.streams_used_at[stream_id]

    def matching(self, where: JobFilter) -> list[Row]:
        """Every job that *where* describes, in no order."""
        match = match_of(where)
        rows = [row for row in self.jobs.values() if row.matches(where)]
        return rows if match is None else [row for row in rows if match(row.spec.payload, row.spec.params)]

    def running_with(self, resource: str) -> list[Row]:
        """The RUNNING jobs that use a resource."""
        rows = (self.jobs[job_id] for job_id in self.by_status.of(JobStatus.RUNNING))
        return [row for row in rows if resource in (row.stream.resource, row.stream.limit_key)]

    def has_failed_child(self, batch_id: UUID) -> bool:
        """True where a child of the batch has failed and could be retried."""
        rows = (self.jobs[job_id] for job_id in self.by_batch.of(batch_id))
        return any(row.archived_at is None and row.ended_as is JobStatus.FAILED for row in rows)

    def backdated(self, stream_id: int) -> None:
        """A job was stored that is due before those that claims of this stream have reached."""
        record = self.streams[stream_id]
        self.streams[stream_id] = StreamRecord(stream_id=stream_id, key=record.key, epoch=record.epoch + 1)


class Part:
    """One part of the store: methods over the shared state."""

    _state: State


class HasState(Protocol):
    """Whatever `atomic` can decorate a method of."""

    _state: State


S = TypeVar("S", bound=HasState)


def atomic(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that runs alone, and leaves nothing behind when it raises; one with *within* joins that transaction."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        check(kwargs.get("now"), "now")
        within = kwargs.get("within")
        if within is None:
            return self._state.run(lambda: method(self, *args, **kwargs))
        return self._state.run(lambda: method(self, *args, **kwargs), within=within)

    return call
