"""Jobs that were running in two crashes run one at a time, and one right after the other."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from ratchet.engine.suspects import LEFT_TO_OTHERS, LONGEST_TURN, SuspectTurns
from ratchet.model.claim import ClaimRequest
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import NodeSpec, Rescue
from ratchet.model.identifiers import new_id
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from ratchet.testing import manual_scheduler
from tests.support.waiting import until

ran: list[int] = []


def work(number: int) -> None:
    ran.append(number)


class Stage:
    """What jobs on threads saw of each other."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.running, self.go = threading.Event(), threading.Event()
        self.active = 0
        self.seen: dict[str, int] = {}
        self.is_alone = self.overlapped = False


stage = Stage()


def hold() -> None:
    """Runs until the test lets it go."""
    stage.active += 1
    stage.running.set()
    stage.go.wait(30)
    stage.active -= 1


def alone() -> None:
    """Sees who runs beside it."""
    stage.seen["alone"] = stage.active
    stage.is_alone = True
    threading.Event().wait(0.3)
    stage.is_alone = False


def join() -> None:
    """Must not run beside `alone`."""
    stage.overlapped = stage.overlapped or stage.is_alone


def spec(name: str) -> NodeSpec:
    return NodeSpec(
        node_id=name,
        name=name,
        host="h",
        pid=1,
        version="0",
        beat_interval=timedelta(seconds=2),
        silence=timedelta(seconds=5),
    )


def crash(scheduler: Scheduler, name: str) -> None:
    """A node takes everything and dies."""
    store, now = scheduler.backend.store, scheduler.backend.now()
    store.register(spec(name), now=now)
    assert store.claim_next_batch(ClaimRequest(node_id=name, claim_id=new_id(), limit=10), now=now)
    (node,) = (node for node in store.nodes() if node.node_id == name)
    store.rescue(name, seen_beat=node.beat, by="test", max_crashes=3, now=now)


def test_the_end_of_a_suspect_starts_the_next() -> None:
    """Three suspects run in one go: the end of each wakes the poller, which does not wait for its next look."""
    ran.clear()
    with closing(manual_scheduler()) as scheduler:
        handles = [scheduler.enqueue_now(work, number) for number in range(3)]
        crash(scheduler, "first")
        crash(scheduler, "second")
        assert [handle.job().crashes for handle in handles] == [2, 2, 2]
        wakes: list[int] = []
        announcer = scheduler._core.manual.assembly.announcer
        announcer._wake = lambda: wakes.append(len(ran))
        assert scheduler.drain() == 3
        assert ran == [0, 1, 2]
        assert wakes == [1, 2, 3]
        assert {handle.status() for handle in handles} == {JobStatus.SUCCEEDED}


def test_an_ordinary_end_wakes_nobody() -> None:
    """Where nothing follows from an end, the poller is left alone: lanes that run dry call it themselves."""
    ran.clear()
    with closing(manual_scheduler()) as scheduler:
        handle = scheduler.enqueue_now(work, 1)
        crash(scheduler, "first")
        wakes: list[int] = []
        scheduler._core.manual.assembly.announcer._wake = lambda: wakes.append(1)
        assert scheduler.drain() == 1
        assert handle.status() is JobStatus.SUCCEEDED
        assert wakes == []


def test_a_suspect_waits_for_no_more_than_the_next_look() -> None:
    """A poll right after a look for suspects leaves it out, but rests only until the next look is due."""
    with closing(manual_scheduler()) as scheduler:
        scheduler.drain()
        poller, clock = scheduler._core.manual.assembly.poller, scheduler.clock
        assert isinstance(clock, ManualClock)
        clock.advance(10)
        poller.run_once(clock.now())
        assert poller.rest > timedelta(seconds=1), "a look found nothing, and nobody was woken"
        clock.advance(0.25)
        poller.run_once(clock.now())
        assert poller.rest == timedelta(seconds=0.75)


def test_a_rescue_wakes_the_other_nodes() -> None:
    """The node that takes a dead one's work back may have no room for it."""
    with closing(manual_scheduler()) as scheduler:
        calls: list[str] = []
        announcer = scheduler._core.manual.assembly.announcer
        announcer._wake = lambda: calls.append("here")
        announcer._spread = lambda: calls.append("elsewhere")
        announcer.rescued(Rescue(node_id="dead", requeued=(new_id(),)))
        assert calls == ["here", "elsewhere"]


