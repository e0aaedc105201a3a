"""Firing schedules beside other nodes."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import Scheduler
from ratchet.defaults.cluster_coordinator import NoOpClusterCoordinator
from ratchet.engine import node
from ratchet.engine.recurring import RecurringRuns
from ratchet.model.composition import FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.errors import Conflict
from ratchet.model.identifiers import new_id
from ratchet.model.status import Priority
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until

NOW = datetime(2030, 1, 1, 2, tzinfo=UTC)


class Contended(MemoryStore):
    """A store in which another transaction is faster, once."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def advance(self, name: str, **given: Any) -> list[FireRecord] | None:
        if name not in self.met and name == "first":
            self.met.append(name)
            raise Conflict("another transaction was faster")
        return super().advance(name, **given)


def test_a_write_conflict_of_one_schedule(caplog: pytest.LogCaptureFixture) -> None:
    """It is no error, the other schedules fire, and the next look fires this one."""
    store = Contended()
    for name in ("first", "second"):
        spec = ScheduleSpec(
            name=name,
            expression="0 2 * * *",
            zone="UTC",
            target="shop:report",
            template='{"target":"shop:report","payload":"{}"}',
            next_fire_at=NOW,
        )
        store.upsert_schedule(spec, now=NOW)
    caplog.set_level(logging.INFO, logger="ratchet.engine")
    runs = RecurringRuns(store=store, ids=new_id, wake=lambda: None)
    assert runs.run_once(NOW) == 1
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "first" in caplog.text
    assert runs.run_once(NOW) == 1
    assert store.met == ["first"]


class Counting(MemoryStore):
    """A store that counts how often schedules are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def schedules(self) -> list[ScheduleRecord]:
        self.reads.append("all")
        return super().schedules()

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        self.reads.append("due")
        return super().claim_due_recurring(limit=limit, now=now)


def test_a_look_that_finds_nothing_due_is_one_read() -> None:
    """It says as well when the next fire time is; and a look that fires reads what is due, and what comes next."""
    store = Counting()
    spec = ScheduleSpec(
        name="first",
        expression="0 2 * * *",
        zone="UTC",
        target="shop:report",
        template='{"target":"shop:report","payload":"{}"}',
        next_fire_at=NOW,
    )
    store.upsert_schedule(spec, now=NOW)
    runs = RecurringRuns(store=store, ids=new_id, wake=lambda: None)
    before = NOW - timedelta(seconds=30)
    assert runs.run_once(before) == 0
    assert runs.rest(before, longest=60.0) == 30.0
    assert store.reads == ["all"]
    assert runs.rest(before) == 1.0  # asked again, it does not trust what it has seen before
    assert store.reads == ["all", "all"]
    store.reads.clear()
    assert runs.run_once(NOW) == 1
    assert runs.rest(NOW, longest=60.0) == 60.0
    assert store.reads == ["all", "due", "all"]
    store.pause_schedule("first", now=NOW)
    store.reads.clear()
    assert runs.run_once(NOW + timedelta(days=2)) == 0
    assert store.reads == ["all"]


def fired() -> None:
    """The function of a schedule."""


@pytest.mark.parametrize("change", ["made", "changed", "resumed"])
def test_whoever_changes_a_schedule_wakes_the_nodes(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that would look in an hour fires a schedule at once that another process makes, changes or resumes."""
    monkeypatch.setattr(node, "LOOK_WHERE_WOKEN", 3600.0)
    monkeypatch.setattr(node, "LONGEST_UNSEEN", 3600.0)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with (
        closing(Scheduler(url, allow=[__name__])) as other,
        closing(Scheduler(url, allow=[__name__])) as running,
    ):
        made = None if change == "made" else other.schedule_recurring("0 2 29 2 *", fired, name="beat")
        if change == "resumed" and made is not None:
            made.change(expression="every 1s")
            made.pause()
        running.start()
        looks = running.backend.node._firing  # type: ignore[attr-defined]  # its core
        until(lambda: looks._member.due - time.monotonic() > 600)
        match change:
            case "made":
                other.schedule_recurring("every 1s", fired, name="beat")
            case "changed" if made is not None:
                made.change(expression="every 1s")
            case "resumed" if made is not None:
                made.resume()
        until(lambda: running.schedules.get("beat").fires())


class Bell(NoOpClusterCoordinator):
    """A coordinator that counts wakeups; as one of the stock ones it is called without a detour."""

    def __init__(self) -> None:
        self.rings = 0

    def notify_new_work(self, priority: Priority) -> None:
        self.rings += 1


def test_only_changes_of_the_timetable_are_told() -> None:
    """Making, changing and resuming a schedule wake other nodes; what changes nothing, and pausing, do not."""
    bell = Bell()
    with closing(Scheduler(store=MemoryStore(), allow=[__name__], cluster_coordinator=bell)) as scheduler:
        rings = []
        schedule = scheduler.schedule_recurring("every 1h", fired, name="beat")
        rings.append(bell.rings)
        scheduler.schedule_recurring("every 1h", fired, name="beat")
        schedule.change(expression="every 1h")
        schedule.pause()
        rings.append(bell.rings)
        schedule.resume()
        rings.append(bell.rings)
        schedule.change(expression="every 2h")
        rings.append(bell.rings)
    assert rings == [1, 1, 2, 3]
