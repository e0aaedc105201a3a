"""A slot is filled at once after a first crash, and more and more slowly after crashes that follow right away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ratchet.cli.worker.child_slot import LONGEST_PAUSE, RIGHT_AWAY, ChildSlot


def stand_in(ready_at: float | None = None) -> Any:
    """As much of a child process as a slot looks at."""
    return SimpleNamespace(ready_at=ready_at)


def slot_with(*children: Any) -> ChildSlot:
    waiting: list[Any] = list(children)
    return ChildSlot(1, lambda: waiting.pop(0))


def test_an_empty_slot_is_filled_once() -> None:
    """A slot starts one child and not a second beside it."""
    slot = slot_with(stand_in(), stand_in())
    assert slot.fill(0.0)
    assert not slot.fill(0.0)
    assert len(slot.children) == 1


def test_the_first_crash_is_followed_by_a_child_at_once() -> None:
    """One crash costs no time."""
    child = stand_in()
    slot = slot_with(child, stand_in())
    slot.fill(0.0)
    slot.lost(child, 1.0)
    assert slot.fill(1.0)


def test_crashes_right_away_are_followed_by_growing_pauses() -> None:
    """Children that never come up are started ever more slowly, but at least every half minute."""
    children = [stand_in() for _ in range(20)]
    slot = slot_with(*children)
    now, pauses = 0.0, []
    for child in children[:-1]:
        assert slot.fill(now)
        slot.lost(child, now)
        pauses.append(slot.pause)
        now += slot.pause
    assert pauses[:5] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


@pytest.mark.parametrize(("lived", "pause"), [(RIGHT_AWAY + 0.1, 0.0), (RIGHT_AWAY - 0.1, 1.0)])
def test_a_child_that_worked_for_a_while_ends_the_series(lived: float, pause: float) -> None:
    """Only crashes right away count as a series: a child that is killed now and then is replaced at once."""
    first, second, third = stand_in(), stand_in(), stand_in(ready_at=10.0)
    slot = slot_with(first, second, third)
    for child in (first, second):
        slot.fill(9.0)
        slot.lost(child, 9.0)
        slot.restart_at = 9.0
    slot.fill(9.0)
    slot.lost(third, 10.0 + lived)
    assert slot.pause == pause


def test_a_successor_takes_over_only_when_it_is_promoted() -> None:
    """Of a rolling restart: the old child stays until the new one is up."""
    old, new = stand_in(), stand_in()
    slot = slot_with(old, new)
    slot.fill(0.0)
    assert slot.renew()
    assert not slot.renew()
    assert slot.current is old
    assert slot.promote() is old
    assert slot.current is new
    assert slot.successor is None


def test_a_successor_that_fails_leaves_the_old_child_at_work() -> None:
    """A broken deploy does not take down what runs."""
    old, new = stand_in(), stand_in()
    slot = slot_with(old, new)
    slot.fill(0.0)
    slot.renew()
    slot.lost(new, 1.0)
    assert slot.current is old
    assert slot.successor is None
