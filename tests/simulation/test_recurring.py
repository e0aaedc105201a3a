"""A month of schedules while nodes die: each fire time exactly once, or recorded as skipped."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ratchet.engine.recurring import RecurringRuns
from ratchet.engine.timetable import next_fire
from ratchet.model.clock import ManualClock
from ratchet.model.composition import FireOutcome, ScheduleSpec
from ratchet.model.errors import StoreUnavailable
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter
from ratchet.stores.memory import MemoryStore
from ratchet.testing.faults import Crash, FaultyStore

TEMPLATE = '{"job_id":"00000000-0000-0000-0000-000000000000","target":"t","payload":"{}","scheduled_at":"1970-01-01T00:00:00Z"}'

#: All four move their clocks in this month: New York on 8 March, Berlin on the 29th, the others on 5 April.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe")
BEGIN = datetime(2026, 3, 6, 12, 2, tzinfo=UTC)
END = BEGIN + timedelta(days=31)
MISFIRES = ("catch_up:10000", "fire_once", "skip", "catch_up:3")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated deaths are not worth a log line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Month:
    """Three nodes that fire schedules, and a seed that kills them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock(BEGIN)
        self.store = MemoryStore(self.clock.now)
        self.ids = IdFactory.seeded(self.clock, seed)
        self.nodes = [self._node() for _ in range(3)]
        self.deaths = 0

    def _node(self) -> RecurringRuns:
        store: Any = FaultyStore(self.store, self.dice)
        store.crash_rate, store.loss_rate = 0.01, 0.02
        return RecurringRuns(store=store, ids=self.ids, wake=lambda: None)

    def schedule(self, name: str, expression: str, zone: str, misfire: str) -> None:
        spec = ScheduleSpec(
            name=name,
            expression=expression,
            zone=zone,
            target="t",
            template=TEMPLATE,
            misfire=misfire,
            overlap="ALLOW",
        )
        upcoming = next_fire(spec, BEGIN, BEGIN)
        made = ScheduleSpec(
            **{f: getattr(spec, f) for f in spec.__struct_fields__ if f != "next_fire_at"},
            next_fire_at=upcoming,
        )
        self.store.upsert_schedule(made, now=BEGIN)

    def run(self) -> None:
        """Time passes by seconds and minutes, and now and then by hours in which no node is there."""
        while self.clock.now() < END:
            steps = ((2.0, 40.0, 200.0, 420.0), (10, 60, 60, 20))
            self.clock.advance(self.dice.choices(*steps)[0])
            if self.dice.random() < 0.002:
                self.clock.advance(self.dice.choice((1800.0, 7200.0, 40_000.0)))
            for index in self.dice.sample(range(3), self.dice.choice((1, 1, 2, 3))):
                self._step(index)
        self.clock.set(END)
        for node in (self._peaceful() for _ in range(2)):
            node.run_once(END)

    def _step(self, index: int) -> None:
        try:
            self.nodes[index].run_once(self.clock.now())
        except StoreUnavailable:
            pass  # the service tries again with its next step
        except Crash:
            self.deaths += 1
            self.nodes[index] = self._node()

    def _peaceful(self) -> RecurringRuns:
        return RecurringRuns(store=self.store, ids=self.ids, wake=lambda: None)


def test_every_fire_time_of_a_month_is_recorded_once() -> None:
    """Five-minute schedules in four zones: 8,928 fire times each, with one run, or skipped; and daily ones."""
    month = Month(7)
    for zone, misfire in zip(ZONES, MISFIRES, strict=True):
        month.schedule(f"five {zone}", "*/5 * * * *", zone, misfire)
        month.schedule(f"daily {zone}", "15 2 * * *", zone, misfire)
    month.run()
    assert month.deaths > 50
    for zone, misfire in zip(ZONES, MISFIRES, strict=True):
        _check_fives(month, f"five {zone}", misfire)
        _check_days(month, f"daily {zone}", zone)


def _check_fives(month: Month, name: str, misfire: str) -> None:
    fires = month.store.fires(name, limit=100_000)
    wanted = [datetime(2026, 3, 6, 12, 5, tzinfo=UTC) + n * timedelta(minutes=5) for n in range(8928)]
    assert [fire.fire_at for fire in reversed(fires)] == wanted
    outcomes = Counter(fire.outcome for fire in fires)
    _check_runs(month, name, outcomes[FireOutcome.RUN])
    if misfire == "catch_up:10000":
        assert not outcomes[FireOutcome.SKIPPED]
    else:
        assert {fire.reason for fire in fires if fire.outcome is FireOutcome.SKIPPED} == {"misfire"}


def _check_days(month: Month, name: str, zone: str) -> None:
    """One fire time for each local day, also where 02:15 is missing or comes twice."""
    fires = month.store.fires(name, limit=1000)
    days = Counter(fire.fire_at.astimezone(ZoneInfo(zone)).date() for fire in fires)
    assert set(days.values()) == {1}
    assert len(days) == 31
    _check_runs(month, name, sum(fire.outcome is FireOutcome.RUN for fire in fires))


def _check_runs(month: Month, name: str, runs: int) -> None:
    """As many jobs as recorded runs: a crash between any two calls has neither lost nor doubled one."""
    assert month.store.count(JobFilter(schedule=name)) == runs
    jobs = {fire.job_id for fire in month.store.fires(name, limit=100_000) if fire.job_id is not None}
    assert len(jobs) == runs
