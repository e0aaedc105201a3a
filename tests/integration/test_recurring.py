"""Schedules through the public API, the same on every store."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    InvalidJob,
    JobStatus,
    JobType,
    ManualClock,
    Misfire,
    Options,
    Overlap,
    Priority,
    ScheduleNotFound,
)
from ratchet.engine.recurring import RecurringRuns
from ratchet.model.composition import FireOutcome
from ratchet.model.identifiers import new_id
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores

ran: list[Any] = []
FIVE = timedelta(minutes=5)


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


def tick(name: str = "tick") -> None:
    ran.append(name)


def outcomes(schedule: Any) -> list[str]:
    """What became of the fire times, oldest first."""
    found = reversed(schedule.fires())
    return [f"{fire.fire_at:%H:%M} {fire.outcome if fire.reason is None else fire.reason}" for fire in found]


class TestRunOptions:
    def test_what_a_schedule_says_about_its_runs(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """Priority, tags, queue, retries, timeout and key are those of each run, over what the function declares."""
        vars(tick).clear()  # what a test before this one declared
        scheduler.job(priority=Priority.LOW, tags=["declared"], max_retries=5, timeout=9)(tick)
        schedule = scheduler.schedule_recurring(
            FIVE,
            tick,
            name="special",
            priority=Priority.CRITICAL,
            tags=["night", "eu"],
            queue="reports",
            max_retries=0,
            timeout=timedelta(minutes=2),
            business_key="nightly",
        )
        plain = scheduler.schedule_recurring(FIVE, tick, name="plain")
        clock.advance(FIVE)
        scheduler.drain()
        (run,), (other,) = schedule.runs(), plain.runs()
        assert (run.priority, set(run.tags), run.queue) == (
            Priority.CRITICAL,
            {"declared", "night", "eu"},
            "reports",
        )
        assert (run.max_retries, run.timeout, run.business_key) == (0, timedelta(minutes=2), "nightly")
        assert (other.priority, set(other.tags), other.queue) == (Priority.LOW, {"declared"}, "default")
        assert (other.max_retries, other.timeout, other.business_key) == (5, timedelta(seconds=9), None)
        vars(tick).clear()

    def test_a_busy_key_skips_the_fire_time(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """While another job holds the key there is no run; afterwards there is."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="keyed", business_key="k")
        holder = scheduler.enqueue(tick, "holder").with_business_key("k").with_delay(3600).submit()
        clock.advance(FIVE)
        scheduler.drain()
        holder.cancel()
        clock.advance(FIVE)
        scheduler.drain()
        assert outcomes(schedule) == ["00:05 business_key_busy", "00:10 RUN"]

    def test_declared_ones(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """``@scheduler.recurring`` takes the same options."""
        vars(tick).clear()
        scheduler.recurring(FIVE, "declared", name="five", priority=Priority.HIGH, tags=["eu"], queue="q")(
            tick
        )
        scheduler.drain()  # stores what was declared
        clock.advance(FIVE)
        scheduler.drain()
        (run,) = scheduler.schedules.get("five").runs()
        assert (run.priority, run.tags, run.queue, ran) == (Priority.HIGH, ("eu",), "q", ["declared"])
        vars(tick).clear()

    def test_options_that_make_no_sense(self, scheduler: ManualScheduler) -> None:
        """They are refused where they are written, and nothing is stored."""
        wrong: list[dict[str, Any]] = [
            {"priority": 9},
            {"tags": "eu"},
            {"queue": "a,b"},
            {"max_retries": -1},
            {"timeout": 0},
            {"business_key": ""},
        ]
        for given in wrong:
            with pytest.raises(InvalidJob):
                scheduler.schedule_recurring(FIVE, tick, name="wrong", **given)
        assert scheduler.schedules.list() == []

    def test_removal_by_tag(self, scheduler: ManualScheduler) -> None:
        """All schedules whose runs have the tag go, and no others; the await face does the same."""
        for name, tags in (("a", ["eu"]), ("b", ["eu", "x"]), ("c", ["us"]), ("d", [])):
            scheduler.schedule_recurring(FIVE, tick, name=name, tags=tags)
        assert [schedule.name for schedule in scheduler.schedules.list(tag="eu")] == ["a", "b"]
        assert scheduler.schedules.remove(tag="eu") == 2
        assert scheduler.schedules.remove(tag="eu") == 0
        assert [schedule.name for schedule in scheduler.schedules.list()] == ["c", "d"]
        assert asyncio.run(scheduler.aio.schedules.remove(tag="us")) == 1
        with pytest.raises(InvalidJob):
            scheduler.schedules.remove(tag="")

    def test_cron_fields(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The last weekday of a month, in a year: stored, fired once, and ended after that."""
        schedule = scheduler.schedule_recurring("0 0 LW 1 ? 2026", tick, name="once")
        assert schedule.next_fires(3) == [datetime(2026, 1, 30, tzinfo=UTC)]
        clock.advance(timedelta(days=29))
        scheduler.drain()
        assert (ran, schedule.next_fire_at) == (["tick"], None)


class TestVerbs:
    def test_runs_are_ordinary_jobs(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """One for each fire time, with the schedule's name."""
        schedule = scheduler.schedule_recurring("*/5 * * * *", tick, "cron", name="five")
        assert schedule.next_fires(2) == [datetime(2026, 1, 1, 0, m, tzinfo=UTC) for m in (5, 10)]
        for _ in range(3):
            clock.advance(FIVE)
            scheduler.drain()
        assert ran == ["cron"] * 3
        runs = schedule.runs()
        assert {(job.type, job.schedule, job.status) for job in runs} == {
            (JobType.RECURRING_RUN, "five", JobStatus.SUCCEEDED)
        }
        assert [job.scheduled_at for job in runs] == [fire.fire_at for fire in schedule.fires()]

    def test_pause_and_resume(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """While it is paused nothing fires; afterwards it fires from then on, and makes up for nothing."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="five", misfire=Misfire.catch_up())
        assert (schedule.pause(), schedule.pause(), schedule.paused) == (True, True, True)
        clock.advance(timedelta(minutes=12))
        scheduler.drain()
        assert ran == []
        assert (schedule.resume(), schedule.resume()) == (True, False)
        assert schedule.next_fire_at == datetime(2026, 1, 1, 0, 15, tzinfo=UTC)
        clock.advance(timedelta(minutes=3))
        scheduler.drain()
        assert ran == ["tick"]

    def test_trigger(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """One run now, also while it is paused; the timetable stays as it is."""
        schedule = scheduler.schedule_recurring("0 2 * * *", tick, name="nightly")
        schedule.pause()
        handle = schedule.trigger()
        scheduler.drain()
        assert handle.status() is JobStatus.SUCCEEDED
        assert handle.job().schedule == "nightly"
        assert schedule.next_fire_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert outcomes(schedule) == ["00:00 RUN"]

    def test_edit(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The same name is the same schedule: new times count at once, its pause and its runs stay."""
        schedule = scheduler.schedule_recurring("0 2 * * *", tick, "old", name="nightly")
        schedule.trigger()
        scheduler.drain()
        schedule.pause()
        edited = scheduler.schedule_recurring(
            "0 3 * * *", tick, "new", name="nightly", zone="Europe/Berlin", misfire=Misfire.skip()
        )
        assert edited == schedule
        assert (schedule.paused, len(schedule.runs())) == (True, 1)
        schedule.resume()
        assert schedule.next_fire_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
        clock.set(datetime(2026, 1, 1, 2, tzinfo=UTC))
        scheduler.drain()
        assert ran == ["old", "new"]

    def test_change(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """What is given is changed and the rest stays: its function, its options, its pause and its runs."""
        schedule = scheduler.schedule_recurring(
            "0 2 * * *", tick, "old", name="nightly", queue="nights", tags=["n"], jitter=timedelta(minutes=1)
        )
        schedule.pause()
        before = schedule.record()
        assert schedule.change(expression="0 2 * * *", zone="UTC", args=["old"]) is False
        assert schedule.record() == before
        assert schedule.change(zone="Europe/Berlin", overlap=Overlap.ALLOW) is True
        spec = schedule.record().spec
        assert (spec.zone, spec.overlap, spec.expression, spec.misfire) == (
            "Europe/Berlin", "ALLOW", "0 2 * * *", "fire_once",
        )  # fmt: skip
        assert (spec.template, spec.jitter, schedule.paused) == (
            before.spec.template,
            timedelta(minutes=1),
            True,
        )
        schedule.change(expression=timedelta(minutes=5), jitter=0, misfire=Misfire.skip())
        schedule.change(args=["new"])
        schedule.resume()
        clock.advance(FIVE)
        scheduler.drain()
        assert ran == ["new"]
        (run,) = schedule.runs()
        assert (run.queue, run.tags) == ("nights", ("n",))
        assert asyncio.run(schedule.aio.change(kwargs={"name": "named"})) is True
        clock.advance(FIVE)
        scheduler.drain()
        assert ran == ["new", "named"]

    def test_a_change_that_makes_no_sense(self, scheduler: ManualScheduler) -> None:
        """It is refused, and nothing is changed; nor is what is declared in code, or gone."""
        schedule = scheduler.schedule_recurring("0 2 * * *", tick, name="nightly")
        before = schedule.record()
        wrong: list[dict[str, Any]] = [
            {"expression": "61 * * * *"}, {"expression": ""}, {"expression": timedelta()}, {"zone": "Mars"},
            {"misfire": "skip"}, {"overlap": "maybe"}, {"jitter": -1}, {"args": "text"}, {"args": 1},
            {"kwargs": {1: 2}}, {"kwargs": [1]}, {"args": [object()]}, {"args": [RESULT]},
        ]  # fmt: skip
        for given in wrong:
            with pytest.raises(InvalidJob):
                schedule.change(**given)
        assert schedule.record() == before
        scheduler.recurring("@daily", name="declared")(tick)
        scheduler.drain()
        with pytest.raises(InvalidJob, match="declared in code"):
            scheduler.schedules.get("declared").change(zone="Asia/Tokyo")
        schedule.remove()
        with pytest.raises(ScheduleNotFound):
            schedule.change(zone="Asia/Tokyo")

    def test_remove(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """It fires no more and is not found; its runs stay."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="five")
        clock.advance(FIVE)
        scheduler.drain()
        assert (schedule.remove(), schedule.remove()) == (True, False)
        with pytest.raises(ScheduleNotFound):
            scheduler.schedules.get("five")
        assert len(schedule.runs()) == 1
        clock.advance(FIVE)
        scheduler.drain()
        assert ran == ["tick"]

    def test_start_and_end(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Nothing before the start, nothing after the end, and then no next fire time."""
        begin = clock.now() + timedelta(minutes=12)
        schedule = scheduler.schedule_recurring(
            FIVE, tick, name="five", starts_at=begin, ends_at=begin + timedelta(minutes=7)
        )
        for _ in range(6):
            clock.advance(FIVE)
            scheduler.drain()
        assert outcomes(schedule) == ["00:12 RUN", "00:17 RUN"]
        assert (schedule.next_fire_at, schedule.next_fires()) == (None, [])

    def test_jitter_delays_the_run_and_not_the_fire_time(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """The run is due up to that much later."""
        schedule = scheduler.schedule_recurring(
            "0 * * * *", tick, name="hourly", jitter=timedelta(minutes=10)
        )
        clock.advance(timedelta(hours=1))
        scheduler.drain()
        (run,) = schedule.runs()
        assert schedule.fires()[0].fire_at == clock.now()
        assert clock.now() < run.scheduled_at < clock.now() + timedelta(minutes=10)


class TestPolicies:
    @pytest.mark.parametrize(
        ("misfire", "expected"),
        [
            (Misfire.skip(), ["misfire", "misfire", "misfire"]),
            (Misfire.fire_once(), ["misfire", "misfire", "RUN"]),
            (Misfire.catch_up(2), ["misfire", "RUN", "RUN"]),
            (Misfire.catch_up(), ["RUN", "RUN", "RUN"]),
        ],
    )
    def test_misfire(
        self, scheduler: ManualScheduler, clock: ManualClock, misfire: Misfire, expected: list[str]
    ) -> None:
        """Seventeen minutes without a node; what was not run is recorded as skipped."""
        schedule = scheduler.schedule_recurring(
            FIVE, tick, name="five", misfire=misfire, overlap=Overlap.ALLOW
        )
        clock.advance(timedelta(minutes=17))
        scheduler.drain()
        assert [line.split()[1] for line in outcomes(schedule)] == expected
        assert len(ran) == expected.count("RUN")

    def test_overlap_skip(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """While the run before has not ended (here: it is paused) the next is skipped, and says so."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="five", overlap=Overlap.SKIP)
        first = schedule.trigger()
        first.pause()
        clock.advance(FIVE)
        scheduler.drain()
        first.resume()
        scheduler.drain()
        clock.advance(FIVE)
        scheduler.drain()
        assert outcomes(schedule) == ["00:00 RUN", "00:05 overlap", "00:10 RUN"]

    def test_overlap_allow(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Each fire time has its run, whatever the others do."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="five", overlap=Overlap.ALLOW)
        schedule.trigger().pause()
        clock.advance(FIVE)
        scheduler.drain()
        assert ran == ["tick"]

    def test_overlap_queue(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Each waits for the one before it, however that ends."""
        schedule = scheduler.schedule_recurring(FIVE, tick, name="five", overlap=Overlap.QUEUE)
        first = schedule.trigger()
        first.pause()
        for _ in range(2):
            clock.advance(FIVE)
            scheduler.drain()
        assert ([job.status for job in schedule.runs()], ran) == (
            [JobStatus.WAITING, JobStatus.WAITING, JobStatus.PAUSED],
            [],
        )
        first.cancel()
        scheduler.drain()
        assert ran == ["tick", "tick"]


class TestDeclared:
    def test_what_disappeared_from_the_code_is_removed_by_option(
        self, stores: Stores, clock: ManualClock
    ) -> None:
        """Only declared ones, and only where the option says so."""
        old = ManualScheduler(store=stores.open(), clock=clock)
        old.recurring("0 1 * * *", name="gone")(tick)
        old.recurring("0 2 * * *", name="kept")(tick)
        old.schedule_recurring("0 3 * * *", tick, name="by hand")
        old.drain()
        for remove, left in (
            (False, ["by hand", "gone", "kept"]),
            (True, ["by hand", "kept"]),
        ):
            new = ManualScheduler(
                store=stores.open(), clock=clock, options=Options(remove_undeclared=remove), seed=1
            )
            new.recurring("0 2 * * *", name="kept")(tick)
            new.drain()
            assert [schedule.name for schedule in new.schedules.list()] == left
            new.close()
        old.close()


class TestFiveNodes:
    def test_one_run_for_one_fire_time(
        self, stores: Stores, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """Five nodes restart in the second of a fire time, again and again: each has one run."""
        schedule = scheduler.schedule_recurring("*/5 * * * *", tick, name="five", overlap=Overlap.ALLOW)
        handles = [stores.open() for _ in range(5)]
        created = 0
        for _ in range(6):
            clock.advance(FIVE)
            now = clock.now()
            barrier = threading.Barrier(5)
            counts: list[int] = []

            def restart(store: Any, barrier: threading.Barrier = barrier, now: datetime = now) -> None:
                node = RecurringRuns(store=store, ids=new_id, wake=lambda: None)
                barrier.wait(timeout=30)
                counts.append(node.run_once(now))  # noqa: B023  # joined below

            threads = [threading.Thread(target=restart, args=(store,)) for store in handles]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
            assert sorted(counts) == [0, 0, 0, 0, 1]
            created += sum(counts)
        assert created == 6
        assert [fire.outcome for fire in schedule.fires()] == [FireOutcome.RUN] * 6
        assert len(schedule.runs()) == 6
