"""How often a node beats: always as often as its work, and the nodes it watches, need it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet.engine.pace import IDLE_BEATS, Pace
from ratchet.model.errors import StoreUnavailable
from ratchet.model.options import Liveness
from tests.unit.engine.test_orphans import EMBEDDED, WORKER, Observer

MINUTE = timedelta(minutes=1)


def beat(observer: Observer, times: int = 1) -> None:
    """Beats at the pace in force, as the service sends them."""
    for _ in range(times):
        observer.clock.advance(observer.heartbeat.interval.total_seconds())
        observer.heartbeat.run_once(observer.clock.now())


def live(observer: Observer, seconds: float, *, others: tuple[str, ...] = (), step: float = 0.5) -> None:
    """The heartbeat's service, step by step: look often, beat when it is time, judge after a beat."""
    last = observer.clock.monotonic()
    until = last + seconds
    while observer.clock.monotonic() < until:
        observer.clock.advance(step)
        for other in others:
            observer.cluster.beats[other] += 1
        at = observer.clock.monotonic()
        try:
            if at >= last + observer.heartbeat.interval.total_seconds() or observer.orphans.rest() <= 0:
                observer.heartbeat.run_once(observer.clock.now())
                last = at
                observer.orphans.run_once(observer.clock.now())
            else:
                observer.orphans.look()
        except StoreUnavailable:
            pass


def test_without_the_option_the_pace_never_changes() -> None:
    """An idle node beats like a busy one: 2 s and 5 s, however long nothing happens."""
    observer = Observer(WORKER)
    beat(observer, 100)
    assert observer.heartbeat.pace.current == WORKER
    assert not observer.heartbeat.pace.is_slow


def test_a_node_without_work_slows_down_and_says_so() -> None:
    """Interval and silence grow in proportion, step by step, to the limit; each step is declared with its beat."""
    observer = Observer(EMBEDDED, MINUTE)
    observer.heartbeat.register(observer.clock.now())
    beat(observer, 30 * IDLE_BEATS)
    assert [change.beat_interval.total_seconds() for change in observer.cluster.changes] == [10, 20, 40, 60]
    assert [change.silence.total_seconds() for change in observer.cluster.changes] == [30, 60, 120, 180]
    assert observer.heartbeat.interval == MINUTE


def test_work_brings_the_usual_pace_back() -> None:
    """With the first job the node is pressed to beat, and that very beat declares the short silence again."""
    observer = Observer(EMBEDDED, MINUTE)
    observer.heartbeat.register(observer.clock.now())
    beat(observer, 30)
    assert not observer.heartbeat.must_beat
    observer.runs.count = 1
    assert observer.heartbeat.must_beat
    observer.heartbeat.run_once(observer.clock.now())
    assert not observer.heartbeat.must_beat
    last = observer.cluster.changes[-1]
    assert Liveness(last.beat_interval, last.silence) == EMBEDDED
    beat(observer, 30)
    assert observer.heartbeat.interval == EMBEDDED.heartbeat, "a busy node does not slow down"


def test_a_beat_without_an_answer_leaves_nothing_to_guess() -> None:
    """Whether a change was written is unknown then: the node beats as often as the shortest silence needs, and declares it again."""
    observer = Observer(EMBEDDED, MINUTE)
    observer.heartbeat.register(observer.clock.now())
    beat(observer, 30)
    observer.cluster.changes.clear()
    observer.cluster.away = True
    with pytest.raises(StoreUnavailable):
        beat(observer)
    assert observer.heartbeat.interval == EMBEDDED.heartbeat
    observer.cluster.away = False
    beat(observer)
    assert [change.silence for change in observer.cluster.changes] == [EMBEDDED.silence]


def test_a_limit_below_the_usual_pace_changes_nothing() -> None:
    """``idle_heartbeat`` only ever slows down."""
    pace = Pace(EMBEDDED, timedelta(seconds=1))
    for _ in range(20):
        pace.declared(pace.wanted(busy=False), busy=False)
    assert pace.current == EMBEDDED


@pytest.mark.parametrize(("usual", "slowest"), [(EMBEDDED, None), (EMBEDDED, MINUTE), (WORKER, MINUTE)])
def test_a_slow_observer_keeps_up_with_whom_it_judges(usual: Liveness, slowest: timedelta | None) -> None:
    """It beats with the one that has become quiet, and rescues it within two of its silences."""
    observer = Observer(usual, slowest)
    observer.heartbeat.register(observer.clock.now())
    observer.cluster.beats["victim"] = 7
    live(observer, 600, others=("victim",))
    assert observer.cluster.rescued == []
    live(observer, 2 * WORKER.silence.total_seconds())
    assert observer.cluster.rescued == ["victim"]


@pytest.mark.parametrize("slowest", [None, MINUTE])
@pytest.mark.parametrize("outage", [2.5, 3.0, 4.5, 6.0, 8.5, 9.5, 20.0])
@pytest.mark.parametrize("phase", [0.0, 1.0, 2.5, 4.0])
def test_an_outage_between_two_of_its_own_beats_rescues_nobody(
    outage: float, phase: float, slowest: timedelta | None
) -> None:
    """A node that beats every 5 s, or rarely, missed nothing itself; those that beat every 2 s were held up all the same."""
    observer = Observer(EMBEDDED, slowest)
    observer.heartbeat.register(observer.clock.now())
    observer.cluster.beats["neighbor"] = 7
    live(observer, 600 + phase, others=("neighbor",))
    observer.cluster.away = True
    live(observer, outage)
    observer.cluster.away = False
    live(observer, 2.0)  # the neighbor is a beat slower to come back
    live(observer, 60, others=("neighbor",))
    assert observer.cluster.rescued == []


def test_time_in_which_its_own_beats_were_late_does_not_count() -> None:
    """All beats are held up; the observer's comes through first, and the neighbor's, an interval older, in the next moment."""
    observer = Observer(WORKER)
    observer.heartbeat.register(observer.clock.now())
    observer.cluster.beats["neighbor"] = 7
    observer.live(60, others=("neighbor",))
    observer.clock.advance(1.9)
    observer.heartbeat.run_once(observer.clock.now())
    for pause in (2.95, 0.2):  # held up, and once more as soon as the neighbor's silence might be over
        observer.clock.advance(pause)
        observer.heartbeat.run_once(observer.clock.now())
        observer.orphans.run_once(observer.clock.now())
    observer.live(60, others=("neighbor",))
    assert observer.cluster.rescued == []


def test_a_node_that_finds_itself_dead_counts_it() -> None:
    """A false rescue: its work is dropped, and the new incarnation says how often, and whose place it took."""
    observer = Observer(WORKER)
    observer.heartbeat.register(observer.clock.now())
    observer.runs.count = 3
    (old,) = observer.cluster.beats
    observer.cluster.dead.add(old)
    assert not observer.heartbeat.run_once(observer.clock.now())
    assert (observer.heartbeat.false_rescues, observer.heartbeat.replaces) == (1, old)
    assert observer.runs.idle
    assert len(observer.cluster.beats) == 2
