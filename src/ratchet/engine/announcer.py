"""The announcer: what follows, in this process, from an answered completion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import UUID

from ratchet.engine.activity import Activity
from ratchet.engine.coordinator import Coordinator
from ratchet.engine.events import EventBus
from ratchet.engine.job_lines import JobLines, each_job
from ratchet.engine.run import Run, RunEnd
from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.clock import Clock
from ratchet.model.cluster import NodeRecord, NodeSpec, Rescue
from ratchet.model.composition import BatchRecord
from ratchet.model.decision import (
    SIGNAL_TIMEOUT,
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
    VerdictKind,
)
from ratchet.model.events import (
    BatchCompleted,
    BatchProgressed,
    BranchTaken,
    JobCallbackFailed,
    JobCanceled,
    JobCompleted,
    JobDeadLettered,
    JobFailed,
    JobRescheduled,
    JobRescued,
    JobRetrying,
    JobSignalTimedOut,
    JobStarted,
    JobTimedOut,
    NodeJoined,
    NodeLost,
    facts_of,
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
#: What is due again at once: other nodes may be free, and this one may be leaving.
_HANDED_BACK = (HandBack, CountCrash)


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
        is_open: Callable[[], bool] = lambda: True,
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
        self._is_open = is_open
        self.activity = Activity()
        self._lines = JobLines()
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
        if timeout is not None:
            self._lines.timed_out(run, timeout)
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
                self.activity.parked += 1
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
        elif _comes_back(completion):
            self._wake()
            if isinstance(decision, _HANDED_BACK) or not self._is_open():
                # A node that leaves does not look for the retry itself, and others do not know when it is due.
                self._spread()
        elif isinstance(decision, Confirm):
            # A transaction of the job's own may have submitted others.
            self._wake()

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Jobs were canceled by this process: by a person, a cascade, expiry or a replacement."""
        for job in jobs:
            if job.previous is JobStatus.RUNNING:
                self._coordinator.cancel(job.job_id)
            self._notice([job.job_id])
            if job.status is JobStatus.FAILED:
                self._failed_without_run(job.job_id, alerted=job.alerted, cause=job.reason, target=job.target)
            elif self._bus.wants(JobCanceled):
                facts = self._looked_up(job.job_id, job.target, job.status)
                self._bus.publish(JobCanceled(**facts, previous=job.previous, reason=job.reason))

    def lost(self, rescue: Rescue, by: str) -> None:
        """The node *by*, which is this one, has declared another node dead."""
        if self._bus.wants(NodeLost):
            self._bus.publish(
                NodeLost(
                    node_id=rescue.node_id,
                    by=by,
                    at=self._clock.now(),
                    requeued=len(rescue.requeued),
                    suspects=len(rescue.suspects),
                    dead_lettered=len(rescue.dead_lettered),
                )
            )

    def rescued(self, rescue: Rescue) -> None:
        """A dead node's work was taken back."""
        if self._bus.wants(JobRescued):
            for job_id in (*rescue.requeued, *rescue.suspects):
                facts = self._looked_up(job_id, "", JobStatus.PENDING)
                self._bus.publish(JobRescued(**facts, from_node=rescue.node_id))
        for job_id in rescue.dead_lettered:
            self._failed_without_run(job_id, alerted=job_id in rescue.alerted)
            self._notice([job_id])
        self.canceled(rescue.canceled)
        self._wake()
        self._spread()  # this node may be full

    def joined(self, node: NodeSpec | NodeRecord, replaces: str | None = None) -> None:
        """A node is in the cluster now: this one, or another that was not seen before."""
        if self._bus.wants(NodeJoined):
            self._bus.publish(
                NodeJoined(
                    node_id=node.node_id,
                    name=node.name,
                    host=node.host,
                    pid=node.pid,
                    version=node.version,
                    at=self._clock.now(),
                    replaces=replaces,
                )
            )

    def _permits_freed(self, run: Run) -> None:
        """Jobs here or on other nodes may wait for what this run has held, and their nodes cannot know when it is free."""
        if run.job.body.resource is not None or run.job.body.limit_key is not None:
            self._wake()
            self._spread()

    def _failed_without_run(self, job_id: UUID, *, alerted: bool, cause: str = "", target: str = "") -> None:
        """The store has made a dead letter of a job whose code did not fail: no signal, no condition, no node."""
        tells_alert = alerted and self._alert is not None
        if cause and not (tells_alert or self._bus.has_listeners):
            self._lines.ended_without_run(
                job_id, target, cause, alerted=alerted
            )  # all that can be said without reading it
            return
        record = self._store.get(job_id)
        if record is None:
            return
        facts = facts_of(record, JobStatus.FAILED, self._clock.now())
        error = record.error or ""
        if cause == SIGNAL_TIMEOUT:
            self._bus.publish(JobSignalTimedOut(**facts, key=record.signal_key))
        self._bus.publish(JobFailed(**facts, error=error, error_type=record.error_type, will_retry=False))
        event = JobDeadLettered(
            **facts,
            error=error,
            reason=record.dead_letter_reason or "",
            attempts=record.attempts,
            alerted=alerted,
            error_type=record.error_type,
        )
        self._lines.dead_letter_without_run(event)
        self._bus.publish(event)
        if tells_alert:
            self._tell_alert(event)
        if record.type is JobType.CALLBACK:
            self._bus.publish(JobCallbackFailed(**facts, error=error, parent_id=record.parent_id))

    def _publish(self, run: Run, completion: Completion, answer: CompletionAnswer) -> None:
        match completion.decision:
            case Succeed():
                self.activity.succeeded += 1
                if each_job.isEnabledFor(logging.DEBUG):
                    self._lines.succeeded(run, run.elapsed(self._clock.monotonic()))
                if self._bus.has_listeners and self._bus.wants(JobCompleted):
                    duration = run.elapsed(self._clock.monotonic())
                    self._bus.publish(
                        JobCompleted(**self._facts(run, JobStatus.SUCCEEDED), duration=duration)
                    )
            case Retry(at=at, error=error):
                self.activity.retried += 1
                self._lines.retried(run, error, at, completion.finished_at or self._clock.now())
                if self._bus.has_listeners:
                    facts = self._facts(run, JobStatus.PENDING)
                    self._bus.publish(
                        JobFailed(**facts, error=error.message, error_type=error.type, will_retry=True)
                    )
                    self._bus.publish(JobRetrying(**facts, error=error.message, scheduled_at=at))
            case Fail() as failure:
                self.activity.dead_lettered += 1
                self._failed(run, failure, answer)
            case Reschedule(at=at, reason=reason):
                self.activity.postponed += 1
                if self._bus.wants(JobRescheduled):
                    self._bus.publish(
                        JobRescheduled(**self._facts(run, JobStatus.PENDING), scheduled_at=at, reason=reason)
                    )
            case CountCrash(detail=detail):
                if answer.dead_lettered:
                    self.activity.dead_lettered += 1
                    self._failed_without_run(run.job_id, alerted=answer.alerted)
                else:
                    self.activity.retried += 1
                    self._lines.crashed(run, detail)
            case HandBack():
                self.activity.handed_back += 1
        if (completion.verdicts or answer.released) and self._bus.wants(BranchTaken):
            self._branches(run, completion, answer)

    def _branches(self, run: Run, completion: Completion, answer: CompletionAnswer) -> None:
        taken = [verdict.child_id for verdict in completion.verdicts if verdict.kind is VerdictKind.TAKEN]
        status = JobStatus.SUCCEEDED
        if isinstance(completion.decision, Fail):
            status = JobStatus.FAILED
            # A branch for failures has no condition to ask.
            records = [self._store.get(job_id) for job_id in answer.released if job_id not in taken]
            taken += [one.job_id for one in records if one and one.type is JobType.WORKFLOW_BRANCH]
        for branch_id in taken:
            self._bus.publish(BranchTaken(**self._facts(run, status), branch_id=branch_id))

    def _failed(self, run: Run, failure: Fail, answer: CompletionAnswer) -> None:
        error = failure.error
        self._lines.dead_letter(run, error, failure.reason, alerted=answer.alerted)
        tells_alert = answer.alerted and self._alert is not None
        if not (tells_alert or self._bus.has_listeners):
            return
        facts = self._facts(run, JobStatus.FAILED)
        self._bus.publish(JobFailed(**facts, error=error.message, error_type=error.type, will_retry=False))
        event = JobDeadLettered(
            **facts,
            error=error.message,
            reason=failure.reason,
            attempts=run.attempt,
            alerted=answer.alerted,
            error_type=error.type,
        )
        self._bus.publish(event)
        if tells_alert:
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
            self._publish_batch(BatchCompleted, record)

    def batch_progressed(self, record: BatchRecord) -> None:
        """Children of a batch have ended, some of them here; not called more than once a second."""
        if self._bus.wants(BatchProgressed):
            self._publish_batch(BatchProgressed, record)

    def _publish_batch(self, event: type[BatchCompleted | BatchProgressed], record: BatchRecord) -> None:
        status = JobStatus.PENDING if record.finished_at is not None else JobStatus.WAITING
        self._bus.publish(
            event(
                **self._looked_up(record.parent_id, record.name, status),
                batch_id=record.batch_id,
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
            "type": claim.type,
            "schedule": run.job.body.schedule,
        }

    def _looked_up(self, job_id: UUID, target: str, status: JobStatus) -> dict[str, Any]:
        record, at = self._store.get(job_id), self._clock.now()
        if record is not None:
            return facts_of(record, status, at) | ({"target": target} if target else {})
        return {
            "job_id": job_id,
            "target": target,
            "status": status,
            "attempt": 0,
            "priority": Priority.NORMAL,
            "business_key": None,
            "node_id": None,
            "at": at,
        }


def _comes_back(completion: Completion) -> bool:
    """True if the job waits in the queue again, perhaps due before the poller's next look."""
    return isinstance(completion.decision, _COMING_BACK)
