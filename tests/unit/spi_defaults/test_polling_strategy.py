from __future__ import annotations

import inspect
from datetime import timedelta

import pytest

from ratchet.defaults import polling_strategy
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy, PollingPace
from ratchet.model.errors import ConfigurationError
from ratchet.spi.polling_strategy import PollObservation

WAKE = "wake"


def empty(at: float, utilization: float = 0.5) -> PollObservation:
    return PollObservation(found=0, requested=10, at=at, utilization=utilization)


def half(at: float, utilization: float = 0.5) -> PollObservation:
    return PollObservation(found=5, requested=10, at=at, utilization=utilization)


def full(at: float, utilization: float = 0.5) -> PollObservation:
    return PollObservation(found=10, requested=10, at=at, utilization=utilization)


def delays(*steps: PollObservation | str) -> list[float]:
    """The delays in seconds after each poll; WAKE wakes between two polls."""
    strategy = AdaptivePollingStrategy()
    result: list[float] = []
    for step in steps:
        if isinstance(step, str):
            strategy.woken()
        else:
            result.append(strategy.next_delay(step).total_seconds())
    return result


TABLE = [
    ("steady work polls at the shortest normal delay", [half(0), half(2), half(4)], [2.0, 2.0, 2.0]),
    (
        "empty polls back off exponentially up to the longest normal delay",
        [empty(0), empty(6), empty(18), empty(42), empty(72)],
        [6.0, 12.0, 24.0, 30.0, 30.0],
    ),
    ("work ends the back-off", [empty(0), empty(6), empty(18), half(42)], [6.0, 12.0, 24.0, 2.75]),
    ("two full batches are not yet a rush", [full(0), full(2)], [2.0, 2.0]),
    (
        "three full batches in a row quarter the delay",
        [full(0), full(2), full(4), full(4.5)],
        [2.0, 2.0, 0.5, 0.5],
    ),
    ("a batch that is not full ends the rush", [full(0), full(2), full(4), half(4.5)], [2.0, 2.0, 0.5, 2.0]),
    ("busy workers slow polling down", [half(0, 1.0), half(3, 1.0)], [3.0, 3.0]),
    ("idle workers allow the shortest delay", [half(0, 0.0)], [2.0]),
    ("busy workers slow a rush too", [full(0, 1.0), empty(2, 1.0), full(4, 1.0)], [2.0, 6.0, 2.5]),
    ("nothing for five minutes is deep idle", [half(0), empty(299.9), empty(300)], [2.0, 5.0, 60.0]),
    ("five minutes count from the first poll of a new node", [empty(1000), empty(1300)], [6.0, 60.0]),
    ("deep idle stays until something happens", [empty(0), empty(300), empty(360)], [6.0, 60.0, 60.0]),
    ("work ends deep idle", [empty(0), empty(300), half(360), half(362)], [6.0, 60.0, 8 / 3, 2.5]),
    ("a wakeup ends deep idle with a burst", [empty(0), empty(300), WAKE, half(301)], [6.0, 60.0, 0.5]),
    ("the burst goes on while there is work", [WAKE, half(0), full(0.5), half(1)], [0.5, 0.5, 0.5]),
    ("the burst survives the poll it caused", [WAKE, empty(0), half(0.5)], [0.5, 0.5]),
    ("the burst ends with the next empty poll", [WAKE, half(0), empty(0.5)], [0.5, 5.0]),
    ("the burst ends with the second empty poll", [WAKE, empty(0), empty(0.5)], [0.5, 6.0]),
    ("a second wakeup renews the burst", [WAKE, empty(0), WAKE, empty(0.5), empty(1)], [0.5, 0.5, 6.0]),
    ("a wakeup starts the five minutes anew", [empty(0), WAKE, empty(290), empty(310)], [6.0, 0.5, 6.0]),
    ("a clock that stands still is no idleness", [empty(7), empty(7), empty(7)], [6.0, 12.0, 24.0]),
]


class TestAdaptivePolling:
    @pytest.mark.parametrize(
        ("steps", "expected"), [row[1:] for row in TABLE], ids=[row[0].replace(" ", "_") for row in TABLE]
    )
    def test_table(self, steps: list[PollObservation | str], expected: list[float]) -> None:
        """Each row is one rule of the documented algorithm."""
        assert delays(*steps) == pytest.approx(expected)

    def test_the_window_forgets_after_ten_polls(self) -> None:
        """A trend older than the last ten polls no longer weighs on the delay."""
        busy_once = delays(*[full(t * 2.0) for t in range(3)], *[half(10 + t * 2.0) for t in range(10)])
        assert busy_once[-1] == delays(*[half(t * 2.0) for t in range(10)])[-1]

    @pytest.mark.parametrize("utilization", [-1.0, 0.0, 0.3, 1.0, 7.0])
    @pytest.mark.parametrize("found", [-1, 0, 1, 10, 500])
    def test_every_delay_is_within_its_mode(self, found: int, utilization: float) -> None:
        """Whatever is observed, a delay is the burst, a normal delay, a quarter of one, or deep idle."""
        strategy = AdaptivePollingStrategy()
        for step in range(400):
            delay = strategy.next_delay(PollObservation(found, 10, step * 1.0, utilization)).total_seconds()
            assert 0.5 <= delay <= 30 or delay == 60

    def test_asking_for_nothing_is_not_a_full_batch(self) -> None:
        """A node without free slots asks for nothing; that is no sign of a backlog."""
        assert not PollObservation(found=0, requested=0, at=0.0).is_full

    def test_it_reads_no_clock(self) -> None:
        """Time comes in with the observations only, so that a manual clock drives it."""
        assert not hasattr(polling_strategy, "time")
        assert "monotonic()" not in inspect.getsource(polling_strategy)

    def test_the_pace_can_be_changed(self) -> None:
        """Every number of the algorithm is a setting."""
        strategy = AdaptivePollingStrategy(PollingPace(burst=timedelta(milliseconds=50)))
        strategy.woken()
        assert strategy.next_delay(half(0)) == timedelta(milliseconds=50)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"burst": timedelta(0)},
            {"burst": timedelta(seconds=3)},
            {"shortest": timedelta(seconds=31)},
            {"longest": timedelta(seconds=61)},
            {"window": 0},
            {"deep_idle_after": timedelta(0)},
        ],
    )
    def test_a_contradictory_pace_is_refused(self, wrong: dict[str, timedelta]) -> None:
        """Delays out of order are a configuration error, not a strange rhythm."""
        with pytest.raises(ConfigurationError):
            PollingPace(**wrong)  # type: ignore[arg-type]
