"""The poller: whom it asks, and when it looks again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy
from ratchet.defaults.resilience import NoOpResilience
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.engine.assembly import NodeParts
from ratchet.engine.events import EventBus
from ratchet.engine.lanes.inline import InlineLane
from ratchet.engine.manual import ManualNode
from ratchet.engine.poller import AHEAD
from ratchet.model.claim import ClaimedJob, ClaimRequest
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import BreakerRecord
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, JobSpec, StreamKey
from ratchet.model.options import Options
from ratchet.model.payload import encode
from ratchet.model.status import JobStatus, Lane
from ratchet.spi.polling_strategy import PollObservation
from ratchet.stores.memory import MemoryStore
from tests.support.lanes import OneFunction

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)


class Asked(MemoryStore):
    """Notes what it is asked: for which lanes jobs were claimed, and which were looked at together."""

    def __init__(self) -> None:
        super().__init__(lock_wait=timedelta())
        self.calls: list[Lane | set[Lane]] = []

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that jobs were claimed for."""
        return [call for call in self.calls if isinstance(call, Lane)]

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        if not request.suspects:
            self.calls.append(request.lane)
        return super().claim_next_batch(request, now=now)

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        self.calls.append({request.lane for request in requests})
        return super().next_due_of(requests, now=now)


class Noting(AdaptivePollingStrategy):
    """Notes how many jobs each poll found that it was told of."""

    def __init__(self, found: list[int]) -> None:
        super().__init__()
        self._found = found

    def next_delay(self, observation: PollObservation) -> timedelta:
        self._found.append(observation.found)
        return super().next_delay(observation)


class Stand:
    """A store, a clock, and nodes on them whose every step the test takes."""

    def __init__(
        self,
        nodes: int = 1,
        slots: int = 20,
        function: Callable[[], Any] = lambda: None,
        ahead: timedelta = timedelta(),
    ) -> None:
        self.store = Asked()
        self.clock = ManualClock()
        self.ahead = ahead
        self.observed: list[int] = []
        self.nodes = [self._node(slots, function) for _ in range(nodes)]

    def _node(self, slots: int, function: Callable[[], Any]) -> ManualNode:
        parts = NodeParts(
            store=self.store,
            options=Options(),
            clock=self.clock,
            ids=new_id,
            bus=EventBus(),
            invocations=cast(Any, OneFunction(function, is_coroutine=False)),
            instances=DefaultInstanceResolver(),
            sanitizer=DefaultErrorSanitizer(),
            retry_policy=DefaultRetryPolicy(),
            resilience=NoOpResilience(),
            executor=DefaultExecutorProvider(),
            polling=lambda: Noting(self.observed),
        )
        node = ManualNode(parts, slots=slots, ahead=self.ahead)
        node.register()
        return node

    def submit(self, count: int = 1, *, after: timedelta = timedelta(), **stream: Any) -> None:
        now = self.clock.now()
        specs = [
            JobSpec(
                job_id=new_id(),
                target="stand:function",
                payload=encode((), {}),
                scheduled_at=now + after,
                stream=StreamKey(**stream),
            )
            for _ in range(count)
        ]
        self.store.insert(specs, now=now)

    def wake(self, lane: Lane | None = None) -> None:
        """A wakeup arrives at the first node."""
        self.nodes[0].assembly.poller.woken(lane)

    def poll(self, node: ManualNode | None = None) -> timedelta:
        """Poll and run what that brought; how long the node rests."""
        node = node or self.nodes[0]
        self.store.calls.clear()
        node.assembly.poller.run_once(self.clock.now())
        self.work(node)
        return node.assembly.poller.rest

    def work(self, node: ManualNode) -> None:
        """Run what the node's lanes have."""
        for lane in node.assembly.coordinator.lanes.values():
            while isinstance(lane, InlineLane) and lane.step():
                pass
        node.assembly.completer.run_once(self.clock.now())


