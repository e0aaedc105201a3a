"""`ControlVerbs`: what can be done with a job that is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.api.checks import id_of
from ratchet.api.controls import Controls
from ratchet.api.observe.handles import JobHandle
from ratchet.api.observe.reasons import Reason
from ratchet.api.submit.steps import Step
from ratchet.model.durations import Duration
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter
from ratchet.model.status import Priority
from ratchet.scheduler.core import Core


class ControlVerbs:
    """
    Signals, and changes to stored jobs. Each answer says whether this call made the change.

    *within*: your own open transaction, as ``submit(within=…)`` takes it. The change is made when and only when you
    commit; no event is published and no run is stopped before that.
    """

    _core: Core
    _controls: Controls

    def signal(
        self,
        key: str,
        payload: Any = None,
        *,
        job_id: UUID | str | None = None,
        rejected: str | None = None,
        within: object | None = None,
    ) -> int:
        """
        Release the jobs that wait for *key* (only *job_id*, if given); how many.

        *rejected* is a reason to say no: the job runs and sees ``ctx.signal.approved`` as False. A signal
        that released nobody is kept for a while, for the first job that waits for it.
        """
        return self._controls.signal(key, payload, job_id=job_id, rejected=rejected, within=within)

    def handle(self, job_id: UUID | str) -> JobHandle[Any]:
        """A handle for an id; whether such a job is stored shows when the handle is asked."""
        return JobHandle(self._core, id_of(job_id))

    def cancel_job(
        self, job_id: UUID | str, *, reason: str = "requested", within: object | None = None
    ) -> bool:
        """Cancel a job and what waits for it, also while it runs; False if it has ended."""
        return self._controls.cancel(job_id, reason, within=within)

    def pause_job(self, job_id: UUID | str, *, within: object | None = None) -> bool:
        """Take a PENDING or FAILED job out of the queue; True also if it was paused already."""
        return self._controls.pause(job_id, within=within)

    def resume_job(self, job_id: UUID | str, *, within: object | None = None) -> bool:
        """Put a paused job back to where it was; False if it was not paused."""
        return self._controls.resume(job_id, within=within)

    def retry_job(self, job_id: UUID | str, *, within: object | None = None) -> bool:
        """Run a FAILED job again, or one paused after it had failed, with all its attempts; False in another state."""
        return self._controls.retry(job_id, within=within)

    def retry_jobs(self, where: JobFilter, *, limit: int | None = None, within: object | None = None) -> int:
        """Run matching FAILED jobs again, oldest first; how many. An empty filter is refused."""
        return self._controls.retry_matching(where, limit, within=within)

    def cancel_jobs(self, where: JobFilter, *, limit: int | None = None, within: object | None = None) -> int:
        """Cancel matching jobs and what waits for them, oldest first; how many. An empty filter is refused."""
        return self._controls.cancel_matching(where, limit, within=within)

    def reschedule_job(
        self, job_id: UUID | str, at: datetime | Duration, *, within: object | None = None
    ) -> bool:
        """Move the due time of a job that has not started (a duration counts from now); False otherwise."""
        return self._controls.reschedule(job_id, at, within=within)

    def set_priority(self, job_id: UUID | str, priority: Priority, *, within: object | None = None) -> bool:
        """Give a PENDING, PAUSED or WAITING job another priority; False otherwise. A running job keeps its own."""
        return self._controls.set_priority(job_id, priority, within=within)

    def replace(
        self,
        job_id: UUID | str,
        target: Callable[..., Any],
        /,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | None = None,
        within: object | None = None,
        **kwargs: Any,
    ) -> JobHandle[Any] | None:
        """
        Cancel a job that has not started and store another in its place, atomically.

        The old job is CANCELED with ``superseded_by`` set, its business key passes on. None: it had
        started or ended, and nothing was changed.
        """
        if delay is not None and at is not None:
            raise InvalidJob("say when the new job is due with delay or with at, not with both")
        due = at if at is not None else delay
        spec = self._controls.replace(job_id, Step(target, args, kwargs), due, within=within)
        if spec is None:
            return None
        return JobHandle(self._core, spec.job_id, target=spec.target, uncommitted=within is not None)

    def explain(self, job_id: UUID | str) -> list[Reason]:
        """Why a job is not running; empty when it would be claimed now."""
        return self._controls.explain(job_id)