class TestAlone:
    """While a suspect runs, its node starts nothing else."""

    def test_nothing_is_claimed_beside_a_suspect(self) -> None:
        """A suspect is held, ordinary jobs come: they are claimed when it has ended, not before."""
        ran.clear()
        with closing(manual_scheduler()) as scheduler:
            handle = scheduler.enqueue_now(work, 0)
            crash(scheduler, "first")
            crash(scheduler, "second")
            node = scheduler._core.manual
            node.register()
            poller, clock = node.assembly.poller, scheduler.clock
            for lane in node.assembly.coordinator.lanes.values():
                lane.slots = 3
            assert poller.run_once(clock.now()) == 1
            others = [scheduler.enqueue_now(work, number) for number in (1, 2)]
            for _ in range(5):
                poller.woken()
                clock.advance(1)
                assert poller.run_once(clock.now()) == 0
            assert [other.status() for other in others] == [JobStatus.PENDING] * 2
            assert handle.status() is JobStatus.RUNNING
            assert scheduler.drain() == 3
            assert ran == [0, 1, 2]

    def test_the_others_are_told_why_they_wait(self) -> None:
        """While the suspect runs, its node has no slot for anybody else, and `explain` names the suspect."""
        stage.clear()
        options = Options(heartbeat=0.1, idle_heartbeat=0.1, silence=30)
        with closing(Scheduler("sqlite:///:memory:", allow=[__name__], options=options)) as scheduler:
            suspect = scheduler.enqueue_now(hold)
            crash(scheduler, "first")
            crash(scheduler, "second")
            assert "suspect" in {reason.code for reason in suspect.explain()}
            with scheduler:
                until(stage.running.is_set, 20)
                other = scheduler.enqueue_now(work, 1)
                until(lambda: [reason.code for reason in other.explain()] == ["slots_full"], 20)
                (reason,) = other.explain()
                assert [blocker.job_id for blocker in reason.blockers] == [suspect.id]
                assert "runs alone" in reason.text
                stage.go.set()
                other.wait(timeout=20)

    def test_what_has_not_started_goes_back(self) -> None:
        """A node with claims that have not started hands them back, and then claims the suspect alone."""
        with closing(manual_scheduler()) as scheduler:
            suspect = scheduler.enqueue_now(work, 0)
            crash(scheduler, "first")
            crash(scheduler, "second")
            others = [scheduler.enqueue_now(work, number) for number in (1, 2, 3)]
            node = scheduler._core.manual
            node.register()
            clock, held = scheduler.clock, node.assembly.coordinator.held
            for lane in node.assembly.coordinator.lanes.values():
                lane.slots = 3
            poller = node.assembly.poller
            assert poller.run_once(clock.now()) == 3
            assert {run.job_id for run in held()} == {other.id for other in others}
            clock.advance(1)
            poller.woken()
            poller.run_once(clock.now())
            clock.advance(1)
            poller.run_once(clock.now())
            poller.run_once(clock.now())
            assert [run.job_id for run in held()] == [suspect.id]
            assert [(job.status(), job.job().crashes) for job in others] == [(JobStatus.PENDING, 0)] * 3
            ran.clear()
            assert scheduler.drain() == 4
            assert ran[0] == 0

    def test_what_runs_is_waited_for(self, tmp_path: Path) -> None:
        """A thread runs an ordinary job when the suspect comes: the suspect starts after its end, and before the others."""
        stage.clear()
        options = Options(concurrency=3)
        with closing(
            Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", options=options, allow=[__name__])
        ) as scheduler:
            suspect = scheduler.enqueue_now(alone)
            for name in ("first", "second"):
                crash(scheduler, name)
            scheduler.enqueue_now(hold)
            scheduler.start()
            assert stage.running.wait(10)
            until(lambda: scheduler.backend.node.assembly.poller._turns.is_on)
            others = [scheduler.enqueue_now(join) for _ in range(5)]
            stage.go.set()
            suspect.result(timeout=20)
            for other in others:
                other.result(timeout=20)
        assert stage.seen == {"alone": 0}
        assert stage.overlapped is False


class TestTurns:
    """Suspects and other work take turns, so that neither waits for ever."""

    def test_a_busy_node_leaves_a_suspect_to_idle_ones_first(self) -> None:
        """An idle node begins at once; a busy one a second after it has first seen the suspect."""
        turns = SuspectTurns()
        assert turns.may_begin(10.0, idle=True)
        turns.due_since = None
        assert not turns.may_begin(10.0, idle=False)
        assert not turns.may_begin(10.0 + LEFT_TO_OTHERS / 2, idle=False)
        assert turns.may_begin(10.0 + LEFT_TO_OTHERS, idle=False)

    def test_a_turn_that_is_too_long_gives_the_others_as_much_time(self) -> None:
        """Suspects have run for a minute and more: for as long, a busy node does not stop for the next ones."""
        turns = SuspectTurns()
        turns.begin(0.0)
        turns.ran()
        assert not turns.is_too_long(LONGEST_TURN - 1)
        assert turns.is_too_long(LONGEST_TURN + 10)
        turns.end(LONGEST_TURN + 10)
        turns.may_begin(LONGEST_TURN + 10, idle=False)
        assert not turns.may_begin(2 * LONGEST_TURN + 19, idle=False)
        assert turns.may_begin(2 * LONGEST_TURN + 20, idle=False)
        assert turns.may_begin(LONGEST_TURN + 11, idle=True)

    def test_a_wait_in_vain_makes_the_next_one_longer(self) -> None:
        """What runs for longer than a turn is waited for in the end: each turn in vain doubles the next, until one runs."""
        turns = SuspectTurns()
        turns.begin(0.0)
        turns.end(LONGEST_TURN)
        turns.begin(1000.0)
        assert not turns.is_too_long(1000.0 + 2 * LONGEST_TURN - 1)
        assert turns.is_too_long(1000.0 + 2 * LONGEST_TURN)
        turns.ran()
        turns.end(1000.0 + 1)
        turns.begin(2000.0)
        assert turns.is_too_long(2000.0 + LONGEST_TURN)
