"""The assembly: the parts of one node, wired once, for threads or for step-by-step use."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from ratchet.engine.announcer import Announcer
from ratchet.engine.batches import BatchProgress, BatchRecovery
from ratchet.engine.completer import Completer
from ratchet.engine.coordinator import Coordinator
from ratchet.engine.decide import Decider
from ratchet.engine.events import EventBus
from ratchet.engine.flow import FlowRecorder
from ratchet.engine.heartbeat import Heartbeat
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.lane_report import LaneReport
from ratchet.engine.lanes.lane import JobLane
from ratchet.engine.logs import JobLogHandler, LogWriter
from ratchet.engine.maintenance import ExpirySweep, Housekeeping
from ratchet.engine.orphans import OrphanRecovery
from ratchet.engine.pace import Pace
from ratchet.engine.poller import Poller
from ratchet.engine.recurring import RecurringRuns
from ratchet.engine.started_runs import StartedRuns
from ratchet.engine.task import JobTask, Middleware, TaskTools
from ratchet.engine.watch import RunWatch
from ratchet.model.clock import Clock
from ratchet.model.cluster import NodeInfo, NodeRecord, NodeRequest, NodeSpec, Rescue
from ratchet.model.events import JobDeadLettered
from ratchet.model.identifiers import IdSource
from ratchet.model.options import Options
from ratchet.model.payload import READ_LIMIT, AllowType
from ratchet.model.process import MemoryReport, process_name
from ratchet.model.status import Lane, Priority
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.codec_keys import known_keys
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.meters import Meters
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.polling_strategy import PollingStrategy
from ratchet.spi.resilience import ResilienceStrategy
from ratchet.spi.retry_policy import RetryPolicy
from ratchet.spi.store import JobStore
from ratchet.spi.tracer import Tracer

if TYPE_CHECKING:
    from ratchet.engine.meters import NodeMeters


@dataclass(kw_only=True)
class NodeParts:
    """Everything a node is made of that can be replaced."""

    store: JobStore
    options: Options
    clock: Clock
    ids: IdSource
    bus: EventBus
    invocations: InvocationResolver
    instances: InstanceResolver
    sanitizer: ErrorSanitizer
    retry_policy: RetryPolicy
    resilience: ResilienceStrategy
    executor: ExecutorProvider
    polling: Callable[[], PollingStrategy]
    own_polling: bool = False  # the strategy is the user's: it alone says how long to rest
    cluster: ClusterCoordinator | None = None
    middleware: Sequence[Middleware] = ()
    allow_type: AllowType | None = None
    version: str = "0"
    notice: Callable[[Sequence[UUID]], None] = field(default=lambda job_ids: None)
    alert: Callable[[JobDeadLettered], None] | None = None
    dice: random.Random | None = None
    supervised: bool = False  # another process beats for this one
    started_runs: StartedRuns | None = None  # where that process can read what runs here
    meters: Sequence[Meters] = ()
    tracer: Tracer | None = None
    on_stop_request: Callable[[], None] = field(
        default=lambda: None
    )  # somebody asks this node to stop, from afar
    codec: PayloadCodec | None = None


#: A node claims no more while the outcomes of more than so many transactions wait for their commit.
UNWRITTEN = 4

#: How many targets a node names in its row, at most.
TARGETS_TOLD = 200

LaneFactory = Callable[["Assembly"], Sequence[JobLane]]


class Assembly:
    """One node's parts. Nothing here has a thread: a `Service` or a test drives them."""

    def __init__(
        self,
        parts: NodeParts,
        lanes: LaneFactory,
        *,
        wake: Callable[[], None],
        is_open: Callable[[], bool],
        ahead: timedelta = timedelta(),
        on_request: Callable[[NodeRequest | None], None] = lambda request: None,
        claims_late: bool = True,
    ) -> None:
        options = parts.options
        self.parts = parts
        self._wake = wake
        self._on_request = on_request
        self._memory = MemoryReport()
        self.identity = NodeIdentity(parts.ids, options.node_name)
        decider = Decider(
            retry_policy=parts.retry_policy,
            sanitizer=parts.sanitizer,
            max_crashes=options.max_crashes,
            callback_retries=options.callback_retries,
            error_limit=options.error_limit,
            traceback_limit=options.traceback_limit,
            dice=parts.dice,
        )
        self.tools = TaskTools(
            store=parts.store,
            clock=parts.clock,
            ids=parts.ids,
            decider=decider,
            invocations=parts.invocations,
            instances=parts.instances,
            sanitizer=parts.sanitizer,
            resilience=parts.resilience,
            middleware=parts.middleware,
            allow_type=parts.allow_type,
            result_limit=options.result_limit,
            state_limit=options.state_limit,
            read_limit=max(READ_LIMIT, options.payload_limit, options.result_limit, options.state_limit),
            condition_limit=options.condition_timeout.total_seconds(),
            callback_retries=options.callback_retries,
            started_runs=parts.started_runs,
        )
        self.task = _task(self.tools, parts.tracer)
        self.coordinator = Coordinator(
            {}, self.tools, parts.clock, most_unwritten=UNWRITTEN * options.completion_batch
        )
        self.batch_progress = BatchProgress(
            store=parts.store,
            bus=parts.bus,
            invocations=parts.invocations,
            instances=parts.instances,
            clock=parts.clock,
            allow_type=parts.allow_type,
        )
        self.announcer = Announcer(
            bus=parts.bus,
            coordinator=self.coordinator,
            clock=parts.clock,
            store=parts.store,
            wake=wake,
            spread=self.spread,
            child_ended=self.batch_progress.child_ended,
            notice=parts.notice,
            alert=parts.alert,
            is_open=is_open,
        )
        self.batch_progress.on_report = self.announcer.batch_progressed
        self.log_handler = JobLogHandler(
            tools=self.tools,
            sanitizer=parts.sanitizer,
            level=options.log_level,
            lines_per_run=options.log_lines_per_run,
            line_limit=options.log_line_limit,
        )
        self.log_writer = LogWriter(self.log_handler, parts.store)
        self.flow = self._flow()
        self.meters = _meters(parts)
        measured = self.meters
        self.completer = Completer(
            transitions=parts.store if measured is None else measured.around_completions(parts.store),
            task=self.task,
            clock=parts.clock,
            on_answer=self.announcer.answered,
            on_expired=self.announcer.canceled,
            before_flush=self.log_writer.run_once,
            batch=options.completion_batch,
            alert_window=options.dlq_alert_window,
            on_ended=[
                *([] if self.flow is None else [self.flow.commits.append]),
                *([] if measured is None else [measured.ended]),
            ],
        )
        self.coordinator.unwritten = self.completer.backlog
        for lane in lanes(self):
            self.coordinator.lanes[lane.lane] = lane
        self.lane_report = LaneReport(self.coordinator, parts.clock)
        self.poller = self._poller(is_open, ahead, claims_late=claims_late)
        self.lane_report.runs_suspects = lambda: self.poller.runs_suspects
        self.heartbeat = self._heartbeat()
        self.orphans = OrphanRecovery(
            nodes=parts.store,
            heartbeat=self.heartbeat,
            identity=self.identity,
            clock=parts.clock,
            max_crashes=options.max_crashes,
            on_rescue=self.announcer.rescued,
            on_handed_back=self.wake_all,
            on_lost=self._lost,
            on_joined=self._joined,
        )
        self.watch = RunWatch(
            coordinator=self.coordinator,
            completer=self.completer,
            transitions=parts.store,
            claims=parts.store,
            clock=parts.clock,
            interrupt_grace=options.interrupt_grace,
            hand_back_after=options.hand_back_after,
            slow_after=options.slow_run_warning,
            on_timed_out=self.announcer.timed_out,
            on_handed_back=self.spread,
        )
        self.expiry = ExpirySweep(parts.store, self.announcer.canceled)
        self.housekeeping = Housekeeping(
            store=parts.store, options=options, identity=self.identity, ids=parts.ids, clock=parts.clock
        )
        self.batch_recovery = BatchRecovery(
            parts.store, identity=self.identity, ids=parts.ids, on_canceled=self.announcer.canceled
        )
        self.recurring = RecurringRuns(store=parts.store, ids=parts.ids, wake=self.wake_all)

    def _flow(self) -> FlowRecorder | None:
        """None where no rates are kept."""
        options = self.parts.options
        if options.history_retention is None:
            return None
        return FlowRecorder(
            self.parts.store,
            identity=self.identity,
            retention=options.history_retention,
            most_queues=options.metric_labels,
            held=self.coordinator.held,
        )

    def _poller(self, is_open: Callable[[], bool], ahead: timedelta, *, claims_late: bool) -> Poller:
        parts, options = self.parts, self.parts.options
        return Poller(
            claims=parts.store if self.meters is None else self.meters.around_claims(parts.store),
            coordinator=self.coordinator,
            identity=self.identity,
            ids=parts.ids,
            clock=parts.clock,
            strategy=parts.polling(),
            invocations=parts.invocations,
            queues=None if options.queues is None else frozenset(options.queues),
            boost_interval=options.priority_boost_interval,
            is_open=is_open,
            claims_late=claims_late,
            ahead=ahead,
            ask_again_after=options.resource_retry_delay,
            hand_back=lambda now: self.watch.hand_back(float("inf"), now),
            codec=parts.codec,
        )

    def wake_all(self) -> None:
        """There are jobs for this node or for others: this one may be full, or not serve their queue."""
        self._wake()
        self.spread()

    def spread(self) -> None:
        """Tell other nodes that there are jobs to take."""
        if self.parts.cluster is not None and self.parts.options.notify:
            self.parts.cluster.notify_new_work(Priority.NORMAL)

    def _lost(self, rescue: Rescue) -> None:
        self.announcer.lost(rescue, self.identity.node_id)

    def _joined(self, node: NodeSpec | NodeRecord) -> None:
        self.announcer.joined(
            node, self.heartbeat.replaces if node.node_id == self.identity.node_id else None
        )

    def _heartbeat(self) -> Heartbeat:
        parts, options = self.parts, self.parts.options
        liveness = options.liveness(supervised=parts.supervised)
        return Heartbeat(
            nodes=parts.store,
            coordinator=self.coordinator,
            identity=self.identity,
            clock=parts.clock,
            # A supervisor beats for all of its processes in one statement, at its own pace.
            pace=Pace(liveness, None if parts.supervised else options.idle_heartbeat),
            version=parts.version,
            info=self._info,
            on_handed_back=self.wake_all,
            on_joined=self._joined,
            on_request=self._on_request,
            skew_warning=options.clock_skew_warning,
        )

    def _info(self) -> str:
        """What this node says about itself; written with a beat when it has changed."""
        queues = self.parts.options.queues
        declared: frozenset[str] = getattr(self.parts.invocations, "declared_names", frozenset())
        targets = sorted(declared | self.announcer.targets)[:TARGETS_TOLD]
        info = NodeInfo(
            lanes={str(lane): executor.slots for lane, executor in self.coordinator.lanes.items()},
            queues=None if queues is None else sorted(queues),
            targets=targets,
            rescues=self.orphans.rescued,
            false_rescues=self.heartbeat.false_rescues,
            replaces=self.heartbeat.replaces,
            process=process_name(),
            full=self.lane_report.full(),
            down=self.lane_report.down(),
            tags=list(self.parts.options.node_tags or ()),
            memory=self._memory.about(),
            still_running=self.coordinator.stubborn,
            keys=known_keys(self.parts.codec),
        )
        return msgspec.json.encode(info).decode()


def _task(tools: TaskTools, tracer: Tracer | None) -> JobTask:
    """If nobody follows jobs, nothing of it is imported or asked."""
    if tracer is None:
        return JobTask(tools)
    from ratchet.engine.tracing import TracedTask

    return TracedTask(tools, tracer)


def _meters(parts: NodeParts) -> NodeMeters | None:
    """None if nobody measures: then nothing of it is imported either."""
    if not parts.meters:
        return None
    from ratchet.engine.meters import NodeMeters

    return NodeMeters(parts.meters, parts.clock, parts.options.metric_labels)


def lane_slots(options: Options, cores: int) -> dict[Lane, int]:
    """How many jobs each lane runs at once."""
    return {
        Lane.THREAD: options.concurrency,
        Lane.ASYNC: options.async_concurrency,
        Lane.PROCESS: options.process_concurrency or cores,
    }
