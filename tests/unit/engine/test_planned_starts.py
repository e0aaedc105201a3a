"""Planned starts: runs that a rate lets start later go to their lane at that moment, or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ratchet.engine.planned_starts import NOTHING, PUNCTUAL, PlannedStarts
from ratchet.model.identifiers import new_id
from ratchet.model.status import Lane

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Stand:
    """Planned starts, and what has started."""

    def __init__(self) -> None:
        self.gone: list[tuple[Lane, Any]] = []
        self.woken = 0
        self.starts = PlannedStarts(lambda lane, run: self.gone.append((lane, run)), lambda: 7.0, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def add(self, after: timedelta, lane: Lane = Lane.THREAD, job_id: UUID | None = None) -> Any:
        run: Any = SimpleNamespace(job_id=job_id or new_id(), accepted=1.0)
        self.starts.add(lane, run, NOW + after)
        return run


def test_each_at_its_moment() -> None:
    """None sooner, in the order of their starts, each to its lane; and the rest lasts until the next one."""
    stand = Stand()
    late = stand.add(20 * MILLISECOND, Lane.ASYNC)
    soon = stand.add(10 * MILLISECOND)
    assert stand.woken == 2
    assert (stand.starts.count(Lane.THREAD), stand.starts.count(Lane.ASYNC)) == (1, 1)
    assert stand.starts.rest(NOW) == 10 * MILLISECOND
    assert stand.starts.run_once(NOW + 9 * MILLISECOND) == 0
    assert stand.starts.run_once(NOW + 10 * MILLISECOND) == 1
    assert stand.starts.run_once(NOW + 20 * MILLISECOND) == 1
    assert stand.gone == [(Lane.THREAD, soon), (Lane.ASYNC, late)]
    assert stand.starts.rest(NOW) == NOTHING


def test_the_wait_for_a_slot_begins_with_the_start() -> None:
    """A claim that waits for its slot too long is handed back; the wait for its start does not count."""
    stand = Stand()
    run = stand.add(timedelta())
    stand.starts.run_once(NOW)
    assert run.accepted == 7.0


def test_a_run_that_missed_its_start_goes_back_once() -> None:
    """It may not start among the others; but when it is late again, it starts, for it must start some time."""
    stand = Stand()
    run = stand.add(timedelta())
    assert stand.starts.run_once(NOW + PUNCTUAL + MILLISECOND) == 0
    assert stand.starts.withdraw(0.0) == [run]
    assert stand.starts.withdraw(0.0) == []
    again = stand.add(100 * MILLISECOND, job_id=run.job_id)
    assert stand.starts.run_once(NOW + 5 * PUNCTUAL + 100 * MILLISECOND) == 1
    assert stand.gone == [(Lane.THREAD, again)]


def test_what_is_withdrawn_does_not_start() -> None:
    """A node that stops hands back what has not started."""
    stand = Stand()
    runs = [stand.add(number * MILLISECOND) for number in range(3)]
    assert stand.starts.withdraw(0.5) == []
    assert sorted(map(id, stand.starts.withdraw(float("inf")))) == sorted(map(id, runs))
    assert stand.starts.run_once(NOW + timedelta(seconds=1)) == 0
    assert stand.gone == []
