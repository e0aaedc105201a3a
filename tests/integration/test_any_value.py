"""Whatever stands in a row, the others run: arbitrary values in every column, on every store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import JobFilter, JobStatus, ManualClock
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.raw_values import RawStore, raw
from tests.support.store_urls import KINDS, fresh_url

ran: list[Any] = []
MINUTE = timedelta(minutes=1)

#: The most that may be logged: each fault once, not once for each look.
LOGGED = 3000


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


def work(number: int) -> int:
    ran.append(number)
    return number


def tick(name: str) -> None:
    ran.append(name)


# Nobody but its own code writes to the store in memory.
@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Stores]:
    opened = Stores(fresh_url(request.param, request, tmp_path), clock)
    yield opened
    opened.close()


@pytest.fixture
def rows(stores: Stores) -> Iterator[RawStore]:
    with raw(stores.open()) as opened:
        yield opened


def cells_of(rows: RawStore, table: str) -> list[tuple[str, Any]]:
    """Each column with each value; where that takes long, with every third, so that each value meets some columns."""
    return [
        (column, value)
        for first, column in enumerate(rows.columns(table))
        for number, value in enumerate(rows.values())
        if rows.is_fast or (first + number) % 3 == 0
    ]


def report(text: str) -> None:
    """How many columns and values there were; shown with ``-rP`` or ``-s``."""
    sys.stdout.write(f"{text}\n")


def drained(scheduler: ManualScheduler, clock: ManualClock, rounds: int = 3) -> None:
    """Let everything run that can, and every service look several times."""
    for _ in range(rounds):
        clock.advance(timedelta(seconds=30))
        scheduler.drain()


class TestJobs:
    @pytest.mark.parametrize("table", ["scheduler_job", "scheduler_job_queue"])
    def test_the_others_end(
        self,
        scheduler: ManualScheduler,
        clock: ManualClock,
        rows: RawStore,
        table: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """
        One job for each column and value; each is claimed beside sound ones.

        All sound jobs succeed. Each bad one can be looked up, and is in the pages of a search. Those that are
        dead letters as `unreadable` name a column, and none of them was run.
        """
        cells = cells_of(rows, table)
        sound = [scheduler.enqueue_now(work, -1) for _ in range(20)]
        bad: dict[Any, tuple[str, Any]] = {}
        for number, (column, value) in enumerate(cells):
            handle = scheduler.enqueue_now(work, number)
            if rows.write(table, handle.id, column, value):
                bad[handle.id] = (column, value)
        sound += [scheduler.enqueue_now(work, -1) for _ in range(20)]
        assert len(bad) > 20, "most values are refused, so that this says nothing"
        with caplog.at_level(logging.WARNING):
            drained(scheduler, clock)
        left = [handle for handle in sound if handle.status() is not JobStatus.SUCCEEDED]
        assert left == [], f"{len(left)} sound jobs did not end"
        assert len(caplog.records) < LOGGED
        shown = {job_id: scheduler.jobs.get(job_id) for job_id in bad}
        unreadable = [job for job in shown.values() if job.unreadable]
        found: set[Any] = set()
        cursor = None
        while True:
            page = scheduler.jobs.find(JobFilter(), limit=500, cursor=cursor)
            found |= {job.id for job in page}
            cursor = page.next_cursor
            if cursor is None:
                break
        assert bad.keys() <= found
        for job_id in bad:
            scheduler.explain(job_id)
        health = scheduler.health(min_nodes=0)
        assert health["error"] is None
        letters = {
            job_id: job
            for job_id, job in shown.items()
            if job.status is JobStatus.FAILED
            and (job.error or "").startswith("UnreadableJob: its row cannot be read")
        }
        assert unreadable or table == "scheduler_job_queue"
        assert letters
        numbers = {job_id: number for number, job_id in enumerate(bad)}
        for job_id, job in letters.items():
            assert job.started_at is None or job.attempts <= 1, (bad[job_id], numbers[job_id])
        report(
            f"{table}: {len(rows.columns(table))} columns, {len(bad)} values written of {len(cells)}, "
            f"{len(letters)} dead letters, {len(unreadable)} unreadable"
        )


class TestSchedules:
    def test_the_others_fire(
        self, scheduler: ManualScheduler, clock: ManualClock, rows: RawStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One schedule for each column and value, all due: the sound one fires every minute, and nothing is logged again and again."""
        table = "scheduler_recurring_job"
        written = 0
        for number, (column, value) in enumerate(cells_of(rows, table)):
            name = f"bad-{number}"
            scheduler.schedule_recurring("* * * * *", tick, "bad", name=name)
            written += rows.write(table, name, column, value)
        scheduler.schedule_recurring("* * * * *", tick, "sound", name="sound")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                clock.advance(MINUTE)
                scheduler.drain()
        assert ran.count("sound") == 3
        assert len(caplog.records) < LOGGED
        scheduler.schedules.list()
        report(f"{table}: {len(rows.columns(table))} columns, {written} values written")


