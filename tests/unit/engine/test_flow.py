"""What a node counts and stores of each minute: once, in rows of its own, and nothing while it is idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from ratchet import ManualClock, Options, StoreUnavailable
from ratchet.engine.flow import MOST_MINUTES, FlowRecorder
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.rota import Rota
from ratchet.model.flow_history import LOAD, MINUTE, TOTAL, FlowPeriod, floor
from ratchet.model.identifiers import new_id
from ratchet.model.job import StreamKey
from ratchet.model.load import COUNTED, Load, StreamLoad
from ratchet.stores.memory.store import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler


def work() -> None:
    """Do nothing."""


def fail() -> None:
    raise ValueError("no")


def long(number: int) -> None:
    """Take three minutes, in which the service of the recorder, a thread of its own, comes by."""
    rig = RIGS[number]
    for seconds in (80, 120):
        rig.clock.advance(seconds)
        rig.recorder.run_once(rig.clock.now())


class Rig:
    """A scheduler on a manual clock that begins at a full minute, and what its store was told."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.clock.advance(floor(self.clock.now(), MINUTE) + MINUTE - self.clock.now())
        self.store = Recording(self.clock.now)
        self.scheduler: ManualScheduler = manual_scheduler(
            clock=self.clock, store=self.store, options=Options(**options)
        )
        self.scheduler.drain()
        self.begin = self.clock.now()

    @property
    def recorder(self) -> FlowRecorder:
        found = self.scheduler._core.manual.assembly.flow
        assert found is not None
        return found

    def submit(self, count: int = 1, queue: str = "default", target: Callable[[], None] = work) -> None:
        for _ in range(count):
            self.scheduler.enqueue(target).with_queue(queue).submit()

    def next_minute(self, seconds: float = 10) -> datetime:
        """Go on to a time in the next minute at which every node has stored the last one."""
        now = self.clock.now()
        self.clock.advance(floor(now, MINUTE) + MINUTE + timedelta(seconds=seconds) - now)
        self.scheduler.drain()
        return self.clock.now()

    def runs(self) -> list[FlowPeriod]:
        """What nodes have stored."""
        return [one for one in self.periods() if one.source != LOAD]

    def periods(self) -> list[FlowPeriod]:
        """Everything that is stored."""
        return self.store.flow(since=self.begin - timedelta(days=400), until=self.begin + timedelta(days=400))


RIGS: dict[int, Rig] = {}


