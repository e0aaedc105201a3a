"""Jobs that were running in two crashes run one at a time, and one right after the other."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

from ratchet.model.claim import ClaimRequest
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import NodeSpec, Rescue
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from ratchet.testing import ManualScheduler, manual_scheduler

ran: list[int] = []


def work(number: int) -> None:
    ran.append(number)


def crash(scheduler: ManualScheduler, name: str) -> None:
    """A node takes everything and dies."""
    store, now = scheduler._core.store, scheduler.clock.now()
    store.register(
        NodeSpec(
            node_id=name,
            name=name,
            host="h",
            pid=1,
            version="0",
            beat_interval=timedelta(seconds=2),
            silence=timedelta(seconds=5),
        ),
        now=now,
    )
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
