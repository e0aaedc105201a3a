"""When silence is judged: as soon as it is over, after a beat of one's own, and never in the wake of a stall."""

from __future__ import annotations

import pytest

from tests.unit.engine.test_orphans import Observer


def observer_of(*others: str) -> Observer:
    """A node that has watched *others* beat for a while."""
    observer = Observer()
    observer.live(10, others=others)
    return observer


def test_the_rest_lasts_until_a_silence_is_over() -> None:
    """A node that beats no more is due exactly when its silence ends, not a beat later."""
    observer = observer_of("victim")
    assert observer.orphans.rest() == 5.0
    observer.clock.advance(3)
    observer.orphans.look()
    assert observer.orphans.rest() == 2.0


def test_a_beat_that_is_seen_moves_the_end_of_the_silence() -> None:
    """Looking between beats of one's own is enough to see that another lives."""
    observer = observer_of("neighbor")
    observer.clock.advance(3)
    observer.cluster.beat("neighbor", now=observer.clock.now())
    observer.orphans.look()
    assert observer.orphans.rest() == 5.0


def test_a_node_that_is_alone_waits_for_nobody() -> None:
    """Neither its own silence nor anybody else's ends its rest."""
    assert observer_of().orphans.rest() == float("inf")


def test_looking_judges_nobody() -> None:
    """Only `run_once`, which follows a beat of one's own, rescues."""
    observer = observer_of("victim")
    observer.clock.advance(60)
    observer.orphans.look()
    assert observer.cluster.rescued == []


@pytest.mark.parametrize("stall", [3.1, 3.9])
def test_a_stall_of_all_writes_rescues_nobody(stall: float) -> None:
    """
    Every beat is held up for almost as long as two intervals; the neighbor's last one is older by one.

    The observer's own beat comes through first. It must not take the neighbor, whose beat is still
    waiting for the same lock, for dead.
    """
    observer = observer_of("neighbor")
    observer.clock.advance(1.9)
    observer.heartbeat.run_once(observer.clock.now())
    observer.orphans.look()
    observer.clock.advance(stall)
    observer.heartbeat.run_once(observer.clock.now())
    observer.orphans.run_once(observer.clock.now())
    assert observer.cluster.rescued == []


def test_a_process_that_has_ended_is_rescued_at_once() -> None:
    """A supervisor saw it die: its silence is not waited for. Once is enough."""
    observer = observer_of("victim", "neighbor")
    assert observer.orphans.rescue_ended("victim", observer.clock.now())
    assert not observer.orphans.rescue_ended("victim", observer.clock.now())
    assert not observer.orphans.rescue_ended("unknown", observer.clock.now())
    assert observer.cluster.rescued == ["victim"]


def is_late(observer: Observer) -> bool:
    """What the poller asks before it claims."""
    return observer.clock.monotonic() > observer.heartbeat._identity.late_after


def test_a_node_is_late_once_its_silence_is_over() -> None:
    """From then on others may take it for dead; a beat that goes through ends that."""
    observer = observer_of()
    silence = observer.heartbeat.pace.current.silence.total_seconds()
    observer.clock.advance(silence)
    assert not is_late(observer)
    observer.clock.advance(0.1)
    assert is_late(observer)
    observer.heartbeat.run_once(observer.clock.now())
    assert not is_late(observer)
