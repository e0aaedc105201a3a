"""Schedules: registered by name, declared in code, paused, triggered, removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet import (
    InvalidJob,
    JobStatus,
    JobType,
    ManualClock,
    Misfire,
    Overlap,
    Priority,
    ScheduleNotFound,
    Scheduler,
    call,
)
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler

ran: list[Any] = []


def cleanup(name: str = "all", **more: Any) -> None:
    ran.append((name, more) if more else name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[ManualScheduler]:
    ran.clear()
    made = manual_scheduler(clock=clock)
    yield made
    made.close()


class TestSchedules:
    def test_a_zone_decides_what_a_time_means(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Two o'clock in Berlin is one o'clock UTC in winter, and midnight in summer."""
        schedule = scheduler.schedule_recurring("0 2 * * *", cleanup, zone="Europe/Berlin", name="nightly")
        assert schedule.next_fire_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
        assert [fire.hour for fire in schedule.next_fires(3)] == [1, 1, 1]
        clock.set(datetime(2026, 7, 1, tzinfo=UTC))
        assert schedule.next_fires(1)[0].hour == 0

    def test_runs_are_ordinary_jobs(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Each fire time becomes a job with the schedule's name, the declared defaults and the arguments."""
        declared = scheduler.job(name="recurring.task", priority=Priority.LOW)(task)
        schedule = scheduler.schedule_recurring(timedelta(minutes=5), declared, 7, name="five")
        for _ in range(3):
            clock.advance(timedelta(minutes=5))
            scheduler.drain()
        runs = schedule.runs()
        assert [(job.type, job.schedule, job.args, job.priority) for job in runs] == [
            (JobType.RECURRING_RUN, "five", (7,), Priority.LOW)
        ] * 3
        assert [fire.job_id for fire in schedule.fires()] == [job.id for job in runs]

    def test_the_same_name_is_the_same_schedule(self, scheduler: ManualScheduler) -> None:
        """Registering again changes it; registering the same again changes nothing."""
        first = scheduler.schedule_recurring("0 2 * * *", cleanup, name="nightly")
        before = first.record()
        again = scheduler.schedule_recurring("0 2 * * *", cleanup, name="nightly")
        assert again == first
        assert again.record() == before
        changed = scheduler.schedule_recurring("0 3 * * *", cleanup, name="nightly")
        assert changed.next_fire_at == datetime(2026, 1, 1, 3, tzinfo=UTC)
        assert [schedule.name for schedule in scheduler.schedules.list()] == ["nightly"]

    def test_pause_resume_trigger_remove(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A paused schedule does not fire, a resumed one does from now on, a triggered one runs at once."""
        schedule = scheduler.schedule_recurring("0 * * * *", cleanup, "hourly", name="h")
        assert schedule.pause()
        clock.advance(timedelta(hours=3))
        scheduler.drain()
        assert ran == []
        assert (schedule.paused, schedule.resume(), schedule.resume()) == (True, True, False)
        assert schedule.next_fire_at == clock.now() + timedelta(hours=1)
        handle = schedule.trigger()
        scheduler.drain()
        assert (ran, handle.status(), handle.job().schedule) == (["hourly"], JobStatus.SUCCEEDED, "h")
        assert (schedule.remove(), schedule.remove()) == (True, False)
        for gone in (schedule.record, schedule.trigger, schedule.next_fires):
            with pytest.raises(ScheduleNotFound, match="'h'"):
                gone()
        with pytest.raises(ScheduleNotFound):
            scheduler.schedules.get("h")

    @pytest.mark.parametrize(
        ("misfire", "runs"),
        [(Misfire.skip(), 0), (Misfire.fire_once(), 1), (Misfire.catch_up(3), 3), (Misfire.catch_up(), 11)],
        ids=["skip", "once", "three", "default"],
    )
    def test_misfires(
        self, scheduler: ManualScheduler, clock: ManualClock, misfire: Misfire, runs: int
    ) -> None:
        """Of a day of missed hours as many run as the policy says, and every one is recorded."""
        schedule = scheduler.schedule_recurring(
            "0 * * * *", cleanup, name="h", misfire=misfire, overlap=Overlap.ALLOW
        )
        clock.advance(timedelta(days=1, minutes=1))
        scheduler.drain()
        assert len(ran) == runs
        assert len(schedule.fires(limit=100)) == 24

    def test_arguments_named_like_a_keyword(self, scheduler: ManualScheduler) -> None:
        """``call(...)`` carries what the verb would take for itself."""
        schedule = scheduler.schedule_recurring(
            "@daily", call(cleanup, name="x", zone="UTC", jitter=1), name="n"
        )
        schedule.trigger()
        scheduler.drain()
        assert ran == [("x", {"zone": "UTC", "jitter": 1})]

    def test_start_and_end(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A schedule fires between its start and its end only."""
        schedule = scheduler.schedule_recurring(
            "0 * * * *",
            cleanup,
            name="h",
            starts_at=clock.now() + timedelta(hours=5),
            ends_at=clock.now() + timedelta(hours=7),
        )
        assert [fire.hour for fire in schedule.next_fires(10)] == [5, 6, 7]

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"expression": "every now and then"}, "as in 'every 30s'"),
            ({"expression": "61 * * * *"}, "not a cron expression"),
            ({"expression": ""}, "must not be empty"),
            ({"expression": timedelta(0)}, "longer than zero"),
            ({"expression": 0.5}, "at least one second"),
            ({"zone": "Mars/Olympus"}, "not a time zone"),
            ({"misfire": "skip"}, r"Misfire\.skip"),
            ({"overlap": "sometimes"}, "ALLOW, SKIP, QUEUE"),
            ({"starts_at": datetime(2026, 1, 1)}, "without a time zone"),
            (
                {"starts_at": datetime(2026, 2, 1, tzinfo=UTC), "ends_at": datetime(2026, 1, 1, tzinfo=UTC)},
                "before it starts",
            ),
            ({"name": "n" * 300}, "255"),
            ({"unexpected": object()}, "unexpected"),
        ],
    )
    def test_a_schedule_that_makes_no_sense(
        self, scheduler: ManualScheduler, given: dict[str, Any], says: str
    ) -> None:
        """Bad schedules are refused where they are written, and nothing is stored."""
        expression = given.pop("expression", "0 2 * * *")
        with pytest.raises(InvalidJob, match=says):
            scheduler.schedule_recurring(expression, cleanup, **{"name": "x", **given})
        assert scheduler.schedules.list() == []

    @pytest.mark.parametrize("count", [0, -1, 2.5])
    def test_how_many_fire_times(self, scheduler: ManualScheduler, count: Any) -> None:
        """The number of fire times is a positive whole number."""
        schedule = scheduler.schedule_recurring("@daily", cleanup, name="d")
        with pytest.raises(InvalidJob):
            schedule.next_fires(count)
        with pytest.raises(InvalidJob):
            Misfire.catch_up(count)