class Recording(MemoryStore):
    """A store that counts the calls which write rates, and can refuse them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(now)
        self.written: list[Sequence[FlowPeriod]] = []
        self.refuses = False

    def record_flow(self, periods: Sequence[FlowPeriod]) -> int:
        if self.refuses:
            raise StoreUnavailable("gone")
        self.written.append(list(periods))
        return super().record_flow(periods)


class TestCounting:
    def test_how_runs_ended(self) -> None:
        """Started is what succeeded, failed and is to be retried, by queue; waits and run times are with it."""
        rig = Rig()
        rig.submit(3, "mail")
        rig.submit(2, target=fail)
        rig.scheduler.enqueue(fail).with_max_retries(1).with_queue("mail").submit()
        rig.clock.advance(2)
        rig.scheduler.drain()
        rig.next_minute()
        (period,) = rig.runs()
        assert (period.at, period.source) == (rig.begin, rig.scheduler._core.manual.node_id)
        mail, default = period.runs["mail"], period.runs["default"]
        assert (default.started, default.succeeded, default.failed, default.retried) == (2, 0, 2, 0)
        # the retry of the last one came due at once, and has failed for good
        assert (mail.started, mail.succeeded, mail.failed, mail.retried) == (5, 3, 1, 1)
        assert sum(mail.wait.values()) == sum(mail.run.values()) == 5

    def test_a_minute_is_stored_once(self) -> None:
        """However often the service comes by; an idle node stores nothing."""
        rig = Rig()
        rig.submit(2)
        rig.scheduler.drain()
        for _ in range(5):
            rig.clock.advance(7)
            rig.scheduler.drain()
        assert rig.runs() == []
        rig.next_minute()
        for _ in range(5):
            rig.next_minute()
        (period,) = rig.runs()
        assert period.runs["default"].succeeded == 2
        assert len(rig.store.written) == 2  # the minute, and that nothing waits after it

    def test_a_run_that_goes_on_counts_when_it_starts(self) -> None:
        """In the minute of its start, although it ends three minutes later, and once."""
        rig = RIGS[1] = Rig()
        rig.scheduler.enqueue(long, 1).submit()
        rig.scheduler.drain()
        rig.next_minute()
        started = [(one.at, one.runs["default"].started, one.runs["default"].succeeded) for one in rig.runs()]
        assert started == [(rig.begin, 1, 0), (rig.begin + 3 * MINUTE, 0, 1)]

    def test_a_late_commit_counts_in_a_minute_that_is_open(self) -> None:
        """What is committed with a time whose minute was stored already is not lost."""
        rig = Rig()
        rig.submit(1)
        rig.scheduler.drain()
        late = rig.clock.now()
        rig.next_minute()
        rig.submit(1)
        rig.scheduler.drain()
        node = rig.scheduler._core.manual.assembly
        rig.submit(1)
        node.poller.woken()
        node.poller.run_once(rig.clock.now())
        for lane in node.coordinator.lanes.values():
            lane.step()  # type: ignore[attr-defined]  # an inline lane
        node.completer.run_once(late)
        rig.next_minute()
        assert [one.runs["default"].succeeded for one in rig.runs()] == [1, 2]

    def test_many_queues(self) -> None:
        """Those beyond the limit of a minute are counted together."""
        rig = Rig(metric_labels=3)
        for number in range(6):
            rig.submit(1, f"q{number}")
        rig.scheduler.drain()
        rig.next_minute()
        (period,) = rig.runs()
        assert {name: tally.succeeded for name, tally in period.runs.items()} == {
            "q0": 1,
            "q1": 1,
            "q2": 1,
            "other": 3,
            TOTAL: 6,
        }

    def test_turned_off(self) -> None:
        """Without a retention nothing is counted or stored."""
        rig = Rig(history_retention=None)
        rig.submit(2)
        rig.scheduler.drain()
        rig.next_minute()
        assert rig.scheduler._core.manual.assembly.flow is None
        assert rig.periods() == []


class TestStoring:
    def test_a_node_that_stops_stores_its_last_minute(self) -> None:
        """Before it is over: nobody else could."""
        rig = Rig()
        rig.submit(3)
        rig.scheduler.drain()
        rig.scheduler._core.manual.close()
        (period,) = rig.runs()
        assert period.runs["default"].started == 3

    def test_a_store_that_does_not_answer(self) -> None:
        """Minutes are kept for the next time, but not for ever; nothing is counted twice."""
        rig = Rig()
        rig.store.refuses = True
        for _ in range(MOST_MINUTES + 5):
            rig.submit(1)
            node = rig.scheduler._core.manual
            node.assembly.flow, recorder = None, rig.recorder
            rig.scheduler.drain()
            node.assembly.flow = recorder
            rig.clock.advance(MINUTE)
            with pytest.raises(StoreUnavailable):
                recorder.run_once(rig.clock.now() + timedelta(seconds=10))
        rig.store.refuses = False
        rig.next_minute()
        stored = rig.runs()
        assert len(stored) == MOST_MINUTES
        assert all(period.runs["default"].succeeded == 1 for period in stored)

    def test_what_waits_is_looked_at_once_a_minute(self) -> None:
        """By one node; when nothing waits any more that is said once, and then nothing is written."""
        rig = Rig()
        rig.scheduler.queues.pause("mail")
        rig.submit(4, "mail")
        rig.next_minute()
        rig.next_minute()
        samples = [one for one in rig.periods() if one.source == LOAD]
        assert [(one.depths["mail"].due, one.depths[TOTAL].due) for one in samples] == [(4, 4), (4, 4)]
        assert samples[1].depths["mail"].oldest_us == 130_000_000
        rig.scheduler.queues.resume("mail")
        rig.scheduler.drain()
        rig.next_minute()
        written = len(rig.store.written)
        assert [one for one in rig.periods() if one.source == LOAD][-1].depths[TOTAL].due == 0
        for _ in range(3):
            rig.next_minute()
        assert len(rig.store.written) == written

    def test_another_node_has_looked(self) -> None:
        """Then this one writes nothing about what waits."""
        rig = Rig()
        rig.scheduler.queues.pause("mail")
        rig.submit(1, "mail")
        minute = rig.begin + MINUTE
        rig.store.record_flow([FlowPeriod(at=minute, source=LOAD)])
        rig.next_minute()
        assert len(rig.store.written) == 1  # the line above

    def test_old_minutes_are_merged_and_deleted(self) -> None:
        """After three hours ten minutes are one row, and after the retention there is none."""
        rig = Rig(history_retention=timedelta(hours=6))
        for _ in range(60 * 8):
            rig.submit(1)
            rig.next_minute()
        periods = rig.periods()
        age = rig.clock.now() - periods[0].at
        assert age <= timedelta(hours=6, minutes=10)
        assert len([one for one in periods if one.seconds == 600]) in (17, 18, 19)
        assert all(
            rig.clock.now() - one.at < timedelta(hours=3, minutes=11) for one in periods if one.seconds == 60
        )
        assert sum(one.runs["default"].started for one in periods if one.seconds == 600) == 10 * len(
            [one for one in periods if one.seconds == 600]
        )

    def test_a_clock_that_was_set_back(self) -> None:
        """The node goes on counting."""
        rig = Rig()
        rig.submit(1)
        rig.next_minute()
        rig.recorder.run_once(rig.begin - timedelta(hours=2))
        rig.submit(1)
        rig.next_minute()
        rig.next_minute()
        assert sum(one.runs["default"].succeeded for one in rig.runs()) == 2


class Waiting(Recording):
    """A store in which so many jobs wait, and that counts how often it is asked for that."""

    due = 0
    asked = 0

    def load(self, *, now: datetime, most: int = COUNTED) -> Load:
        self.asked += 1
        stream = StreamLoad(stream_id=1, key=StreamKey(), due=self.due, first_at=now)
        return Load(streams=(stream,), pending=self.due)


def test_nodes_take_turns_in_looking_at_what_waits() -> None:
    """
    In each minute one of three nodes without work asks the store. What waits is kept for each minute until nothing waits, and
    then that, once, although another node had seen the jobs.
    """
    clock = ManualClock()
    clock.advance(floor(clock.now(), MINUTE) + MINUTE - clock.now())
    store = Waiting(clock.now)
    members: list[str] = []
    recorders = []
    for name in ("a", "b", "c"):
        identity = NodeIdentity(new_id, name)
        members.append(identity.node_id)
        rota = Rota(lambda: members, lambda identity=identity: identity.node_id)  # type: ignore[misc]  # bound now
        recorders.append(
            FlowRecorder(
                store,
                identity=identity,
                retention=timedelta(days=1),
                most_queues=10,
                held=list,
                is_turn=lambda minute, rota=rota: rota.is_turn(60.0, minute),  # type: ignore[misc]
            )
        )
    clock.advance(10)  # each node looks at another second
    for recorder in recorders:
        recorder.run_once(clock.now())
    depths = []
    for due in (2, 3, 0, 0, 0, 1, 0):
        store.due = due
        written = len(store.written)
        clock.advance(60)
        for recorder in recorders:
            recorder.run_once(clock.now())
        stored = [one.depths for many in store.written[written:] for one in many]
        depths.append([found[TOTAL].due if TOTAL in found else 0 for found in stored])
    assert depths == [[2], [3], [0], [], [], [1], [0]]
    assert store.asked == 7