class TestGates:
    @pytest.mark.parametrize(
        "table", ["scheduler_resource_limit", "scheduler_circuit_breaker", "scheduler_queue"]
    )
    def test_jobs_elsewhere_run(
        self,
        scheduler: ManualScheduler,
        clock: ManualClock,
        rows: RawStore,
        table: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Whatever stands in the row of a limit, a breaker or a queue: jobs that have nothing to do with it run."""
        written = 0
        for number, (column, value) in enumerate(cells_of(rows, table)):
            name = f"bad-{number}"
            if table == "scheduler_resource_limit":
                scheduler.limits.set(name, concurrent=5)
                scheduler.limits.set_rate(name, 100, per=60)
                scheduler.enqueue(work, 1).with_resource(name).submit()
            elif table == "scheduler_circuit_breaker":
                scheduler.breakers.open(name)
                scheduler.breakers.reset(name)
            else:
                scheduler.queues.pause(name)
                scheduler.queues.resume(name)
                scheduler.enqueue(work, 1).with_queue(name).submit()
            written += rows.write(table, name, column, value)
        sound = [scheduler.enqueue_now(work, -1) for _ in range(20)]
        with caplog.at_level(logging.WARNING):
            drained(scheduler, clock)
        assert [handle for handle in sound if handle.status() is not JobStatus.SUCCEEDED] == []
        assert len(caplog.records) < LOGGED
        scheduler.limits.list()
        scheduler.breakers.list()
        scheduler.queues.list()
        report(f"{table}: {len(rows.columns(table))} columns, {written} values written")


class TestEdges:
    def test_the_ends_of_others_are_written(
        self, scheduler: ManualScheduler, clock: ManualClock, rows: RawStore
    ) -> None:
        """Whatever stands in an edge, its parent ends, and so do the others of the same completion and their own steps."""
        table = "scheduler_dependency"
        parents, written = [], 0
        for column, value in cells_of(rows, table):
            if column in ("kind", "position", "state"):
                handle = scheduler.enqueue(work, 1).then(work, 2).submit()
                written += rows.write(table, handle.id, column, value)
                parents.append(handle)
        assert written or not parents
        sound = [scheduler.enqueue(work, 1).then(work, 2).submit() for _ in range(10)]
        drained(scheduler, clock)
        assert [handle for handle in sound if handle.status() is not JobStatus.SUCCEEDED] == []
        for handle in parents:
            scheduler.handle(handle.id).graph()


class TestNodes:
    def test_the_others_go_on(
        self, scheduler: ManualScheduler, clock: ManualClock, rows: RawStore, stores: Stores
    ) -> None:
        """Rows of nodes with any values: jobs run, and the list of nodes has those that can be read."""
        from ratchet.model.cluster import NodeSpec

        store = stores.open()
        written = 0
        for number, (column, value) in enumerate(cells_of(rows, "scheduler_node")):
            node = NodeSpec(
                node_id=f"bad-{number}", name="n", host="h", pid=1, version="0.1.0",
                beat_interval=timedelta(seconds=2), silence=timedelta(seconds=5),
            )  # fmt: skip
            store.register(node, now=clock.now())
            written += rows.write("scheduler_node", node.node_id, column, value)
        sound = [scheduler.enqueue_now(work, -1) for _ in range(20)]
        drained(scheduler, clock)
        assert [handle for handle in sound if handle.status() is not JobStatus.SUCCEEDED] == []
        scheduler.nodes.list()
        report(f"scheduler_node: {len(rows.columns('scheduler_node'))} columns, {written} values written")


def test_a_mended_row_is_retried(
    scheduler: ManualScheduler, clock: ManualClock, rows: RawStore, stores: Stores
) -> None:
    """The dead letter is retried once its row is mended; before that the retry ends the same way. The raw value stays where it is."""
    mongo = stores.url is not None and stores.url.startswith("mongodb")
    handle = scheduler.enqueue_now(work, 7)
    assert rows.write("scheduler_job", handle.id, "backoff", "LINEAR" if mongo else "'LINEAR'")
    drained(scheduler, clock, 1)
    job = scheduler.jobs.get(handle.id)
    assert job.status is JobStatus.FAILED
    assert job.unreadable == {"backoff": "'LINEAR'"}
    assert job.error == "UnreadableJob: its row cannot be read: backoff is 'LINEAR'"
    (letter,) = scheduler.dead_letters.find(JobFilter())
    assert letter.reason == "unreadable"
    assert scheduler.retry_job(handle.id)
    drained(scheduler, clock, 1)
    assert handle.status() is JobStatus.FAILED
    assert ran == []
    assert rows.write("scheduler_job", handle.id, "backoff", "FIXED" if mongo else "'FIXED'")
    assert scheduler.retry_job(handle.id)
    drained(scheduler, clock, 1)
    assert handle.status() is JobStatus.SUCCEEDED
    assert ran == [7]
    assert scheduler.jobs.get(handle.id).unreadable == {}


def test_health_names_what_is_passed_by(
    scheduler: ManualScheduler, rows: RawStore, stores: Stores, clock: ManualClock
) -> None:
    """A schedule that cannot be read is left out of the list, and is a problem with its table, its name and its column."""
    mongo = stores.url is not None and stores.url.startswith("mongodb")
    scheduler.schedule_recurring("* * * * *", tick, "x", name="sound")
    scheduler.schedule_recurring("* * * * *", tick, "x", name="damaged")
    assert not [one for one in scheduler.health(min_nodes=0).problems if one.code == "unreadable"]
    column, value = ("created_at", "yesterday") if mongo else ("overlap", "'SOMETIMES'")
    assert rows.write("scheduler_recurring_job", "damaged", column, value)
    (problem,) = [one for one in scheduler.health(min_nodes=0).problems if one.code == "unreadable"]
    assert problem.count == 1
    assert "scheduler_recurring_job" in problem.text
    assert "'damaged'" in problem.text
    assert [one.name for one in scheduler.schedules.list()] == ["sound"]