class TestRest:
    @pytest.mark.parametrize("slots", [3, 50])
    def test_until_a_rate_lets_the_next_job_start(self, slots: int) -> None:
        """Three nodes, up to 80 ms late: 95 to 100 of 100 per second in every window of a second after the first."""
        starts: list[datetime] = []
        stand = Stand(3, slots=slots, ahead=AHEAD, function=lambda: starts.append(stand.clock.now()))
        stand.store.set_limit("gateway", rate=100, period=SECOND, now=stand.clock.now())
        stand.submit(800, resource="gateway")
        dice, begin = random.Random(3), stand.clock.now()
        polls = {node.node_id: begin for node in stand.nodes}
        while (now := stand.clock.now()) < begin + 6 * SECOND:
            node = min(stand.nodes, key=lambda each: polls[each.node_id])
            next_start = min(each.assembly.coordinator.planned_starts.rest(now) for each in stand.nodes)
            if now + next_start < polls[node.node_id]:
                stand.clock.advance(next_start)
                for each in stand.nodes:
                    each.assembly.coordinator.planned_starts.run_once(stand.clock.now())
                    stand.work(each)
                continue
            stand.clock.advance(max(polls[node.node_id] - now, timedelta()))
            late = timedelta(milliseconds=dice.uniform(0, 80)) if slots > 10 else timedelta()
            polls[node.node_id] = stand.clock.now() + stand.poll(node) + late
        windows = [begin + 1.1 * SECOND + number * 10 * MILLISECOND for number in range(380)]
        counted = [sum(at <= start < at + SECOND for start in starts) for at in windows]
        assert min(counted) >= 95
        assert max(counted) <= 100

    def test_until_a_breaker_comes_to_its_probes(self) -> None:
        """No sooner and no later."""
        stand = Stand()
        stand.submit(breaker="bank")
        now = stand.clock.now()
        record = BreakerRecord(service="bank", state="OPEN", until=now + 1.5 * SECOND)
        assert stand.store.save_breaker(record, expected_version=0, now=now)
        assert stand.poll() == 1.5 * SECOND
        stand.clock.advance(1.5 * SECOND)
        stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 1

    def test_behind_closed_gates_it_is_the_strategys(self) -> None:
        """Nobody knows when a permit is freed: the rest is that of an idle node, not a hurried one."""
        stand = Stand()
        stand.store.set_limit("gateway", concurrent=0, now=stand.clock.now())
        stand.submit(50, resource="gateway")
        assert stand.poll() >= 2 * SECOND

    def test_a_strategy_of_the_users_is_followed_after_full_batches(self) -> None:
        """The stock strategy goes on at once after a full batch; another one rests as long as it says."""
        stand = Stand(slots=2)
        stand.submit(10)
        stand.wake()
        assert stand.poll() == timedelta()

        class Patient(AdaptivePollingStrategy):
            goes_on_after_full_batch = False

            def next_delay(self, observation: PollObservation) -> timedelta:
                return SECOND if observation.is_empty else 7 * SECOND

        poller = stand.nodes[0].assembly.poller
        stand.nodes[0].assembly.parts.polling = lambda: Patient()
        patient = ManualNode(stand.nodes[0].assembly.parts, slots=2)
        patient.register()
        assert patient.assembly.poller is not poller
        assert stand.poll(patient) == 7 * SECOND


class TestNextDue:
    def test_only_lanes_that_may_have_something_are_asked(self) -> None:
        """The next job of one lane is due soon: until then the others are left alone."""
        stand = Stand()
        stand.submit(after=100 * MILLISECOND)
        assert stand.poll() == 100 * MILLISECOND
        assert stand.store.calls == [Lane.THREAD, set(Lane)]
        stand.clock.advance(100 * MILLISECOND)
        stand.poll()
        assert stand.store.calls == [Lane.THREAD]

    def test_a_wakeup_ends_the_wait(self) -> None:
        """Something new may be for any lane."""
        stand = Stand()
        stand.poll()
        stand.poll()
        assert stand.store.calls == []
        stand.wake()
        stand.poll()
        assert stand.store.calls == [Lane.THREAD, set(Lane)]

    def test_a_due_time_is_trusted_for_a_moment_only(self) -> None:
        """A job that nobody announced is found a quarter of a second later at most."""
        stand = Stand()
        stand.poll()
        stand.submit()
        stand.clock.advance(250 * MILLISECOND)
        stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 1

    def test_polled_too_early_it_rests_until_the_next_job_is_due(self) -> None:
        """A lane that has room wakes the poller: nothing is due, and what is due next is not forgotten."""
        stand = Stand()
        stand.submit(after=100 * MILLISECOND)
        stand.poll()
        stand.clock.advance(60 * MILLISECOND)
        assert stand.poll() == 40 * MILLISECOND


