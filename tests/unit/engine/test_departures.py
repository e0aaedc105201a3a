"""The departures: runs that a rate lets start later go to their lane at that moment, or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ratchet.engine.departures import NOTHING, PUNCTUAL, Departures
from ratchet.model.identifiers import new_id
from ratchet.model.status import Lane

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Stand:
    """Departures, and what left them."""

    def __init__(self) -> None:
        self.gone: list[tuple[Lane, Any]] = []
        self.woken = 0
        self.departures = Departures(lambda lane, run: self.gone.append((lane, run)), lambda: 7.0, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def add(self, after: timedelta, lane: Lane = Lane.THREAD, job_id: UUID | None = None) -> Any:
        run: Any = SimpleNamespace(job_id=job_id or new_id(), accepted=1.0)
        self.departures.add(lane, run, NOW + after)
        return run


def test_each_at_its_moment() -> None:
    """None sooner, in the order of their starts, each to its lane; and the rest lasts until the next one."""
    stand = Stand()
    late = stand.add(20 * MILLISECOND, Lane.ASYNC)
    soon = stand.add(10 * MILLISECOND)
    assert stand.woken == 2
    assert (stand.departures.count(Lane.THREAD), stand.departures.count(Lane.ASYNC)) == (1, 1)
    assert stand.departures.rest(NOW) == 10 * MILLISECOND
    assert stand.departures.run_once(NOW + 9 * MILLISECOND) == 0
    assert stand.departures.run_once(NOW + 10 * MILLISECOND) == 1
    assert stand.departures.run_once(NOW + 20 * MILLISECOND) == 1
    assert stand.gone == [(Lane.THREAD, soon), (Lane.ASYNC, late)]
    assert stand.departures.rest(NOW) == NOTHING


def test_the_wait_for_a_slot_begins_with_the_departure() -> None:
    """A claim that waits for its slot too long is handed back; the wait for its start does not count."""
    stand = Stand()
    run = stand.add(timedelta())
    stand.departures.run_once(NOW)
    assert run.accepted == 7.0


def test_who_missed_its_start_goes_back_once() -> None:
    """It may not start among the others; but when it is late again, it starts, for it must start some time."""
    stand = Stand()
    run = stand.add(timedelta())
    assert stand.departures.run_once(NOW + PUNCTUAL + MILLISECOND) == 0
    assert stand.departures.withdraw(0.0) == [run]
    assert stand.departures.withdraw(0.0) == []
    again = stand.add(100 * MILLISECOND, job_id=run.job_id)
    assert stand.departures.run_once(NOW + 5 * PUNCTUAL + 100 * MILLISECOND) == 1
    assert stand.gone == [(Lane.THREAD, again)]


def test_what_is_withdrawn_does_not_depart() -> None:
    """A node that stops hands back what has not started."""
    stand = Stand()
    runs = [stand.add(number * MILLISECOND) for number in range(3)]
    assert stand.departures.withdraw(0.5) == []
    assert sorted(map(id, stand.departures.withdraw(float("inf")))) == sorted(map(id, runs))
    assert stand.departures.run_once(NOW + timedelta(seconds=1)) == 0
    assert stand.gone == []
