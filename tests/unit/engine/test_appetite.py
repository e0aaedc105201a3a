"""How much a lane asks for, and when it speaks up by itself."""

from __future__ import annotations

from typing import cast

from ratchet.engine.lanes.buffer import Appetite, RunBuffer, prefetch
from ratchet.engine.run import Run


class Waiting:
    """Runs that wait, as far as their number matters."""

    def __init__(self, runs: int) -> None:
        self.buffer = RunBuffer()
        for _ in range(runs):
            self.buffer.add(cast(Run, object.__new__(Run)))


def hungry(rate: float = 5000.0) -> Appetite:
    """One whose lane starts so many runs a second."""
    appetite = Appetite(window=0.1, limit=500)
    appetite.rate.per_second = rate
    return appetite


class TestPrefetch:
    def test_free_slots_are_filled_whatever_the_rate(self) -> None:
        """A lane that has measured nothing asks for its free slots."""
        assert prefetch(free=20, waiting=0, ahead=0) == 20

    def test_nothing_while_more_than_half_is_there(self) -> None:
        """A claim for a few runs would cost as much as one for hundreds."""
        assert prefetch(free=20, waiting=251, ahead=500) == 0

    def test_the_rest_when_half_is_gone(self) -> None:
        """Then everything that is missing is asked for at once."""
        assert prefetch(free=20, waiting=250, ahead=500) == 270

    def test_idle_slots_are_never_left_waiting(self) -> None:
        """Fewer waiting runs than free slots: more are wanted, however few are planned ahead."""
        assert prefetch(free=20, waiting=5, ahead=4) == 19


class TestAppetite:
    def test_says_so_once_when_half_is_gone(self) -> None:
        """Its lane had enough and could not ask: the first start at the mark tells, the next ones do not."""
        appetite = hungry()
        full = Waiting(400).buffer
        assert appetite.wanted(full, slots=20, running=20, now=0.0) == 0
        assert not appetite.aroused(300)
        assert appetite.aroused(250)
        assert not appetite.aroused(249)

    def test_says_nothing_after_a_claim_that_came_back_short(self) -> None:
        """There is nothing more to have: the end of a run is no reason to look again."""
        appetite = hungry(rate=0.0)
        assert appetite.wanted(Waiting(0).buffer, slots=20, running=0, now=0.0) == 20
        appetite.got(3)
        assert not appetite.aroused(0)

    def test_says_so_after_a_claim_that_came_back_full(self) -> None:
        """There may be more: it tells as soon as there is room."""
        appetite = hungry(rate=0.0)
        assert appetite.wanted(Waiting(0).buffer, slots=20, running=0, now=0.0) == 20
        appetite.got(20)
        assert appetite.aroused(0)

    def test_a_busy_lane_says_when_a_slot_is_free(self) -> None:
        """All slots run long jobs, so nothing could be asked for; the first that ends makes room."""
        appetite = hungry(rate=0.0)
        assert appetite.wanted(Waiting(0).buffer, slots=20, running=20, now=0.0) == 0
        assert appetite.aroused(0)
