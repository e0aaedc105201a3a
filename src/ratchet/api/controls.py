"""
What a person does to stored jobs: cancel, pause, resume, retry, reschedule, replace, signal.

Each verb is one call of the store. The process that made the change tells its listeners, and stops
the run if it is its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import after, count_of, id_of, moment_of, text_of
from ratchet.api.observe.reasons import Reason
from ratchet.api.submit.sending import WAKE_AHEAD, announce_canceled, wake, with_retries
from ratchet.api.submit.steps import Step
from ratchet.api.targets import TargetRegistry
from ratchet.model.cluster import NodeState
from ratchet.model.composition import SignalSpec
from ratchet.model.durations import Duration
from ratchet.model.errors import InvalidJob
from ratchet.model.events import JobEvent, JobPaused, JobResumed
from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.payload import encode_value
from ratchet.model.status import JobStatus

#: The reason, if a person canceled the job and gave none.
BY_REQUEST = "requested"
MOST = 1_000_000
#: Nodes that a reason names.
NAMED_NODES = 3


class Controls:
    """Changes jobs by id or by filter, on behalf of a scheduler and its handles."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def cancel(self, job_id: Any, reason: str = BY_REQUEST) -> bool:
        """Cancel a job and its dependants; False if it has ended."""
        now = self._backend.now()
        canceled = self._backend.store.cancel(
            id_of(job_id), reason=self._backend.sanitized(text_of(reason, "the reason", limit=2000)), now=now
        )
        announce_canceled(self._backend, canceled, now)
        return bool(canceled)

    def cancel_matching(self, where: JobFilter, limit: int | None) -> int:
        """Cancel matching jobs, oldest first; how many matched and were canceled."""
        _require_filter(where, "cancel_jobs")
        now = self._backend.now()
        canceled = self._backend.store.cancel_matching(where, limit=_limit(limit), reason=BY_REQUEST, now=now)
        announce_canceled(self._backend, canceled, now)
        return len(canceled)

    def pause(self, job_id: Any) -> bool:
        """Take a PENDING or FAILED job out of the queue; True also if it was paused already."""
        identity, now = id_of(job_id), self._backend.now()
        before = self._backend.store.get(identity) if self._backend.hears(JobPaused) else None
        paused = self._backend.store.pause(identity, now=now)
        if paused and before is not None and before.status is not JobStatus.PAUSED:
            self._publish(JobPaused, identity, now)
        return paused

    def resume(self, job_id: Any) -> bool:
        """Put a paused job back to where it was; False if it was not paused."""
        identity, now = id_of(job_id), self._backend.now()
        resumed = self._backend.store.resume(identity, now=now)
        if resumed:
            wake(self._backend)
            self._publish(JobResumed, identity, now)
        return resumed

    def retry(self, job_id: Any) -> bool:
        """Run a FAILED job again, with all its attempts; False if it is in another state."""
        retried = self._backend.store.retry(id_of(job_id), now=self._backend.now())
        if retried:
            wake(self._backend)
        return retried

    def retry_matching(self, where: JobFilter, limit: int | None) -> int:
        """Run matching FAILED jobs again, oldest first; how many."""
        _require_filter(where, "retry_jobs")
        retried = self._backend.store.retry_matching(where, limit=_limit(limit), now=self._backend.now())
        if retried:
            wake(self._backend)
        return len(retried)

    def reschedule(self, job_id: Any, at: datetime | Duration) -> bool:
        """Move the due time of a job that has not started."""
        now = self._backend.now()
        moment = moment_of(at, "the new time") if isinstance(at, datetime) else after(now, at, "the delay")
        moved = self._backend.store.reschedule(id_of(job_id), moment, now=now)
        if moved and moment <= now + WAKE_AHEAD:
            wake(self._backend)
        return moved

    def replace(self, job_id: Any, step: Step, due: datetime | Duration | None) -> JobSpec | None:
        """Cancel a job that has not started and store another in its place, atomically; None if it had started."""
        identity, now = id_of(job_id), self._backend.now()
        checked = step.checked(self._backend)
        checked.require_no_placeholders()
        if isinstance(due, datetime):
            at = moment_of(due, "the new job's time")
        else:
            at = now if due is None else after(now, due, "the delay")
        old = self._backend.store.get(identity)
        spec = checked.spec(
            step.identified(self._backend),
            now,
            scheduled_at=at,
            caller=self._backend.caller(),
            business_key=old.business_key if old is not None else None,
        )
        canceled = with_retries(self._backend, lambda: self._backend.store.replace(identity, spec, now=now))
        if canceled is None:
            return None
        announce_canceled(self._backend, [canceled], now)
        self._backend.submitted([spec], due=at <= now + WAKE_AHEAD, priority=spec.priority)
        return spec

    def signal(
        self, key: str, payload: Any = None, *, job_id: Any = None, rejected: str | None = None
    ) -> int:
        """Release the jobs that wait for *key*; how many."""
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
        released = with_retries(self._backend, lambda: self._backend.store.send_signal(signal, now=now))
        if released:
            wake(self._backend)
        return len(released)

    def explain(self, job_id: Any) -> list[Reason]:
        """Why a job is not running; empty when it would be claimed now."""
        found = self._backend.store.explain(id_of(job_id), now=self._backend.now())
        return [self._in_full(Reason(*reason), job_id) for reason in found]

    def _in_full(self, reason: Reason, job_id: Any) -> Reason:
        """*reason*; for a parked job also what this process lacks, and which nodes run without its function."""
        if reason.code != "parked" or (job := self._backend.store.get(id_of(job_id))) is None:
            return reason
        targets, text = self._backend.targets, reason.text
        # A process without code of the application, such as a command with nothing but a URL, lacks everything.
        if isinstance(targets, TargetRegistry) and targets.declared_names:
            lack = targets.lack(job.target)
            text += "" if lack is None else f". This process lacks it: {lack}"
        without = [
            node.node_id
            for node in self._backend.store.nodes(counting=False)
            if node.state is NodeState.ACTIVE and job.target not in node.about.targets
        ]
        if without:
            named = ", ".join(without[:NAMED_NODES]) + (" and others" if len(without) > NAMED_NODES else "")
            text += f". Nodes that have neither declared nor run it: {named}"
        return reason._replace(text=text)

    def _publish(self, event: type[JobEvent], job_id: UUID, now: datetime) -> None:
        if not self._backend.hears(event) or (record := self._backend.store.get(job_id)) is None:
            return
        self._backend.publish(
            event(
                job_id=job_id,
                target=record.target,
                status=record.status,
                attempt=record.attempts,
                priority=record.priority,
                business_key=record.business_key,
                node_id=record.node_id,
                at=now,
            )
        )


def _require_filter(where: object, verb: str) -> None:
    if not isinstance(where, JobFilter):
        raise InvalidJob(f"{verb} takes a JobFilter, not {where!r}")
    where.require_criterion(verb)


def _limit(limit: int | None) -> int:
    return MOST if limit is None else count_of(limit, "the limit", at_least=1, at_most=MOST)
