"""The walk that removes old rows without starting over each time."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.stores.bounded_scan import BUDGET, STEP, Stretch, Walk


class Rows:
    """A table of numbered rows, of which some may be removed."""

    def __init__(self, count: int, removable: Callable[[int], bool]) -> None:
        self.rows = list(range(1, count + 1))
        self.removable = removable
        self.looked_at = 0

    def step(self, position: int | None, room: int) -> Stretch[int]:
        stretch = [row for row in self.rows if row > (position or 0)][:STEP]
        self.looked_at += len(stretch)
        old = [row for row in stretch if self.removable(row)][:room]
        self.rows = [row for row in self.rows if row not in set(old)]
        if len(old) == room:
            return Stretch(old[-1], len(stretch), len(old))
        return Stretch(stretch[-1] if len(stretch) == STEP else None, len(stretch), len(old))


def test_it_removes_up_to_the_limit_and_goes_on_where_it_stopped() -> None:
    """Portions of the limit, in the order of the key, until nothing is left; then zero."""
    table, walk = Rows(10, lambda row: row % 2 == 0), Walk[int]()
    assert [walk.remove(table.step, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert table.rows == [1, 3, 5, 7, 9]


def test_it_finds_what_became_removable_behind_it() -> None:
    """A row that lies behind the position is found after the end, in the same call."""
    removable = {9, 10}
    table, walk = Rows(10, lambda row: row in removable), Walk[int]()
    assert walk.remove(table.step, 1) == 1
    removable.add(1)
    assert walk.remove(table.step, 5) == 2
    assert 1 not in table.rows


def test_rows_that_must_stay_are_not_looked_at_again_by_every_call() -> None:
    """With more of them than the budget, a call ends in time, and the calls after it get to the rest."""
    stay = 3 * BUDGET
    table, walk = Rows(stay + 5, lambda row: row > stay), Walk[int]()
    removed = []
    for _ in range(4):
        table.looked_at = 0
        removed.append(walk.remove(table.step, 100))
        assert table.looked_at < BUDGET + STEP
    assert sum(removed) == 5


def test_a_limit_of_nothing_looks_at_nothing() -> None:
    """No room, no work."""
    table, walk = Rows(10, lambda row: True), Walk[int]()
    assert walk.remove(table.step, 0) == 0
    assert table.looked_at == 0
