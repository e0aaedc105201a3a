"""
What a person does to stored jobs: cancel, pause, resume, retry, reschedule, prioritize, replace, signal.

Each verb is one call of the store. The process that made the change tells its listeners, and stops
the run if it is its own. With *within*, the change is part of the caller's transaction: whether and when that is
committed is not known here, so nobody is told and nobody is woken. Nodes find the change when it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.api.authorization import ASKED_AT_ONCE, Permitted, by_hand, require, require_submission
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
from ratchet.api.submit.tracing import producing_job
from ratchet.model.composition import SignalSpec
from ratchet.model.decision import CanceledJob
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
from ratchet.model.filters import both
from ratchet.model.job import JobFilter, JobRecord, JobSpec, Page
from ratchet.model.payload import encode_value
from ratchet.model.permissions import Permission
from ratchet.model.status import LIVE, JobStatus, Priority

logger = logging.getLogger("ratchet")

#: The reason, if a person canceled the job and gave none.
BY_REQUEST = "requested"
MOST = 1_000_000
FAILED = (JobStatus.FAILED,)


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
        identity, now = id_of(job_id), self._backend.now()
        said = self._backend.sanitized(text_of(reason, "the reason", limit=2000))
        with by_hand(self._backend, Permission.CANCEL, job_id=identity, reason=said, within=within):
            canceled = self._backend.store.cancel(
                identity, reason=said, now=now, **joining_transaction(within)
            )
        if within is None:
            announce_canceled(self._backend, canceled, now)
        return bool(canceled)

    def cancel_matching(self, where: JobFilter, limit: int | None, *, within: object | None = None) -> int:
        """Cancel matching jobs, oldest first; how many matched and were canceled."""
        within = self._joined(within)
        _require_filter(where, "cancel_jobs")
        wanted = within_ids(where)
        now = self._backend.now()
        canceled: list[CanceledJob] = []

        def cancel(some: JobFilter, most: int) -> int:
            found = self._backend.store.cancel_matching(
                some, limit=most, reason=BY_REQUEST, now=now, **joining_transaction(within)
            )
            canceled.extend(found)
            return len(found)

        self._change_many(Permission.CANCEL, wanted, LIVE, _limit(limit), cancel, within)
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
        wanted = within is None and self._backend.hears(JobPaused)
        before = self._backend.store.get(identity) if wanted else None
        with by_hand(self._backend, Permission.PAUSE, job_id=identity, within=within):
            paused = self._backend.store.pause(identity, now=now, **joining_transaction(within))
        if paused and before is not None and before.status is not JobStatus.PAUSED:
            self._publish(JobPaused, identity, now)
        return paused

    def resume(self, job_id: Any, *, within: object | None = None) -> bool:
        """Put a paused job back to where it was; False if it was not paused."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        with by_hand(self._backend, Permission.RESUME, job_id=identity, within=within):
            resumed = self._backend.store.resume(identity, now=now, **joining_transaction(within))
        if resumed and within is None:
            wake(self._backend)
            self._publish(JobResumed, identity, now)
        return resumed

    def retry(self, job_id: Any, *, within: object | None = None) -> bool:
        """Run a FAILED job again, or one paused after it had failed, with all its attempts; False in another state."""
        within = self._joined(within)
        identity, now = id_of(job_id), self._backend.now()
        wanted = within is None and self._backend.hears(JobRetrying)
        before = self._backend.store.get(identity) if wanted else None
        with by_hand(self._backend, Permission.RETRY, job_id=identity, within=within):
            retried = self._backend.store.retry(identity, now=now, **joining_transaction(within))
        if retried and within is None:
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
        wanted = within_ids(where)
        now = self._backend.now()

        def retry(some: JobFilter, most: int) -> int:
            return len(
                self._backend.store.retry_matching(some, limit=most, now=now, **joining_transaction(within))
            )

        retried = self._change_many(Permission.RETRY, wanted, FAILED, _limit(limit), retry, within)
        if retried and within is None:
            wake(self._backend)
            if self._backend.hears(JobsRetried):
                self._backend.publish(JobsRetried(filter=where, count=retried, at=now))
        return retried

    def _change_many(
        self,
        permission: Permission,
        where: JobFilter,
        statuses: Iterable[JobStatus],
        limit: int,
        change: Callable[[JobFilter, int], int],
        within: object | None,
    ) -> int:
        """Change what matches and is permitted; how many. Those that were left out are logged."""
        store = self._backend.store
        permitted = Permitted(self._backend, permission, where)
        searched = both(permitted.where, JobFilter(statuses=list(statuses)))

        def find(cursor: str | None) -> Page[JobRecord]:
            if searched is None:
                return Page([])
            return store.find(searched, limit=ASKED_AT_ONCE, cursor=cursor)

        with by_hand(self._backend, permission, where=where, within=within, asked=False):
            changed, left_out = permitted.change(find, change, limit)
        if left_out:
            logger.info(
                "%s: %d matching jobs were left out, the authorizer refuses them", permission, left_out
            )
        return changed

    def reschedule(self, job_id: Any, at: datetime | Duration, *, within: object | None = None) -> bool:
        """Move the due time of a job that has not started."""
        within = self._joined(within)
        now = self._backend.now()
        moment = moment_of(at, "the new time") if isinstance(at, datetime) else after(now, at, "the delay")
        identity, to = id_of(job_id), f"to {moment.isoformat()}"
        with by_hand(self._backend, Permission.RESCHEDULE, job_id=identity, reason=to, within=within):
            moved = self._backend.store.reschedule(identity, moment, now=now, **joining_transaction(within))
        if moved and within is None and moment <= now + WAKE_AHEAD:
            wake(self._backend)
        return moved

    def set_priority(self, job_id: Any, priority: Priority, *, within: object | None = None) -> bool:
        """Give a job that has not started another priority."""
        identity, now, chosen = id_of(job_id), self._backend.now(), priority_of(priority)
        to = f"to {chosen.name}"
        with by_hand(self._backend, Permission.SET_PRIORITY, job_id=identity, reason=to, within=within):
            changed = self._backend.store.set_priority(
                identity, chosen, now=now, **joining_transaction(within)
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
        require_submission(self._backend, [spec], within)
        tracer = self._backend.tracer
        if tracer is None:
            return self._put_in_place(identity, spec, now, within)
        with producing_job(tracer, spec, now) as followed:
            return self._put_in_place(identity, followed, now, within)

    def _put_in_place(
        self, identity: UUID, spec: JobSpec, now: datetime, within: object | None
    ) -> JobSpec | None:
        by = f"by {spec.job_id}"
        with by_hand(self._backend, Permission.REPLACE, job_id=identity, reason=by, within=within):
            if within is not None:
                joined = self._backend.store.replace(identity, spec, now=now, within=within)
                return None if joined is None else spec
            canceled = with_retries(
                self._backend, lambda: self._backend.store.replace(identity, spec, now=now)
            )
        if canceled is None:
            return None
        announce_canceled(self._backend, [canceled], now)
        self._backend.submitted([spec], due=spec.scheduled_at <= now + WAKE_AHEAD, priority=spec.priority)
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
        with by_hand(
            self._backend,
            Permission.SIGNAL,
            job_id=signal.job_id,
            about=f"signal:{signal.key}",
            reason=signal.rejected,
            within=within,
            many=True,
            certain=True,  # one that releases nobody is kept
        ):
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
        identity = id_of(job_id)
        require(self._backend, Permission.VIEW, "explain", job_id=identity)
        return Explanation(self._backend, identity).reasons()

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
