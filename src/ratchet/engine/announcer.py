"""The announcer: what follows, in this process, from an answered completion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.events import EventBus
from ratchet.engine.run import Run, RunEnd
from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.clock import Clock
from ratchet.model.cluster import Rescue
from ratchet.model.composition import BatchRecord
from ratchet.model.decision import (
    CanceledJob,
    Completion,
    CompletionAnswer,
    Confirm,
    CountCrash,
    Fail,
    HandBack,
    Park,
    Reschedule,
    Retry,
    Settle,
    Succeed,
)
from ratchet.model.events import (
    BatchCompleted,
    JobCallbackFailed,
    JobCanceled,
    JobCompleted,
    JobDeadLettered,
    JobFailed,
    JobRescheduled,
    JobRescued,
    JobRetrying,
    JobStarted,
    JobTimedOut,
)
from ratchet.model.job import JobRecord
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.spi.fault_log import FaultLog

logger = logging.getLogger("ratchet.engine")
faults = FaultLog(logger)


#: Seconds between two lines about parked jobs of one target.
PARKED_LOG_INTERVAL = 60.0

# A union would be built again for every job.
_COMING_BACK = (Retry, Reschedule, HandBack, CountCrash)


class Reading(Protocol):
    """What the announcer may have to look up."""

    def get(self, job_id: UUID) -> JobRecord | None: ...

    def batch(self, batch_id: UUID) -> BatchRecord | None: ...


class Announcer:
    """Frees the run, publishes events, wakes the poller and whoever waits for results."""

    def __init__(
        self,
        *,
        bus: EventBus,
        coordinator: Coordinator,
        clock: Clock,
        store: Reading,
        wake: Callable[[], None],
        spread: Callable[[], None] = lambda: None,
        child_ended: Callable[[UUID], None] = lambda batch_id: None,
        notice: Callable[[Sequence[UUID]], None],
        alert: Callable[[JobDeadLettered], None] | None = None,
    ) -> None:
        self._bus = bus
        self._coordinator = coordinator
        self._clock = clock
        self._store = store
        self._wake = wake
        self._spread = spread
        self._child_ended = child_ended
        self._notice = notice
        self._alert = alert
        self.targets: set[str] = set()  # what this node has run
        self._parked: dict[str, tuple[float, int]] = {}  # by target: when it was logged, and jobs since then

    def started(self, run: Run) -> None:
        """A run's target is about to be called."""
        self.targets.add(run.target)
        if self._bus.has_listeners and self._bus.wants(JobStarted):
            self._bus.publish(JobStarted(**self._facts(run, JobStatus.RUNNING)))

    def _log_parked(self, run: Run, reason: str) -> None:
        """One line for each target and minute: a deploy may park thousands of jobs."""
        at = self._clock.monotonic()
        logged_at, more = self._parked.get(run.target, (at - PARKED_LOG_INTERVAL, 0))
        if at - logged_at < PARKED_LOG_INTERVAL:
            self._parked[run.target] = (logged_at, more + 1)
            return
        self._parked[run.target] = (at, 0)
        others = f" ({more} more jobs of this target were parked since the last such line)" if more else ""
        logger.warning(
            "job %s is parked until a node comes that can run it: %s%s", run.job_id, reason, others
        )

    def timed_out(self, run: Run) -> None:
        """A run has exceeded its timeout."""
        timeout = run.job.claim.timeout
        if timeout is not None and self._bus.wants(JobTimedOut):
            self._bus.publish(JobTimedOut(**self._facts(run, JobStatus.RUNNING), timeout=timeout))

    def answered(self, end: RunEnd) -> None:
        """What was decided about a run has been carried out."""
        run, decision, completion, answer = end.run, end.decision, end.completion, end.answer
        still_running = run.still_running and not isinstance(decision, Settle)
        self._coordinator.release(run, still_running=still_running)
        if run.job.claim.crashes >= SUSPECT_AFTER:
            self._wake()  # a node runs one suspect at a time: the next may start now
        if isinstance(decision, Settle):
            self._wake()  # its retry may have waited for the code to end
            self._spread()
        elif not still_running:
            self._permits_freed(run)
        if answer is None or completion is None:
            if isinstance(decision, Park):
                self._log_parked(run, decision.reason)
                self._spread()  # an idle node may be able to run it
            self._notice([run.job_id])
            return
        if not answer.won:
            logger.info(
                "job %s: this run no longer held it (canceled, rescued or finished elsewhere); its result is discarded",
                run.job_id,
            )
            return
        if run.batch_id is not None:
            self._child_ended(run.batch_id)
        self._publish(run, completion, answer)
        self.canceled(answer.canceled)
        self._batches(answer.finished_batches)
        self._notice([run.job_id])
        if answer.released or completion.callback is not None:
            self._wake()
            self._spread()
        elif _comes_back(completion) or isinstance(decision, Confirm):
            # A transaction of the job's own may have submitted others.
            self._wake()

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Jobs were canceled by this process: by a person, a cascade, expiry or a replacement."""
        for job in jobs:
            if job.previous is JobStatus.RUNNING:
                self._coordinator.cancel(job.job_id)
            self._notice([job.job_id])
            if not self._bus.wants(JobCanceled):
                continue
            facts = self._looked_up(job.job_id, job.target, job.status)
            if job.status is JobStatus.CANCELED:
                self._bus.publish(JobCanceled(**facts, previous=job.previous, reason=job.reason))

    def rescued(self, rescue: Rescue) -> None:
        """A dead node's work was taken back."""
        if self._bus.wants(JobRescued):
            for job_id in (*rescue.requeued, *rescue.suspects):
                facts = self._looked_up(job_id, "", JobStatus.PENDING)
                self._bus.publish(JobRescued(**facts, from_node=rescue.node_id))
        for job_id in rescue.dead_lettered:
            self._dead_lettered_elsewhere(job_id)
        self.canceled(rescue.canceled)
        self._wake()
        self._spread()  # this node may be full

    def _permits_freed(self, run: Run) -> None:
        """Jobs here or on other nodes may wait for what this run has held, and their nodes cannot know when it is free."""
        if run.job.body.resource is not None or run.job.body.limit_key is not None:
            self._wake()
            self._spread()

    def _dead_lettered_elsewhere(self, job_id: UUID) -> None:
        record = self._store.get(job_id)
        if record is None:
            return
        facts = self._looked_up(job_id, record.target, JobStatus.FAILED)
        event = JobDeadLettered(
            **facts,
            error=record.error or "",
            reason=record.dead_letter_reason or "",
            attempts=record.attempts,
        )
        self._bus.publish(event)
        self._tell_alert(event)
        self._notice([job_id])

    def _publish(self, run: Run, completion: Completion, answer: CompletionAnswer) -> None:
        match completion.decision:
            case Succeed():
                if self._bus.has_listeners and self._bus.wants(JobCompleted):
                    duration = run.elapsed(self._clock.monotonic())
                    self._bus.publish(
                        JobCompleted(**self._facts(run, JobStatus.SUCCEEDED), duration=duration)
                    )
            case Retry(at=at, error=error):
                facts = self._facts(run, JobStatus.PENDING)
                self._bus.publish(
                    JobFailed(**facts, error=error.message, error_type=error.type, will_retry=True)
                )
                self._bus.publish(JobRetrying(**facts, error=error.message, scheduled_at=at))
            case Fail() as failure:
                self._failed(run, failure, answer)
            case Reschedule(at=at, reason=reason):
                self._bus.publish(
                    JobRescheduled(**self._facts(run, JobStatus.PENDING), scheduled_at=at, reason=reason)
                )
            case CountCrash():
                if answer.dead_lettered:
                    self._dead_lettered_elsewhere(run.job_id)
            case HandBack():
                pass

    def _failed(self, run: Run, failure: Fail, answer: CompletionAnswer) -> None:
        facts = self._facts(run, JobStatus.FAILED)
        error = failure.error
        logger.error(
            "job %s (%s) is a dead letter: %s [%s]", run.job_id, run.target, error.message, failure.reason
        )
        self._bus.publish(JobFailed(**facts, error=error.message, error_type=error.type, will_retry=False))
        event = JobDeadLettered(
            **facts, error=error.message, reason=failure.reason, attempts=run.attempt, alerted=answer.alerted
        )
        self._bus.publish(event)
        if answer.alerted:
            self._tell_alert(event)
        if run.job.claim.type is JobType.CALLBACK:
            self._bus.publish(JobCallbackFailed(**facts, error=error.message, parent_id=run.parent_id))

    def _tell_alert(self, event: JobDeadLettered) -> None:
        if self._alert is None:
            return
        try:
            self._alert(event)
        except BaseException as error:
            faults.note("the alert function raised", error)

    def _batches(self, batch_ids: Sequence[UUID]) -> None:
        if not batch_ids or not self._bus.wants(BatchCompleted):
            return
        for batch_id in batch_ids:
            record = self._store.batch(batch_id)
            if record is None:
                continue
            self._bus.publish(
                BatchCompleted(
                    **self._looked_up(record.parent_id, record.name, JobStatus.PENDING),
                    batch_id=batch_id,
                    total_items=record.total,
                    completed_items=record.completed,
                    failed_items=record.failed,
                    canceled_items=record.canceled,
                )
            )

    def _facts(self, run: Run, status: JobStatus) -> dict[str, Any]:
        claim = run.job.claim
        return {
            "job_id": claim.job_id,
            "target": run.job.body.target,
            "status": status,
            "attempt": run.attempt,
            "priority": claim.priority,
            "business_key": run.job.body.business_key,
            "node_id": claim.node_id,
            "at": self._clock.now(),
        }

    def _looked_up(self, job_id: UUID, target: str, status: JobStatus) -> dict[str, Any]:
        record = self._store.get(job_id)
        return {
            "job_id": job_id,
            "target": target or (record.target if record is not None else ""),
            "status": status,
            "attempt": record.attempts if record is not None else 0,
            "priority": record.priority if record is not None else Priority.NORMAL,
            "business_key": record.business_key if record is not None else None,
            "node_id": record.node_id if record is not None else None,
            "at": self._clock.now(),
        }


def _comes_back(completion: Completion) -> bool:
    """True if the job waits in the queue again, perhaps due before the poller's next look."""
    return isinstance(completion.decision, _COMING_BACK)
