"""Background jobs that survive crashes, kept in the database you already have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.api.batches.builders import BatchBuilder, StreamingBatchBuilder
    from ratchet.api.batches.handles import BatchHandle
    from ratchet.api.context import JobContext, JobTransaction
    from ratchet.api.observe.async_handles import AsyncBatchHandle, AsyncJobHandle
    from ratchet.api.observe.graphs import JobGraph
    from ratchet.api.observe.handles import JobHandle
    from ratchet.api.observe.health import Health
    from ratchet.api.observe.reasons import Blocker, Reason
    from ratchet.api.observe.records import TruncatedResult
    from ratchet.api.recurring import Misfire, Overlap, Schedule, ScheduleNotFound
    from ratchet.api.submit.builders import AsyncJobBuilder, JobBuilder
    from ratchet.api.submit.calls import Call, call
    from ratchet.api.submit.conditions import Condition
    from ratchet.api.submit.joins import Join, JoinBuilder
    from ratchet.api.targets import JobDeclaration
    from ratchet.api.targets.breakers import BreakerProfile, circuit_breaker
    from ratchet.api.targets.declarations import DeclaredJob
    from ratchet.model.breaker import BreakerSettings
    from ratchet.model.clock import Clock, ManualClock
    from ratchet.model.composition import Signal
    from ratchet.model.errors import (
        BusinessKeyBusy,
        CommitUnknown,
        ConditionFailed,
        ConfigurationError,
        Conflict,
        DeclaredTwiceWarning,
        EmptyFilter,
        InvalidJob,
        InvalidTarget,
        JobCanceledError,
        JobExpired,
        JobFailedError,
        JobInterrupted,
        JobNotFound,
        JobTimeout,
        MissingDriver,
        NodeAlive,
        PayloadTooLarge,
        RatchetError,
        ResultTruncated,
        RetryLater,
        SchemaChanged,
        SchemaOutOfDate,
        SchemaTooNew,
        SignalTimeout,
        StaleClaim,
        StoreError,
        StoreReadOnly,
        StoreUnavailable,
        SubmissionBlocked,
        TargetNotAllowed,
        TargetNotFound,
        UnstorableData,
        UnstorableValue,
        UnsubmittedJobWarning,
        do_not_retry,
    )
    from ratchet.model.events import (
        BatchCompleted,
        BatchProgressed,
        BranchTaken,
        BreakerClosed,
        BreakerOpened,
        JobCallbackFailed,
        JobCanceled,
        JobCompleted,
        JobDeadLettered,
        JobEvent,
        JobFailed,
        JobPaused,
        JobRescheduled,
        JobRescued,
        JobResumed,
        JobRetrying,
        JobsCanceled,
        JobSignaled,
        JobSignalTimedOut,
        JobsRetried,
        JobStarted,
        JobSubmitted,
        JobTimedOut,
        NodeJoined,
        NodeLost,
    )
    from ratchet.model.flow import Flow, Percentiles, Statistics
    from ratchet.model.identifiers import new_id, timestamp_of
    from ratchet.model.job import (
        Alert,
        DeadLetter,
        DeadLetterGroup,
        Execution,
        ExecutionStatus,
        Job,
        JobFilter,
        LogLine,
        Page,
        Progress,
        SortBy,
    )
    from ratchet.model.metrics import Metric
    from ratchet.model.options import Options
    from ratchet.model.problems import Problem
    from ratchet.model.results import BatchContext, JobError, JobResult
    from ratchet.model.status import BackoffPolicy, Busy, JobStatus, JobType, Lane, Priority
    from ratchet.scheduler import Scheduler
    from ratchet.spi.cluster_coordinator import ClusterCoordinator
    from ratchet.spi.error_sanitizer import ErrorSanitizer
    from ratchet.spi.executor_provider import ExecutorProvider
    from ratchet.spi.instance_resolver import InstanceResolver
    from ratchet.spi.invocation_resolver import InvocationResolver
    from ratchet.spi.lifecycle_hook import LifecycleHook
    from ratchet.spi.meters import Meters
    from ratchet.spi.polling_strategy import PollingStrategy
    from ratchet.spi.principal_provider import PrincipalProvider
    from ratchet.spi.resilience import ResilienceStrategy
    from ratchet.spi.retry_policy import RetryPolicy
    from ratchet.spi.store import JobStore
    from ratchet.spi.target_policy import TargetPolicy

    __version__: str
    #: In the arguments of a step: what its parent returned. Any, so that it fits every parameter.
    RESULT: Any
    #: In the arguments of a join: the list of what the joined jobs returned.
    RESULTS: Any

#: Where each public name lives. Modules are imported when a name of theirs is first used, so that
#: ``import ratchet`` is cheap and drags in nothing that is not needed.
_HOMES: dict[str, str] = {
    "Alert": "ratchet.model.job",
    "AsyncBatchHandle": "ratchet.api.observe.async_handles",
    "AsyncJobBuilder": "ratchet.api.submit.builders",
    "AsyncJobHandle": "ratchet.api.observe.async_handles",
    "BackoffPolicy": "ratchet.model.status",
    "BatchBuilder": "ratchet.api.batches.builders",
    "BatchCompleted": "ratchet.model.events",
    "BatchContext": "ratchet.model.results",
    "BatchHandle": "ratchet.api.batches.handles",
    "BatchProgressed": "ratchet.model.events",
    "BranchTaken": "ratchet.model.events",
    "BreakerClosed": "ratchet.model.events",
    "BreakerOpened": "ratchet.model.events",
    "BreakerProfile": "ratchet.api.targets.breakers",
    "BreakerSettings": "ratchet.model.breaker",
    "BusinessKeyBusy": "ratchet.model.errors",
    "Busy": "ratchet.model.status",
    "Call": "ratchet.api.submit.calls",
    "Clock": "ratchet.model.clock",
    "ClusterCoordinator": "ratchet.spi.cluster_coordinator",
    "CommitUnknown": "ratchet.model.errors",
    "Condition": "ratchet.api.submit.conditions",
    "ConditionFailed": "ratchet.model.errors",
    "ConfigurationError": "ratchet.model.errors",
    "Conflict": "ratchet.model.errors",
    "DeadLetter": "ratchet.model.job",
    "DeadLetterGroup": "ratchet.model.job",
    "DeclaredJob": "ratchet.api.targets.declarations",
    "DeclaredTwiceWarning": "ratchet.model.errors",
    "EmptyFilter": "ratchet.model.errors",
    "ErrorSanitizer": "ratchet.spi.error_sanitizer",
    "Execution": "ratchet.model.job",
    "ExecutionStatus": "ratchet.model.job",
    "ExecutorProvider": "ratchet.spi.executor_provider",
    "Health": "ratchet.api.observe.health",
    "InstanceResolver": "ratchet.spi.instance_resolver",
    "InvalidJob": "ratchet.model.errors",
    "InvalidTarget": "ratchet.model.errors",
    "InvocationResolver": "ratchet.spi.invocation_resolver",
    "Job": "ratchet.model.job",
    "JobBuilder": "ratchet.api.submit.builders",
    "JobCallbackFailed": "ratchet.model.events",
    "JobCanceled": "ratchet.model.events",
    "JobCanceledError": "ratchet.model.errors",
    "JobCompleted": "ratchet.model.events",
    "JobContext": "ratchet.api.context",
    "JobDeadLettered": "ratchet.model.events",
    "JobDeclaration": "ratchet.api.targets",
    "JobError": "ratchet.model.results",
    "JobEvent": "ratchet.model.events",
    "JobExpired": "ratchet.model.errors",
    "JobFailed": "ratchet.model.events",
    "JobFailedError": "ratchet.model.errors",
    "JobFilter": "ratchet.model.job",
    "JobGraph": "ratchet.api.observe.graphs",
    "JobHandle": "ratchet.api.observe.handles",
    "JobInterrupted": "ratchet.model.errors",
    "JobNotFound": "ratchet.model.errors",
    "JobPaused": "ratchet.model.events",
    "JobRescheduled": "ratchet.model.events",
    "JobRescued": "ratchet.model.events",
    "JobResult": "ratchet.model.results",
    "JobResumed": "ratchet.model.events",
    "JobRetrying": "ratchet.model.events",
    "JobSignalTimedOut": "ratchet.model.events",
    "JobSignaled": "ratchet.model.events",
    "JobStarted": "ratchet.model.events",
    "JobStatus": "ratchet.model.status",
    "JobStore": "ratchet.spi.store",
    "JobSubmitted": "ratchet.model.events",
    "JobTimedOut": "ratchet.model.events",
    "JobTimeout": "ratchet.model.errors",
    "JobTransaction": "ratchet.api.context",
    "JobType": "ratchet.model.status",
    "JobsCanceled": "ratchet.model.events",
    "JobsRetried": "ratchet.model.events",
    "Join": "ratchet.api.submit.joins",
    "JoinBuilder": "ratchet.api.submit.joins",
    "Lane": "ratchet.model.status",
    "LifecycleHook": "ratchet.spi.lifecycle_hook",
    "LogLine": "ratchet.model.job",
    "ManualClock": "ratchet.model.clock",
    "Meters": "ratchet.spi.meters",
    "Metric": "ratchet.model.metrics",
    "Misfire": "ratchet.api.recurring",
    "MissingDriver": "ratchet.model.errors",
    "NodeAlive": "ratchet.model.errors",
    "NodeJoined": "ratchet.model.events",
    "NodeLost": "ratchet.model.events",
    "Options": "ratchet.model.options",
    "Overlap": "ratchet.api.recurring",
    "Page": "ratchet.model.job",
    "PayloadTooLarge": "ratchet.model.errors",
    "PollingStrategy": "ratchet.spi.polling_strategy",
    "PrincipalProvider": "ratchet.spi.principal_provider",
    "Priority": "ratchet.model.status",
    "Progress": "ratchet.model.job",
    "RESULT": "ratchet.model.payload",
    "RESULTS": "ratchet.model.payload",
    "RatchetError": "ratchet.model.errors",
    "Reason": "ratchet.api.observe.reasons",
    "Blocker": "ratchet.api.observe.reasons",
    "Problem": "ratchet.model.problems",
    "Flow": "ratchet.model.flow",
    "Percentiles": "ratchet.model.flow",
    "Statistics": "ratchet.model.flow",
    "ResilienceStrategy": "ratchet.spi.resilience",
    "ResultTruncated": "ratchet.model.errors",
    "RetryLater": "ratchet.model.errors",
    "RetryPolicy": "ratchet.spi.retry_policy",
    "Schedule": "ratchet.api.recurring",
    "ScheduleNotFound": "ratchet.api.recurring",
    "Scheduler": "ratchet.scheduler",
    "SchemaChanged": "ratchet.model.errors",
    "SchemaOutOfDate": "ratchet.model.errors",
    "SchemaTooNew": "ratchet.model.errors",
    "SortBy": "ratchet.model.job",
    "Signal": "ratchet.model.composition",
    "SignalTimeout": "ratchet.model.errors",
    "StaleClaim": "ratchet.model.errors",
    "StoreError": "ratchet.model.errors",
    "StoreReadOnly": "ratchet.model.errors",
    "StoreUnavailable": "ratchet.model.errors",
    "StreamingBatchBuilder": "ratchet.api.batches.builders",
    "SubmissionBlocked": "ratchet.model.errors",
    "TargetNotAllowed": "ratchet.model.errors",
    "TargetNotFound": "ratchet.model.errors",
    "TargetPolicy": "ratchet.spi.target_policy",
    "TruncatedResult": "ratchet.api.observe.records",
    "UnstorableData": "ratchet.model.errors",
    "UnstorableValue": "ratchet.model.errors",
    "UnsubmittedJobWarning": "ratchet.model.errors",
    "call": "ratchet.api.submit.calls",
    "circuit_breaker": "ratchet.api.targets.breakers",
    "do_not_retry": "ratchet.model.errors",
    "new_id": "ratchet.model.identifiers",
    "timestamp_of": "ratchet.model.identifiers",
}

__all__ = [
    "RESULT",
    "RESULTS",
    "Alert",
    "AsyncBatchHandle",
    "AsyncJobBuilder",
    "AsyncJobHandle",
    "BackoffPolicy",
    "BatchBuilder",
    "BatchCompleted",
    "BatchContext",
    "BatchHandle",
    "BatchProgressed",
    "Blocker",
    "BranchTaken",
    "BreakerClosed",
    "BreakerOpened",
    "BreakerProfile",
    "BreakerSettings",
    "BusinessKeyBusy",
    "Busy",
    "Call",
    "Clock",
    "ClusterCoordinator",
    "CommitUnknown",
    "Condition",
    "ConditionFailed",
    "ConfigurationError",
    "Conflict",
    "DeadLetter",
    "DeadLetterGroup",
    "DeclaredJob",
    "DeclaredTwiceWarning",
    "EmptyFilter",
    "ErrorSanitizer",
    "Execution",
    "ExecutionStatus",
    "ExecutorProvider",
    "Flow",
    "Health",
    "InstanceResolver",
    "InvalidJob",
    "InvalidTarget",
    "InvocationResolver",
    "Job",
    "JobBuilder",
    "JobCallbackFailed",
    "JobCanceled",
    "JobCanceledError",
    "JobCompleted",
    "JobContext",
    "JobDeadLettered",
    "JobDeclaration",
    "JobError",
    "JobEvent",
    "JobExpired",
    "JobFailed",
    "JobFailedError",
    "JobFilter",
    "JobGraph",
    "JobHandle",
    "JobInterrupted",
    "JobNotFound",
    "JobPaused",
    "JobRescheduled",
    "JobRescued",
    "JobResult",
    "JobResumed",
    "JobRetrying",
    "JobSignalTimedOut",
    "JobSignaled",
    "JobStarted",
    "JobStatus",
    "JobStore",
    "JobSubmitted",
    "JobTimedOut",
    "JobTimeout",
    "JobTransaction",
    "JobType",
    "JobsCanceled",
    "JobsRetried",
    "Join",
    "JoinBuilder",
    "Lane",
    "LifecycleHook",
    "LogLine",
    "ManualClock",
    "Meters",
    "Metric",
    "Misfire",
    "MissingDriver",
    "NodeAlive",
    "NodeJoined",
    "NodeLost",
    "Options",
    "Overlap",
    "Page",
    "PayloadTooLarge",
    "Percentiles",
    "PollingStrategy",
    "PrincipalProvider",
    "Priority",
    "Problem",
    "Progress",
    "RatchetError",
    "Reason",
    "ResilienceStrategy",
    "ResultTruncated",
    "RetryLater",
    "RetryPolicy",
    "Schedule",
    "ScheduleNotFound",
    "Scheduler",
    "SchemaChanged",
    "SchemaOutOfDate",
    "SchemaTooNew",
    "Signal",
    "SignalTimeout",
    "SortBy",
    "StaleClaim",
    "Statistics",
    "StoreError",
    "StoreReadOnly",
    "StoreUnavailable",
    "StreamingBatchBuilder",
    "SubmissionBlocked",
    "TargetNotAllowed",
    "TargetNotFound",
    "TargetPolicy",
    "TruncatedResult",
    "UnstorableData",
    "UnstorableValue",
    "UnsubmittedJobWarning",
    "__version__",
    "call",
    "circuit_breaker",
    "do_not_retry",
    "new_id",
    "timestamp_of",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("ratchet-jobs")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