def task(number: int) -> int:
    return number


class TestDeclared:
    def test_a_declaration_is_stored_at_start(self) -> None:
        """``@scheduler.recurring`` touches no store; ``start()`` registers it, and the function is allowed."""
        store = MemoryStore()
        scheduler = Scheduler(store=store)

        @scheduler.recurring("*/5 * * * *", name="sync", zone="UTC")
        def sync() -> None: ...

        assert store.schedules() == []
        with scheduler:
            (record,) = store.schedules()
            assert (record.spec.name, record.spec.expression, record.spec.declared) == (
                "sync",
                "*/5 * * * *",
                True,
            )

    def test_in_a_manual_scheduler(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """drain() stores declared schedules and fires what is due."""

        @scheduler.recurring(timedelta(hours=1), "x", name="hourly")
        def hourly(word: str) -> None:
            ran.append(word)

        scheduler.drain()
        clock.advance(timedelta(hours=1))
        scheduler.drain()
        assert ran == ["x"]

    def test_a_declaration_that_makes_no_sense(self, scheduler: ManualScheduler) -> None:
        """What is wrong is told where it is written."""
        declare: list[Callable[[], object]] = [
            lambda: scheduler.recurring("0 2 * * *", overlap="never"),  # type: ignore[arg-type]
            lambda: scheduler.recurring(""),
        ]
        for attempt in declare:
            with pytest.raises(InvalidJob):
                attempt()
