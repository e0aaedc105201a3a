"""
What a person does to stored jobs: cancel, pause, resume, retry, reschedule, prioritize, replace, signal.

Each verb is one call of the store. The process that made the change tells its listeners, and stops
the run if it is its own. With *within*, the change is part of the caller's transaction: whether and when that is
committed is not known here, so nobody is told and nobody is woken. Nodes find the change when it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import (
    after,
    count_of,
    id_of,
    joining_transaction,
    moment_of,
    priority_of,
    text_of,
    within_ids,
)
from ratchet.api.observe.explanation import Explanation
from ratchet.api.observe.reasons import Reason
from ratchet.api.submit.sending import WAKE_AHEAD, announce_canceled, wake, with_retries
from ratchet.api.submit.steps import Step
from ratchet.model.composition import SignalSpec
from ratchet.model.durations import Duration
from ratchet.model.errors import InvalidJob, StoreError
from ratchet.model.events import (
    JobEvent,
    JobPaused,
    JobResumed,
    JobRetrying,
    JobsCanceled,
    JobSignaled,
    JobsRetried,
    facts_of,
)
from ratchet.model.job import JobFilter, JobRecord, JobSpec
from ratchet.model.payload import encode_value
from ratchet.model.status import JobStatus, Priority

logger = logging.getLogger("ratchet")

#: The reason, if a person canceled the job and gave none.
BY_REQUEST = "requested"
MOST = 1_000_000


class Controls:
    """Changes jobs by id or by filter, on behalf of a scheduler and its handles."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def _joined(self, within: object | None) -> object | None:
        """The caller's transaction: *within*, or else the one that the application's framework has open."""
        around = self._backend.surrounding
        return within if within is not None or around is None else around.current()

    def cancel(self, job_id: Any, reason: str = BY_REQUEST, *, within: object | None = None) -> bool:
        """Cancel a job and its dependants; False if it has ended."""
        within = self._joined(within)
        now = self._backend.now()
        canceled = self._backend.store.cancel(
            id_of(job_id),
            reason=self._backend.sanitized(text_of(reason, "the reason", limit=2000)),
            now=now,
            **joining_transaction(within),
        )
        if within is None:
            announce_canceled(self._backend, canceled, now)
        return bool(canceled)

    def cancel_matching(self, where: JobFilter, limit: int | None, *, within: object | None = None) -> int:
        """Cancel matching jobs, oldest first; how many matched and were canceled."""
        within = self._joined(within)
        _require_filter(where, "cancel_jobs")
        now = self._backend.now()
        canceled = self._backend.store.cancel_matching(
            within_ids(where), limit=_limit(limit), reason=BY_REQUEST, now=now, **joining_transaction(within)
        )
        if within is not None:
            return len(canceled)
        announce_canceled(self._backend, canceled, now)
        if canceled and self._backend.hears(JobsCanceled):
            self._backend.publish(JobsCanceled(filter=where, count=len(canceled), at=now))
        return len(canceled)

    def pause(self, job_id: Any, *, within: object | None = None) -> bool:
        """Take a PENDING or FAILED job out of the queue; True also if it was paused already."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        if within is not None:
            return self._backend.store.pause(identity, now=now, within=within)
        before = self._backend.store.get(identity) if self._backend.hears(JobPaused) else None
        paused = self._backend.store.pause(identity, now=now)
        if paused and before is not None and before.status is not JobStatus.PAUSED:
            self._publish(JobPaused, identity, now)
        return paused

    def resume(self, job_id: Any, *, within: object | None = None) -> bool:
        """Put a paused job back to where it was; False if it was not paused."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        resumed = self._backend.store.resume(identity, now=now, **joining_transaction(within))
        if resumed and within is None:
            wake(self._backend)
            self._publish(JobResumed, identity, now)
        return resumed

    def retry(self, job_id: Any, *, within: object | None = None) -> bool:
        """Run a FAILED job again, or one paused after it had failed, with all its attempts; False in another state."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        if within is not None:
            return self._backend.store.retry(identity, now=now, within=within)
        before = self._backend.store.get(identity) if self._backend.hears(JobRetrying) else None
        retried = self._backend.store.retry(identity, now=now)
        if retried:
            wake(self._backend)
            error = "" if before is None else before.error or ""
            self._publish(
                JobRetrying,
                identity,
                now,
                lambda record: {"error": error, "scheduled_at": record.scheduled_at},
            )
        return retried

    def retry_matching(self, where: JobFilter, limit: int | None, *, within: object | None = None) -> int:
        """Run matching FAILED jobs again, oldest first; how many."""
        within = self._joined(within)
        _require_filter(where, "retry_jobs")
        now = self._backend.now()
        retried = self._backend.store.retry_matching(
            within_ids(where), limit=_limit(limit), now=now, **joining_transaction(within)
        )
        if retried and within is None:
            wake(self._backend)
            if self._backend.hears(JobsRetried):
                self._backend.publish(JobsRetried(filter=where, count=len(retried), at=now))
        return len(retried)

    def reschedule(self, job_id: Any, at: datetime | Duration, *, within: object | None = None) -> bool:
        """Move the due time of a job that has not started."""
        within = self._joined(within)
        now = self._backend.now()
        moment = moment_of(at, "the new time") if isinstance(at, datetime) else after(now, at, "the delay")
        moved = self._backend.store.reschedule(id_of(job_id), moment, now=now, **joining_transaction(within))
        if moved and within is None and moment <= now + WAKE_AHEAD:
            wake(self._backend)
        return moved

    def set_priority(self, job_id: Any, priority: Priority, *, within: object | None = None) -> bool:
        """Give a job that has not started another priority."""
        now, chosen = self._backend.now(), priority_of(priority)
        changed = self._backend.store.set_priority(
            id_of(job_id), chosen, now=now, **joining_transaction(within)
        )
        if changed and within is None:
            self._backend.submitted((), due=True, priority=chosen)
        return changed

    def replace(
        self, job_id: Any, step: Step, due: datetime | Duration | None, *, within: object | None = None
    ) -> JobSpec | None:
        """Cancel a job that has not started and store another in its place, atomically; None if it had started."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        checked = step.checked(self._backend)
        checked.require_no_placeholders()
        if isinstance(due, datetime):
            at = moment_of(due, "the new job's time")
        else:
            at = now if due is None else after(now, due, "the delay")
        old = self._backend.store.get(identity)
        if old is None and within is not None:
            raise InvalidJob(
                f"job {identity} is not stored yet; one of the same transaction cannot be replaced, only canceled"
            )
        spec = checked.spec(
            step.identified(self._backend),
            now,
            scheduled_at=at,
            caller=self._backend.caller(),
            business_key=old.business_key if old is not None else None,
        )
        if within is not None:
            joined = self._backend.store.replace(identity, spec, now=now, within=within)
            return None if joined is None else spec
        canceled = with_retries(self._backend, lambda: self._backend.store.replace(identity, spec, now=now))
        if canceled is None:
            return None
        announce_canceled(self._backend, [canceled], now)
        self._backend.submitted([spec], due=at <= now + WAKE_AHEAD, priority=spec.priority)
        return spec

    def signal(
        self,
        key: str,
        payload: Any = None,
        *,
        job_id: Any = None,
        rejected: str | None = None,
        within: object | None = None,
    ) -> int:
        """Release the jobs that wait for *key*; how many."""
        within = self._joined(within)
        now = self._backend.now()
        signal = SignalSpec(
            signal_id=self._backend.ids(),
            key=text_of(key, "the key of a signal"),
            payload=None
            if payload is None
            else encode_value(payload, name="the payload", limit=self._backend.options.payload_limit),
            job_id=None if job_id is None else id_of(job_id),
            rejected=None if rejected is None else text_of(rejected, "the rejection's reason", limit=2000),
            keep_until=now + self._backend.options.signal_retention,
        )
        if within is not None:
            return len(self._backend.store.send_signal(signal, now=now, within=within))
        released = with_retries(self._backend, lambda: self._backend.store.send_signal(signal, now=now))
        if released:
            wake(self._backend)
            for identity in released if self._backend.hears(JobSignaled) else ():
                self._publish(
                    JobSignaled, identity, now, lambda _: {"key": signal.key, "rejected": signal.rejected}
                )
        return len(released)

    def explain(self, job_id: Any) -> list[Reason]:
        """Why a job is not running; empty when the next free node takes it."""
        return Explanation(self._backend, id_of(job_id)).reasons()

    def _publish(
        self,
        event: type[JobEvent],
        job_id: UUID,
        now: datetime,
        more: Callable[[JobRecord], dict[str, Any]] = lambda record: {},
    ) -> None:
        if not self._backend.hears(event):
            return
        try:
            record = self._backend.store.get(job_id)
        except StoreError as error:
            # What the caller asked for is stored: it must not look as if it had failed.
            logger.warning("nobody is told of the %s of job %s: %s", event.__name__, job_id, error)
            return
        if record is not None:
            self._backend.publish(event(**facts_of(record, record.status, now), **more(record)))


def _require_filter(where: object, verb: str) -> None:
    if not isinstance(where, JobFilter):
        raise InvalidJob(f"{verb} takes a JobFilter, not {where!r}")
    where.require_criterion(verb)


def _limit(limit: int | None) -> int:
    return MOST if limit is None else count_of(limit, "the limit", at_least=1, at_most=MOST)
