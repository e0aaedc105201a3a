"""`BatchHandle`: a stored batch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ratchet.api.authorization import Permitted, by_hand, require
from ratchet.api.backend import Backend
from ratchet.api.checks import joining_transaction, text_of
from ratchet.api.event_loops import refuse_on_event_loop
from ratchet.api.observe.handles import JobHandle
from ratchet.api.observe.records import batch_context, job_of
from ratchet.api.submit.sending import announce_canceled, wake
from ratchet.model.composition import BatchMetrics, BatchRecord
from ratchet.model.durations import Duration
from ratchet.model.errors import JobNotFound
from ratchet.model.job import Job, JobFilter, JobRecord, Page
from ratchet.model.payload import decode_result, truncation
from ratchet.model.permissions import Permission
from ratchet.model.results import BatchContext
from ratchet.model.status import JobStatus, JobType

if TYPE_CHECKING:
    from ratchet.api.observe.async_handles import AsyncBatchHandle

_PAGE = 500


class BatchHandle:
    """A batch by its id: its counters, its items, and how to wait for its end."""

    __slots__ = ("_backend", "id", "name")

    def __init__(self, backend: Backend, batch_id: UUID, name: str) -> None:
        #: The batch's id.
        self.id = batch_id
        #: What it was called.
        self.name = name
        self._backend = backend

    def __repr__(self) -> str:
        return f"BatchHandle({self.name!r}, {self.id})"

    def context(self) -> BatchContext:
        """The counters as they are now."""
        require(self._backend, Permission.LIST, about=f"batch:{self.id}")
        return batch_context(self._record())

    def wait(self, timeout: Duration | None = None) -> BatchContext:
        """The counters, once every item has ended and the batch is complete; `TimeoutError` after *timeout*."""
        if not self._backend.driven_by_hand:
            refuse_on_event_loop()
        self.parent.wait(timeout)
        return self.context()

    @property
    def parent(self) -> JobHandle[Any]:
        """The job that waits for all items; what follows the batch follows this job."""
        return JobHandle(self._backend, self._record().parent_id)

    def cancel(self, reason: str = "requested", *, within: object | None = None) -> bool:
        """
        Cancel every item that has not ended, and the batch; False if it had ended.

        *within*: in your transaction, all of it. A streaming batch that still gets items is refused there (`InvalidJob`).
        """
        now = self._backend.now()
        said = self._backend.sanitized(text_of(reason, "the reason", limit=2000))
        with self._by_hand("cancel", said, within):
            canceled = self._backend.store.cancel_batch(
                self.id, reason=said, now=now, **joining_transaction(within)
            )
        if within is None:
            announce_canceled(self._backend, canceled, now)
        return bool(canceled)

    def retry_failed(self, *, within: object | None = None) -> int:
        """Run every FAILED item again; how many. A finished batch is open again until they have ended."""
        with self._by_hand("retry", None, within):
            count = self._backend.store.retry_failed(
                self.id, now=self._backend.now(), **joining_transaction(within)
            )
        if count and within is None:
            wake(self._backend)
        return count

    def jobs(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """One page of the items that match, newest first."""
        import dataclasses

        criteria = dataclasses.replace(where or JobFilter(), batch_id=self.id, types=[JobType.BATCH_CHILD])
        store, permitted = self._backend.store, Permitted(self._backend, Permission.VIEW, criteria)
        page = permitted.page(
            lambda most, after: store.find(permitted.where, limit=most, cursor=after), limit, cursor
        )
        return Page([job_of(record, self._backend) for record in page], page.next_cursor)

    def _by_hand(self, verb: str, reason: str | None, within: object | None) -> AbstractContextManager[None]:
        """Around a change of the batch; the authorizer is asked about the job that waits for all items."""
        backend = self._backend
        job = None
        if backend.authorizer is not None:
            batch = backend.store.batch(self.id)
            parent = None if batch is None else backend.store.get(batch.parent_id)
            job = None if parent is None else job_of(parent, backend)
        return by_hand(
            backend,
            Permission.BATCHES,
            verb,
            job=job,
            about=f"batch:{self.id}",
            reason=reason,
            within=within,
            many=True,
        )

    def results(self) -> list[Any]:
        """
        What the items that succeeded returned, in the order of the items.

        Raises `ResultTruncated` if one of the results was too large to keep.
        """
        where = JobFilter(
            batch_id=self.id,
            types=[JobType.BATCH_CHILD],
            statuses=[JobStatus.SUCCEEDED],
            include_archived=True,
        )
        store, permitted = self._backend.store, Permitted(self._backend, Permission.VIEW, where)
        if permitted.is_empty:
            return []
        records = permitted.each(lambda cursor: store.find(permitted.where, limit=_PAGE, cursor=cursor))
        found = [(record.job_id, self._result(record)) for record in records]
        return [value for _, value in sorted(found, key=lambda pair: pair[0])]

    def _result(self, record: JobRecord) -> Any:
        if record.result_truncated:
            raise truncation(record.job_id, record.result, self._backend.options.result_limit)
        return decode_result(record.result, allow_type=self._backend.allow_type)

    def metrics(self) -> BatchMetrics | None:
        """What the batch cost: run time and number of runs."""
        require(self._backend, Permission.LIST, about=f"batch:{self.id}")
        return self._backend.store.batch_metrics(self.id)

    def record(self) -> BatchRecord:
        """Everything that is stored of the batch itself; `JobNotFound` if it is gone."""
        require(self._backend, Permission.LIST, about=f"batch:{self.id}")
        return self._record()

    def _record(self) -> BatchRecord:
        record = self._backend.store.batch(self.id)
        if record is None:
            raise JobNotFound(self.id)
        return record

    @property
    def aio(self) -> AsyncBatchHandle:
        """The same verbs, awaitable."""
        from ratchet.api.observe.async_handles import AsyncBatchHandle

        return AsyncBatchHandle(self)
