"""Where a job is, what kind it is, and which moves between states are legal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class JobStatus(StrEnum):
    """The states of a job. PENDING and RUNNING are hot (in the queue table); the others are cold."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    PAUSED = "PAUSED"
    CANCELED = "CANCELED"
    WAITING = "WAITING"

    @property
    def is_hot(self) -> bool:
        """True while the job has a row in the queue table."""
        return self in HOT

    @property
    def is_terminal(self) -> bool:
        """True where nothing but a person's ``retry_job`` moves the job again."""
        return self in TERMINAL


HOT = frozenset({JobStatus.PENDING, JobStatus.RUNNING})
TERMINAL = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED})
LIVE = frozenset(JobStatus) - TERMINAL
#: The states of a job that has not started, or not again: it can be replaced, rescheduled, and it can expire.
AT_REST = frozenset({JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING})


class JobType(StrEnum):
    """What a job is a part of."""

    SINGLE = "SINGLE"
    BATCH_PARENT = "BATCH_PARENT"
    BATCH_CHILD = "BATCH_CHILD"
    CHAIN_STEP = "CHAIN_STEP"
    WORKFLOW_BRANCH = "WORKFLOW_BRANCH"
    WORKFLOW_JOIN = "WORKFLOW_JOIN"
    RECURRING_RUN = "RECURRING_RUN"
    CALLBACK = "CALLBACK"


class Priority(IntEnum):
    """Five levels; waiting raises a job's effective priority (see ``priority_boost_interval``)."""

    LOWEST = 0
    LOW = 1
    NORMAL = 2
    HIGH = 3
    CRITICAL = 4


class BackoffPolicy(StrEnum):
    """How the delay between retries grows."""

    NONE = "NONE"
    FIXED = "FIXED"
    EXPONENTIAL = "EXPONENTIAL"


class Busy(StrEnum):
    """What a submission does when another live job holds its business key."""

    RAISE = "RAISE"
    RETURN = "RETURN"
    REPLACE = "REPLACE"


class Lane(StrEnum):
    """Where a job runs: a worker thread, the event loop, or a process of its own."""

    THREAD = "thread"
    ASYNC = "async"
    PROCESS = "process"


class Trigger(StrEnum):
    """Who moves a job from one state to another."""

    CLAIM = "claim"
    SUCCESS = "success"
    RETRY = "retry"  # the failure pipeline, RetryLater, a closed gate
    FAILURE = "failure"  # attempts exhausted, do_not_retry, crash budget
    HAND_BACK = "hand back"  # not started, drain
    RESCUE = "rescue"  # the node died
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"  # by a person, a failed parent, expiry or replacement
    MANUAL_RETRY = "manual retry"
    RELEASE = "release"  # parent, join or signal arrived
    SIGNAL_TIMEOUT = "signal timeout"
    CONDITION_ERROR = "condition error"  # the branch's own condition raised
    REVIVE = "revive"  # the failed parent that canceled this job is retried


@dataclass(frozen=True, slots=True)
class Transition:
    """One legal move of the state machine."""

    source: JobStatus
    trigger: Trigger
    target: JobStatus


_S = JobStatus
_T = Trigger

#: The state machine. Stores, the conformance kit and the diagram in the docs are checked against it.
TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.PENDING, _T.CLAIM, _S.RUNNING),
    Transition(_S.PENDING, _T.PAUSE, _S.PAUSED),
    Transition(_S.PENDING, _T.CANCEL, _S.CANCELED),
    Transition(_S.RUNNING, _T.SUCCESS, _S.SUCCEEDED),
    Transition(_S.RUNNING, _T.RETRY, _S.PENDING),
    Transition(_S.RUNNING, _T.FAILURE, _S.FAILED),
    Transition(_S.RUNNING, _T.HAND_BACK, _S.PENDING),
    Transition(_S.RUNNING, _T.RESCUE, _S.PENDING),
    Transition(_S.RUNNING, _T.CANCEL, _S.CANCELED),
    Transition(_S.FAILED, _T.PAUSE, _S.PAUSED),
    Transition(_S.FAILED, _T.MANUAL_RETRY, _S.PENDING),
    Transition(_S.PAUSED, _T.RESUME, _S.PENDING),
    Transition(_S.PAUSED, _T.RESUME, _S.FAILED),
    Transition(_S.PAUSED, _T.MANUAL_RETRY, _S.PENDING),  # paused from FAILED only
    Transition(_S.PAUSED, _T.CANCEL, _S.CANCELED),
    Transition(_S.WAITING, _T.RELEASE, _S.PENDING),
    Transition(_S.WAITING, _T.CANCEL, _S.CANCELED),
    Transition(_S.WAITING, _T.SIGNAL_TIMEOUT, _S.FAILED),
    Transition(_S.WAITING, _T.CONDITION_ERROR, _S.FAILED),
    Transition(_S.CANCELED, _T.REVIVE, _S.WAITING),
)


def targets(source: JobStatus, trigger: Trigger) -> frozenset[JobStatus]:
    """The states that *trigger* may lead to from *source*; empty where the move is illegal."""
    return frozenset(t.target for t in TRANSITIONS if t.source is source and t.trigger is trigger)


def sources(trigger: Trigger) -> frozenset[JobStatus]:
    """The states from which *trigger* is legal."""
    return frozenset(t.source for t in TRANSITIONS if t.trigger is trigger)
