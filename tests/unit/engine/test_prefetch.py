"""How many runs a lane asks for, and when it asks by itself."""

from __future__ import annotations

from typing import cast

from ratchet.engine.lanes.slots import Prefetch, RunBuffer, missing
from ratchet.engine.run import Run


class Waiting:
    """Runs that wait, as far as their number matters."""

    def __init__(self, runs: int) -> None:
        self.buffer = RunBuffer()
        for _ in range(runs):
            self.buffer.add(cast(Run, object.__new__(Run)))


def measured(rate: float = 5000.0) -> Prefetch:
    """One whose lane starts so many runs a second."""
    prefetch = Prefetch(window=0.1, limit=500)
    prefetch.rate.per_second = rate
    return prefetch


class TestMissing:
    def test_free_slots_are_filled_whatever_the_rate(self) -> None:
        """A lane that has measured nothing asks for its free slots."""
        assert missing(free=20, waiting=0, ahead=0) == 20

    def test_nothing_while_more_than_half_is_there(self) -> None:
        """A claim for a few runs would cost as much as one for hundreds."""
        assert missing(free=20, waiting=251, ahead=500) == 0

    def test_the_rest_when_half_is_gone(self) -> None:
        """Then everything that is missing is asked for at once."""
        assert missing(free=20, waiting=250, ahead=500) == 270

    def test_idle_slots_are_never_left_waiting(self) -> None:
        """Fewer waiting runs than free slots: more are wanted, however few are planned ahead."""
        assert missing(free=20, waiting=5, ahead=4) == 19


class TestPrefetch:
    def test_asks_once_when_half_is_gone(self) -> None:
        """Its lane had enough and could not ask: the first start at the mark asks, the next ones do not."""
        prefetch = measured()
        full = Waiting(400).buffer
        assert prefetch.wanted(full, slots=20, running=20, now=0.0) == 0
        assert not prefetch.should_ask(300)
        assert prefetch.should_ask(250)
        assert not prefetch.should_ask(249)

    def test_asks_for_nothing_after_a_claim_that_came_back_short(self) -> None:
        """There is nothing more to have: the end of a run is no reason to look again."""
        prefetch = measured(rate=0.0)
        assert prefetch.wanted(Waiting(0).buffer, slots=20, running=0, now=0.0) == 20
        prefetch.got(3)
        assert not prefetch.should_ask(0)

    def test_asks_after_a_claim_that_came_back_full(self) -> None:
        """There may be more: it asks as soon as there is room."""
        prefetch = measured(rate=0.0)
        assert prefetch.wanted(Waiting(0).buffer, slots=20, running=0, now=0.0) == 20
        prefetch.got(20)
        assert prefetch.should_ask(0)

    def test_a_busy_lane_asks_when_a_slot_is_free(self) -> None:
        """All slots run long jobs, so nothing could be asked for; the first that ends makes room."""
        prefetch = measured(rate=0.0)
        assert prefetch.wanted(Waiting(0).buffer, slots=20, running=20, now=0.0) == 0
        assert prefetch.should_ask(0)
