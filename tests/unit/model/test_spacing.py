"""Costly things are done seldom, but never too seldom, and what waited does not count as cost."""

from __future__ import annotations

import pytest

from ratchet.model.spacing import Spacing


def test_a_share_of_the_time() -> None:
    """A fiftieth: after 20 ms the next time is a second later."""
    spacing = Spacing(0.02, 5.0)
    assert spacing.next_after(100.0, 100.02) == pytest.approx(101.02)
    assert spacing.next_after(101.02, 101.04) == pytest.approx(102.04)


def test_in_the_longest_time_at_the_latest() -> None:
    """However long it takes, even each time."""
    spacing = Spacing(0.02, 5.0)
    assert [spacing.next_after(0.0, took) - took for took in (30.0, 30.0, 3600.0)] == [5.0, 5.0, 5.0]


def test_the_shorter_of_two_counts() -> None:
    """A stall of half a minute between two times of a millisecond changes nothing."""
    spacing = Spacing(0.02, 60.0)
    rests = [spacing.next_after(0.0, took) - took for took in (0.001, 30.0, 0.001, 0.5, 0.5)]
    assert rests == pytest.approx([0.05, 0.05, 0.05, 0.05, 25.0])
