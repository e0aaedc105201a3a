"""A node: this process as a member of the cluster, with threads in the background."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from ratchet.engine.assembly import Assembly, NodeParts, lane_slots
from ratchet.engine.crew import Crew
from ratchet.engine.departure import Departure, counted
from ratchet.engine.flow import INTERVAL as COUNTING_INTERVAL
from ratchet.engine.lanes.event_loop import EventLoopLane
from ratchet.engine.lanes.lane import JobLane
from ratchet.engine.lanes.processes import ProcessLane
from ratchet.engine.lanes.threads import ThreadLane
from ratchet.engine.logs import LogContext
from ratchet.engine.orphans import LOOKED_EVERY
from ratchet.engine.poller import AHEAD
from ratchet.engine.recurring import LOOK
from ratchet.engine.run import Stop
from ratchet.engine.service import LONGEST_PAUSE, CrewService, Service
from ratchet.model.cluster import NodeRequest, NodeState
from ratchet.model.errors import RatchetError, StoreError
from ratchet.model.status import Lane

logger = logging.getLogger("ratchet.engine")

#: However soon another node's silence is over, the heartbeat rests at least this long between two looks.
SHORTEST_LOOK = 0.25


#: A node that has just started first takes jobs. After so many seconds it looks at other nodes, at schedules, for what
#: has expired, and for what is old: one after the other, on one connection.
FIRST_BEAT, FIRST_LOOK, FIRST_SWEEP, FIRST_CLEANING = 0.1, 0.2, 0.5, 0.8
#: One in so many searches for expired jobs also looks for batches that were left behind.
SWEEPS_FOR_BATCHES = 3
#: Seconds between two looks at the schedules in a cluster in which whoever changes one wakes the nodes. That message may get
#: lost, and an earlier version sends none: a fire time that is late for that is still on time.
LOOK_WHERE_WOKEN = 4.0
#: About so many nodes of a cluster follow the wakeup of another process at once. The others follow later: within so many
#: seconds for each node that there is, and within so many at most.
AT_ONCE, LATER_PER_NODE, LATEST = 3, 0.001, 0.05
#: Seconds between two looks of one node, however many there are.
LONGEST_UNSEEN = 60.0

#: After so many failures in a row a node says that its lanes get no jobs.
FAILED_POLLS = 3


class Phase(Enum):
    """Where a node is in its life."""

    STOPPED = "stopped"
    RUNNING = "running"
    DRAINING = "draining"


class Node:
    """
    Runs jobs in this process until stopped.

    Services drive the passive parts: poller, completer, heartbeat with orphan recovery, watch,
    sweeps, schedules, events. `stop` hands back what has not started, waits for the rest, then
    interrupts it; code that does not stop keeps its claim, and the node goes on beating for it.
    """

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._phase = Phase.STOPPED
        self._lock = threading.RLock()
        self._assembly = Assembly(parts, self._lanes, wake=self.wake, is_open=self._is_open)
        self._services: list[Service] = []
        self._completing: Service | None = None
        self._beating: Service | None = None
        self._polling: Service | None = None
        self._firing: CrewService | None = None
        self._late: CrewService | None = None
        self._drained = False  # a person has asked it to take no more jobs
        self._has_running_code = False
        self._hurried = threading.Event()
        self._on_ended: Callable[[], None] = lambda: None

    # --- life ---

    def start(self) -> None:
        """
        Register and begin to work; `RatchetError` if it already runs.

        What a start that fails has begun is undone: threads end, claims are handed back, the node leaves the cluster.
        """
        with self._lock:
            if self._phase is not Phase.STOPPED:
                raise RatchetError("this node is already running; stop() it first")
            assembly = self._assembly = Assembly(
                self._parts,
                self._lanes,
                wake=self.wake,
                is_open=self._is_open,
                ahead=AHEAD,
                on_request=self._asked,
                claims_late=False,
            )
            self._drained = False
            assembly.heartbeat.register(self._parts.clock.now())
            LogContext.install(assembly.log_handler, self._parts.options.log_level)
            self._phase = Phase.RUNNING
            try:
                for lane in assembly.coordinator.lanes.values():
                    lane.start()
                self._start_services(assembly)
                self._connect_wakeups()
                if assembly.meters is not None:
                    assembly.meters.watch(assembly)
            except BaseException:
                self.stop(drain=False)
                raise

    def stop(self, *, drain: bool = True, timeout: timedelta | float | None = None) -> bool:
        """
        Stop working; True if every run has ended. Idempotent.

        With *drain* running jobs get *timeout* to finish; then, or at once without it, they are
        interrupted and handed back, which costs them neither an attempt nor a crash.
        """
        with self._lock:
            if self._phase is Phase.STOPPED:
                return True
            self._phase = Phase.DRAINING
            self._hurried.clear()
            departure = Departure(self._assembly, self._limit(timeout) if drain else 0.0)
            departure.begin(self._leave_queue())
            self._wait_until_idle(departure.limit)
            departure.time_is_up()
            if not self._assembly.coordinator.idle:
                self._interrupt_rest()
            ended = self._assembly.coordinator.idle
            departure.end(exits=self._parts.supervised)
            if ended:
                self._shut_down()
            else:
                self._beat_until_ended()
            self._phase = Phase.STOPPED
            self._drained = False
            return ended

    def hurry(self) -> None:
        """Let a `stop` that waits for running jobs interrupt them now, and hand them back; from any thread."""
        self._hurried.set()

    def release(self) -> int:
        """
        Hand back all that this node still holds, because its process ends right after this; how many jobs.

        It costs them no attempt. Others are woken before this returns, as far as that can be done in a moment.
        """
        self._assembly.heartbeat.leave()
        back = self._parts.store.deregister(self.node_id, now=self._parts.clock.now())
        if back:
            logger.warning("%s whose code did not stop handed back: this process ends now", counted(back))
        self._wake_others()
        return back

    @property
    def phase(self) -> Phase:
        """Where this node is in its life."""
        return self._phase

    @property
    def is_drained(self) -> bool:
        """True while it takes no jobs because somebody has asked for that (`nodes.drain`)."""
        return self._drained

    @property
    def node_id(self) -> str:
        """The id of this incarnation."""
        return self._assembly.identity.node_id

    @property
    def assembly(self) -> Assembly:
        """The parts of this node, for tests and supervisors."""
        return self._assembly

    # --- from outside ---

    def wake(self, lane: Lane | None = None) -> None:
        """There may be new work, for *lane* if that is known: poll now."""
        polling = self._polling
        if polling is not None:
            self._assembly.poller.woken(lane)
            polling.wake()
            if lane is None and self._firing is not None:
                self._firing.hasten(LOOK)  # whoever changes a schedule sends the same message

    def woken_from_afar(self) -> None:
        """
        Another process has sent a wakeup: poll now, or in a large cluster a moment later.

        All nodes get the message at the same time, and few are needed for a job. If all of them claimed at once, the one that
        gets it would have to wait for the others.
        """
        count, late = len(self._assembly.orphans.members), self._late
        if late is None or count <= AT_ONCE or random.random() < AT_ONCE / count:
            self.wake()
        else:
            late.hasten(random.uniform(0, min(count * LATER_PER_NODE, LATEST)))

    def cancel_local(self, job_id: UUID) -> bool:
        """A job was canceled by this process: interrupt it if it runs here."""
        return self._assembly.coordinator.cancel(job_id)

    @property
    def stuck(self) -> int:
        """Threads that ignored their interruption and still run."""
        return self._assembly.coordinator.stuck

    @property
    def is_idle(self) -> bool:
        """True if nothing is claimed and nothing waits to be written."""
        return self._assembly.coordinator.idle and not self._assembly.completer.backlog()

    def pulse(self) -> float | None:
        """When the last poll ended (monotonic): a supervisor beats only for a node that still polls."""
        return None if self._polling is None else self._polling.last_step_at

    def when_ended(self, action: Callable[[], None]) -> None:
        """Call *action* when code that did not stop has ended at last; at once if there is none."""
        with self._lock:
            if self._has_running_code:
                self._on_ended = action
                return
        action()

    # --- services ---

    def _lanes(self, assembly: Assembly) -> Sequence[JobLane]:
        options = self._parts.options
        slots = lane_slots(options, os.cpu_count() or 1)
        common = {
            "task": assembly.task,
            "completer": assembly.completer,
            "clock": self._parts.clock,
            "executor": self._parts.executor,
            "on_started": assembly.announcer.started,
            "on_room": self._room,
            "max_prefetch": options.max_prefetch,
            "prefetch_window": options.prefetch_window.total_seconds(),
        }
        return [kind(slots=slots[kind.lane], **common) for kind in (ThreadLane, EventLoopLane, ProcessLane)]  # type: ignore[arg-type]  # one signature for all three

    def _start_services(self, assembly: Assembly) -> None:
        executor, clock, options = self._parts.executor, self._parts.clock, self._parts.options
        heart, starts = assembly.heartbeat, assembly.coordinator.planned_starts
        identity = assembly.identity
        beaten, unseen = {"at": clock.monotonic() - heart.interval.total_seconds()}, {"beats": LOOKED_EVERY}
        rota, swept = assembly.orphans.rota, {"times": 0}
        usual = heart.interval.total_seconds()
        unwoken = self._longest_unwoken_rest()

        def poll() -> float:
            assembly.poller.run_once(clock.now())
            beating = self._beating
            if beating is not None and (
                (clock.monotonic() > identity.late_after and not beating.failures)
                or (heart.pace.is_slow and heart.must_beat)
            ):
                beating.wake()
            rest = assembly.poller.rest.total_seconds()
            return rest if unwoken is None or rest <= unwoken or self._is_woken() else unwoken

        def complete() -> float:
            assembly.completer.wait(1.0)
            assembly.completer.run_once(clock.now())
            if assembly.coordinator.has_caught_up():
                self._room()
            return 0.0

        def heartbeat() -> float:
            """Beat first, then judge others. Those who keep watch look at them between two beats, too."""
            begun, orphans = clock.monotonic(), assembly.orphans
            if (
                begun >= beaten["at"] + heart.interval.total_seconds()
                or orphans.rest() <= 0
                or heart.must_beat
            ):
                heart.run_once(clock.now())
                beaten["at"] = begun
                if self._drained:  # a claim that was under way when it was asked may have brought more
                    assembly.watch.hand_back(float("inf"), clock.now())
                unseen["beats"] += 1
                if orphans.keeps_watch or orphans.rest() <= 0 or unseen["beats"] >= LOOKED_EVERY:
                    orphans.run_once(clock.now())
                    unseen["beats"] = 0
            else:
                orphans.look()
            rest = min(
                beaten["at"] + heart.interval.total_seconds() - clock.monotonic(),
                max(orphans.rest(), SHORTEST_LOOK),
            )
            if orphans.keeps_watch:
                rest = min(rest, min(usual, orphans.shortest_interval) / 2)
            return max(0.0, rest)

        def watch() -> float:
            assembly.watch.run_once(clock.now())
            return 0.05 if assembly.coordinator.held() else 0.25

        def sweep() -> float:
            assembly.expiry.run_once(clock.now())
            if swept["times"] % SWEEPS_FOR_BATCHES == 0 and assembly.batch_recovery.run_once(clock.now()):
                assembly.wake_all()
            swept["times"] += 1
            return rota.rest(options.expiry_interval.total_seconds(), clock.now())

        def clean() -> float:
            every = options.maintenance_interval.total_seconds()
            cleaned = assembly.housekeeping.run_once(clock.now())
            return every if cleaned else rota.rest(every, clock.now())

        def count() -> float:
            if assembly.meters is not None:
                assembly.meters.pass_on()
            if assembly.flow is not None:
                assembly.flow.run_once(clock.now())
            return COUNTING_INTERVAL

        def fire() -> float:
            assembly.recurring.run_once(clock.now())
            longest = LOOK
            if self._is_woken():  # by those who change a schedule, too
                longest = min(rota.rest(LOOK_WHERE_WOKEN, clock.now()), LONGEST_UNSEEN)
            return assembly.recurring.rest(clock.now(), longest)

        def poll_late() -> float:
            self.wake()
            return float("inf")

        def start_planned() -> float:
            starts.run_once(clock.now())
            return starts.rest(clock.now()).total_seconds()

        def tell() -> float:
            self._parts.bus.run_once()
            assembly.batch_progress.run_once(clock.now())
            assembly.log_writer.run_once(clock.now())
            return 0.5

        crew = Crew(executor)

        def service(name: str, step: Callable[[], float], **how: Any) -> Service:
            return Service(name, step, executor, **how)

        def shared(name: str, step: Callable[[], float], **how: Any) -> CrewService:
            return CrewService(name, step, executor, crew, **how)

        self._polling = polling = service("poller", poll)
        self._completing = service("completer", complete)
        # After an outage every node is observed anew: one that comes back later than a beat looks dead again.
        self._beating = service(
            "heartbeat", heartbeat, longest_pause=min(LONGEST_PAUSE, usual / 2), after=FIRST_BEAT
        )
        watching = shared("watch", watch)
        telling = shared("events", tell)
        starting = shared("planned-starts", start_planned, prompt=True)
        starts.on_added = starting.wake
        self._parts.bus.on_event = telling.wake
        self._firing = shared("schedules", fire, after=FIRST_LOOK)
        self._late = shared("late-wakeups", poll_late, prompt=True, after=LONGEST_UNSEEN)
        self._services = [
            self._completing,
            self._beating,
            watching,
            telling,
            starting,
            shared("expiry", sweep, after=FIRST_SWEEP),
            shared("housekeeping", clean, after=FIRST_CLEANING),
            self._firing,
            self._late,
            *([shared("flow", count)] if assembly.flow is not None or assembly.meters is not None else []),
            self._polling,
        ]
        for each in self._services:
            each.start()
        beating = self._beating
        # While nothing is due, a claim only reads: that the database takes no writes is then seen by the beats alone.
        assembly.lane_report.claims_fail = lambda: (
            max(polling.failures, beating.failures) >= FAILED_POLLS or not polling.is_alive
        )

    def _connect_wakeups(self) -> None:
        cluster = self._parts.cluster
        if cluster is not None:
            cluster.register_wakeup_listener(self.woken_from_afar)
            cluster.start()

    def _is_woken(self) -> bool:
        """True while wakeups of other processes arrive."""
        cluster = self._parts.cluster
        return cluster is not None and getattr(cluster, "connected", True)

    def _longest_unwoken_rest(self) -> float | None:
        """Seconds between two polls while no wakeups of other processes arrive, at most; None: as the strategy says."""
        longest = self._parts.options.unwoken_poll_delay(own_strategy=self._parts.own_polling)
        return None if longest is None else longest.total_seconds()

    def _room(self) -> None:
        """A lane needs more jobs, or jobs may be claimed again: poll now."""
        if self._polling is not None and self._phase is Phase.RUNNING:
            self._polling.wake()

    def _is_open(self) -> bool:
        return self._phase is Phase.RUNNING and not self._drained

    # --- asked from afar ---

    def _asked(self, request: NodeRequest | None) -> None:
        """Somebody has asked something of this node, or has taken it back; on the thread of the heartbeat."""
        if self._phase is not Phase.RUNNING:
            return
        store, now = self._parts.store, self._parts.clock.now()
        if request is None:
            store.set_node_state(self.node_id, NodeState.ACTIVE, now=now)
            self._drained = False
            logger.info("node %s takes jobs again, as it was asked to", self.node_id)
            self.wake()
            return
        self._drained = True
        store.set_node_state(self.node_id, NodeState.DRAINING, now=now)
        back = self._assembly.watch.hand_back(float("inf"), now)
        self._assembly.spread()
        logger.info(
            "node %s was asked to %s: it takes no more jobs; %s running, %d handed back",
            self.node_id,
            request.value.lower(),
            counted(len(self._assembly.coordinator.held())),
            back,
        )
        if request is NodeRequest.STOP:
            self._parts.on_stop_request()

    # --- stopping ---

    def _limit(self, timeout: timedelta | float | None) -> float:
        if timeout is None:
            return self._parts.options.drain_timeout.total_seconds()
        return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)

    def _leave_queue(self) -> int:
        """
        Claim nothing more and hand back what has not started; how many jobs that was.

        Others are woken even if it was none: perhaps only this node knew when the next job is due.
        """
        if self._polling is not None:
            self._polling.stop()
        now, back = self._parts.clock.now(), 0
        try:
            self._parts.store.set_node_state(self.node_id, NodeState.DRAINING, now=now)
            back = self._assembly.watch.hand_back(float("inf"), now)
        except StoreError as error:
            logger.warning("draining: %s", error)
        self._assembly.spread()
        return back

    def _wait_until_idle(self, limit: float) -> None:
        deadline = time.monotonic() + limit
        while (
            not self._assembly.coordinator.idle and time.monotonic() < deadline and not self._hurried.is_set()
        ):
            time.sleep(0.01)

    def _interrupt_rest(self) -> None:
        for run in self._assembly.coordinator.held():
            self._assembly.coordinator.interrupt(run, Stop.DRAINED)
        grace = self._parts.options.interrupt_grace.total_seconds()
        deadline = time.monotonic() + max(grace, 0.2)
        while not self._assembly.coordinator.idle and time.monotonic() < deadline:
            time.sleep(0.01)

    def _shut_down(self) -> None:
        assembly = self._assembly
        for each in reversed(self._services):
            if each is self._completing:
                assembly.completer.wake()
            each.stop()
        for lane in assembly.coordinator.lanes.values():
            lane.stop(2.0)
        self._flush(assembly)
        if assembly.meters is not None:
            assembly.meters.close()
        LogContext.remove(assembly.log_handler)
        self._say_goodbye()
        self._wake_others()
        self._services = []

    def _flush(self, assembly: Assembly) -> None:
        now = self._parts.clock.now()
        try:
            while assembly.completer.run_once(now):
                pass
            assembly.log_writer.run_once(now)
            if assembly.flow is not None:
                assembly.flow.close(now)
        except StoreError as error:
            logger.warning("stopping: %s", error)
        self._parts.bus.flush()

    def _wake_others(self) -> None:
        """Send the last message of this node: what it held, and what only it knew of, is for others now."""
        self._assembly.spread()
        if self._parts.cluster is not None:
            self._parts.cluster.stop()

    def _say_goodbye(self) -> None:
        try:
            self._parts.store.deregister(self.node_id, now=self._parts.clock.now())
        except StoreError as error:
            logger.warning("the node could not deregister (%s); others will notice its silence", error)

    def _beat_until_ended(self) -> None:
        """Some code does not stop. Its claims are kept and the node goes on beating, as draining, until it ends."""

        def wait_and_leave() -> None:
            while not self._assembly.coordinator.idle:
                time.sleep(0.1)
            with self._lock:
                atexit.unregister(release_at_exit)
                self._shut_down()
                self._has_running_code = False
                self._on_ended()

        def release_at_exit() -> None:
            try:
                self.release()
            except Exception as error:
                logger.warning("what was running could not be handed back (%s); others will notice", error)

        self._has_running_code = True
        # Silence would be taken for a crash of that job.
        atexit.register(release_at_exit)
        threading.Thread(target=wait_and_leave, name="ratchet-last-runs", daemon=True).start()