class TestWakeups:
    """What a node that has nothing to do asks its store when something comes."""

    def idle(self, **options: Any) -> Stand:
        """A node that has looked once and found nothing."""
        stand = Stand(**options)
        stand.poll()
        stand.clock.advance(10 * SECOND)
        return stand

    def test_only_the_lane_it_names_is_asked(self) -> None:
        """One claim, and then the job starts; one look at everything else comes after that."""
        stand = self.idle()
        stand.submit(lane=Lane.ASYNC)
        stand.wake(Lane.ASYNC)
        assert stand.poll() == MILLISECOND
        assert stand.store.calls == [Lane.ASYNC]
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 1
        stand.clock.advance(MILLISECOND)
        assert stand.poll() == 500 * MILLISECOND
        assert stand.store.calls == [set(Lane)]
        assert stand.observed == [0, 1], "for the strategy the claim and its look are one poll"

    def test_a_wakeup_that_names_no_lane_is_for_the_last_busy_one(self) -> None:
        """Another process says only that there is something: probably of the same kind as before."""
        stand = self.idle()
        for calls in ([Lane.THREAD, set(Lane), Lane.ASYNC], [Lane.ASYNC]):
            stand.submit(lane=Lane.ASYNC)
            stand.wake()
            stand.poll()
            assert stand.store.calls == calls
            stand.clock.advance(MILLISECOND)
            stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 2

    def test_beaten_to_it_by_another_node(self) -> None:
        """A claim that found nothing, and a look: no second claim, and no hurry."""
        stand = self.idle()
        stand.wake()
        assert stand.poll() >= 500 * MILLISECOND
        assert stand.store.calls == [Lane.THREAD, set(Lane)]

    def test_jobs_of_two_lanes_at_once(self) -> None:
        """Both are claimed for before anything is looked at."""
        stand = self.idle()
        for lane in (Lane.ASYNC, Lane.PROCESS):
            stand.submit(lane=lane)
            stand.wake(lane)
        stand.poll()
        assert sorted(stand.store.lanes) == [Lane.ASYNC, Lane.PROCESS]
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 2

    def test_a_storm_for_one_lane_does_not_hide_another(self) -> None:
        """However fast wakeups follow each other, all lanes are looked at within a twentieth of a second."""
        stand = self.idle()
        stand.submit(lane=Lane.PROCESS)
        lanes: list[Lane] = []
        for _ in range(120):
            stand.submit()
            stand.wake(Lane.THREAD)
            stand.poll()
            lanes += stand.store.lanes
            stand.clock.advance(0.0005)
        assert lanes.count(Lane.PROCESS) == 1

    def test_a_poll_that_nobody_asked_for_claims_nothing(self) -> None:
        """The timer rang: one look at all lanes, suspects included, and where nothing is due nothing else."""
        stand = self.idle()
        stand.poll()
        assert stand.store.calls == [set(Lane)]

    def test_a_job_that_is_due_in_a_moment(self) -> None:
        """A submitter whose clock is a little ahead: the poller rests until then, and no longer."""
        stand = self.idle()
        stand.submit(after=2 * MILLISECOND)
        stand.wake(Lane.THREAD)
        assert stand.poll() == 2 * MILLISECOND
        stand.clock.advance(2 * MILLISECOND)
        stand.poll()
        assert stand.store.calls == [Lane.THREAD]
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 1


