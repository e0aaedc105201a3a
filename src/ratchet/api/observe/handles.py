"""`JobHandle`: what ``submit()`` returns, to ask about a job and to wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.controls import Controls
from ratchet.api.observe.graphs import JobGraph
from ratchet.api.observe.reasons import Reason
from ratchet.api.observe.records import job_of
from ratchet.api.threads import in_thread
from ratchet.model.callbacks import plain_target
from ratchet.model.durations import Duration, format_duration, to_timedelta
from ratchet.model.errors import JobCanceledError, JobFailedError, JobNotFound, RatchetError
from ratchet.model.job import Job, JobResultRow, Progress
from ratchet.model.payload import ParameterTypes, decode_result, truncation
from ratchet.model.permissions import Permission
from ratchet.model.status import JobStatus, JobType, Priority

if TYPE_CHECKING:
    from ratchet.api.observe.async_handles import AsyncJobHandle

R = TypeVar("R")

_TRUNK = frozenset({JobType.CHAIN_STEP, JobType.WORKFLOW_JOIN, JobType.BATCH_PARENT})


class JobHandle(Generic[R]):
    """
    A job by its id: ask for its state, wait for its result, cancel it.

    A handle keeps nothing: every question goes to the store, and handles of one job are equal.
    """

    __slots__ = ("_backend", "_last", "_steps", "_target", "_uncommitted", "duplicate", "id")

    def __init__(
        self,
        backend: Backend,
        job_id: UUID,
        *,
        target: str | None = None,
        duplicate: bool = False,
        steps: Sequence[UUID] | None = None,
        last: UUID | None = None,
        uncommitted: bool = False,
    ) -> None:
        #: The job's id, a UUIDv7.
        self.id = job_id
        #: True if a key named an older job, so that nothing was stored.
        self.duplicate = duplicate
        self._backend = backend
        self._target = target
        self._steps = steps
        self._last = last
        self._uncommitted = uncommitted  # it was submitted in a transaction that somebody else commits

    def __repr__(self) -> str:
        return f"JobHandle({self.id}{', duplicate=True' if self.duplicate else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # --- asking ---

    def status(self) -> JobStatus:
        """Where the job is now; `JobNotFound` if no such job is stored."""
        self._require_view()
        row = self._backend.store.results([self.id]).get(self.id)
        if row is None:
            raise JobNotFound(self.id)
        return row.status

    def job(self) -> Job:
        """Everything that is known about the job; `JobNotFound` if no such job is stored."""
        self._require_view()
        record = self._backend.store.get(self.id)
        if record is None:
            raise JobNotFound(self.id)
        return job_of(record, self._backend)

    def progress(self) -> Progress | None:
        """How far the job says it is; None if it never said."""
        return self.job().progress

    def explain(self) -> list[Reason]:
        """Why the job is not running; empty when it would be claimed now."""
        return Controls(self._backend).explain(self.id)

    def graph(self) -> JobGraph:
        """The jobs that were submitted with this one, and what waits for what."""
        return JobGraph(self._backend.store.graph(self.job().root_id or self.id))

    @property
    def steps(self) -> list[JobHandle[Any]]:
        """The jobs of this submission in the order they were named; of a single job, itself."""
        ids = self._steps if self._steps is not None else [node.job_id for node in self._graph_or_empty()]
        return [self._sibling(job_id) for job_id in ids or [self.id]]

    @property
    def last(self) -> JobHandle[Any]:
        """The last step of the chain; of a single job, itself."""
        if self._last is not None:
            return self._sibling(self._last)
        trunk = [node.job_id for node in self._graph_or_empty() if node.type in _TRUNK]
        return JobHandle(self._backend, trunk[-1]) if trunk else self

    def _sibling(self, job_id: UUID) -> JobHandle[Any]:
        """A handle of a job that was submitted with this one."""
        return JobHandle(self._backend, job_id, uncommitted=self._uncommitted)

    def _graph_or_empty(self) -> JobGraph | tuple[()]:
        try:
            return self.graph()
        except JobNotFound:
            return ()

    # --- waiting ---

    def wait(self, timeout: Duration | None = None) -> JobStatus:
        """The job's final state, once it has ended; `JobNotFound` and `TimeoutError` as in `result`."""
        return self._ended(self._wait(timeout), timeout).status

    def result(self, timeout: Duration | None = None) -> R:
        """
        What the job returned, once it has ended.

        Raises `JobFailedError`, `JobCanceledError`, or `TimeoutError` after *timeout*; `JobNotFound`
        if the job was deleted or purged, or cannot be seen for five seconds. A job that this process
        has submitted in a transaction (``within=``) counts as pending until that is committed, however
        long it takes. A result that was too large to keep raises `ResultTruncated`;
        ``handle.job().result`` is its beginning.
        """
        return self._outcome(self._ended(self._wait(timeout), timeout))

    def _require_view(self) -> None:
        """`NotAuthorized` unless this job may be read."""
        if self._backend.authorizer is not None:
            from ratchet.api.authorization import require

            require(self._backend, Permission.VIEW, job_id=self.id)

    def _wait(self, timeout: Duration | None) -> JobResultRow | None:
        self._require_view()
        return self._backend.wait_for(self.id, seconds_of(timeout), uncommitted=self._uncommitted)

    async def _await_end(self, timeout: Duration | None) -> JobResultRow | None:
        if self._backend.authorizer is not None:
            await in_thread(self._require_view)
        return await self._backend.await_end(self.id, seconds_of(timeout), uncommitted=self._uncommitted)

    def _ended(self, row: JobResultRow | None, timeout: Duration | None) -> JobResultRow:
        if row is not None:
            return row
        now = self._backend.store.results([self.id]).get(self.id)
        if now is None and not self._uncommitted:
            raise JobNotFound(self.id)
        state = (
            f"is {now.status}"
            if now is not None
            else "is not visible: the transaction it was submitted in has not been committed"
        )
        waited = format_duration(to_timedelta(timeout or 0, "the timeout"))
        raise TimeoutError(
            f"job {self.id} has not ended after {waited}; it {state}. handle.explain() says why"
        )

    def _outcome(self, row: JobResultRow) -> R:
        if row.status is JobStatus.FAILED:
            raise JobFailedError(self.id, row.error, row.error_type)
        if row.status is JobStatus.CANCELED:
            raise JobCanceledError(self.id, row.canceled_reason)
        if row.result_truncated:
            raise truncation(self.id, row.result, self._backend.options.result_limit)
        types = self._result_types(row)
        return cast(R, decode_result(row.result, types, allow_type=self._backend.allow_type))

    def _result_types(self, row: JobResultRow) -> ParameterTypes | None:
        """The annotations of the target, if the result holds something that is not plain JSON."""
        if row.result is None or '"$"' not in row.result:
            return None
        record = self._backend.store.get(self.id) if self._target is None else None
        target = self._target if record is None else record.target
        if target is None:
            return None
        try:
            return self._backend.targets.resolve(plain_target(target)).parameters
        except RatchetError:
            return None  # not a target of this process: only the policy decides what may be restored

    # --- changing ---

    def cancel(self, reason: str = "requested", *, within: object | None = None) -> bool:
        """Cancel the job and what waits for it; False if it has ended."""
        return Controls(self._backend).cancel(self.id, reason, within=within)

    def pause(self, *, within: object | None = None) -> bool:
        """Take the job out of the queue until `resume`; False unless it is PENDING, FAILED or PAUSED."""
        return Controls(self._backend).pause(self.id, within=within)

    def resume(self, *, within: object | None = None) -> bool:
        """Put the paused job back to where it was; False if it was not paused."""
        return Controls(self._backend).resume(self.id, within=within)

    def retry(self, *, within: object | None = None) -> bool:
        """Run the FAILED job again, with all its attempts; False if it is in another state."""
        return Controls(self._backend).retry(self.id, within=within)

    def set_priority(self, priority: Priority, *, within: object | None = None) -> bool:
        """Give the job another priority; False unless it is PENDING, PAUSED or WAITING."""
        return Controls(self._backend).set_priority(self.id, priority, within=within)

    @property
    def aio(self) -> AsyncJobHandle[R]:
        """The same verbs, awaitable."""
        from ratchet.api.observe.async_handles import AsyncJobHandle

        return AsyncJobHandle(self)


def seconds_of(timeout: Duration | None) -> float | None:
    """A timeout in seconds; None: for ever."""
    return None if timeout is None else to_timedelta(timeout, "the timeout").total_seconds()