class TestFullBatches:
    """What a node asks its store while a lane gets all that it asks for."""

    def busy(self, **stream: Any) -> Stand:
        """A node whose first claim came back full, with more to come."""
        stand = Stand(slots=5)
        stand.submit(100, **stream)
        stand.wake(stream.get("lane"))
        assert stand.poll() == timedelta()
        return stand

    @pytest.mark.parametrize("lane", list(Lane))
    def test_each_costs_one_claim(self, lane: Lane) -> None:
        """The other lanes are left alone: no look at them, and no claim for one of them, between two batches."""
        stand = self.busy(lane=lane)
        asked = []
        for _ in range(8):
            stand.clock.advance(20 * MILLISECOND)
            stand.poll()
            asked += stand.store.calls
        assert asked == [lane] * 8

    def test_a_lane_that_has_enough_is_not_replaced_by_another(self) -> None:
        """While it works off what it has, the others are looked at in vain and not claimed for; then it claims at once."""
        stand = self.busy()
        lane = stand.nodes[0].assembly.coordinator.lanes[Lane.THREAD]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lane, "wanted", lambda: 0)
            stand.clock.advance(SECOND)
            stand.poll()
            assert stand.store.lanes == []
        stand.poll()
        assert stand.store.calls == [Lane.THREAD]

    def test_two_lanes(self) -> None:
        """Both are claimed for without a look."""
        stand = self.busy()
        stand.submit(100, lane=Lane.ASYNC)
        stand.wake(Lane.ASYNC)
        stand.poll()
        stand.clock.advance(20 * MILLISECOND)
        stand.poll()
        assert sorted(stand.store.lanes) == [Lane.ASYNC, Lane.THREAD]
        assert stand.store.calls == stand.store.lanes

    def test_another_lane_is_looked_at_all_the_same(self) -> None:
        """A job that nobody announced waits for a quarter of a second, however busy another lane is."""
        stand = self.busy()
        stand.submit(lane=Lane.ASYNC)
        for _ in range(13):
            stand.clock.advance(20 * MILLISECOND)
            stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 14 * 5 + 1

    def test_what_another_lane_has_is_found_meanwhile(self) -> None:
        """A lane that is full all the time does not hide the others."""
        stand = Stand(slots=2)
        stand.submit(2)
        stand.submit(1, lane=Lane.ASYNC)
        stand.nodes[0].assembly.poller.run_once(stand.clock.now())
        stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 3


class TestPlannedStarts:
    def test_a_node_that_stops_hands_back_what_has_not_started(self) -> None:
        """What waits for its start goes back uncounted; before that it is nobody else's, and the lane does not have it."""
        stand = Stand(ahead=AHEAD)
        (node,) = stand.nodes
        starts = node.assembly.coordinator.planned_starts
        stand.store.set_limit("gateway", rate=10, period=SECOND, now=stand.clock.now())
        stand.submit(15, resource="gateway")
        stand.poll()
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 10
        stand.clock.advance(0.95 * SECOND)
        stand.poll()
        planned = starts.count(Lane.THREAD)
        assert planned > 0
        assert stand.store.counts()[JobStatus.RUNNING] == planned
        assert node.assembly.watch.run_once(stand.clock.now()) == 0
        assert node.assembly.watch.hand_back(float("inf"), stand.clock.now()) == planned
        assert node.assembly.coordinator.idle
        assert stand.store.counts()[JobStatus.PENDING] == 5
        stand.clock.advance(SECOND)
        assert starts.run_once(stand.clock.now()) == 0
        stand.poll()
        stand.clock.advance(AHEAD)
        starts.run_once(stand.clock.now())
        stand.work(node)
        assert stand.store.counts()[JobStatus.SUCCEEDED] > 10


class TestStoodStill:
    """A process that was stopped, or got no time to run, may have been declared dead: it claims nothing until a beat says otherwise."""

    def _late(self, stand: Stand, late: Callable[[], bool]) -> Any:
        poller: Any = stand.nodes[0].assembly.poller
        poller._is_late = late
        return poller

    def test_it_asks_for_nothing(self) -> None:
        """Others would hand back what it claims, while it runs here; it asks again soon."""
        stand = Stand()
        stand.submit()
        late = True
        poller = self._late(stand, lambda: late)
        assert poller.run_once(stand.clock.now()) == 0
        assert stand.store.calls == []
        assert timedelta() < poller.rest < SECOND
        late = False
        assert poller.run_once(stand.clock.now()) == 1

    def test_in_the_middle_of_a_claim(self) -> None:
        """What the claim brought is not started; the beats find it and hand it back."""
        stand = Stand()
        stand.submit()
        answers = iter([False, True])
        poller = self._late(stand, lambda: next(answers, False))
        poller.run_once(stand.clock.now())
        coordinator = stand.nodes[0].assembly.coordinator
        assert not coordinator.held()
        assert coordinator.has_lost_claims()
        heartbeat = stand.nodes[0].assembly.heartbeat
        for _ in range(2):
            stand.clock.advance(1)
            heartbeat.run_once(stand.clock.now())
        (record,) = stand.store.find(JobFilter(), limit=2).items
        assert (record.status, record.attempts) == (JobStatus.PENDING, 0)
