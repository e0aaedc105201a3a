"""Jobs that no claim reaches, and schedules that never fire, because of what stands in their rows: `explain` and `health` name them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import JobFilter, JobStatus, ManualClock
from ratchet.model.problems import Problem
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.raw_values import RawStore, raw
from tests.support.store_urls import KINDS, fresh_url


def work(number: int) -> int:
    return number


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Stores]:
    opened = Stores(fresh_url(request.param, request, tmp_path), clock)
    yield opened
    opened.close()


@pytest.fixture
def rows(stores: Stores) -> Iterator[RawStore]:
    with raw(stores.open()) as opened:
        yield opened


def unreadable(scheduler: ManualScheduler) -> list[Problem]:
    return [one for one in scheduler.health(min_nodes=0).problems if one.code == "unreadable"]


def is_mongo(stores: Stores) -> bool:
    return stores.url is not None and stores.url.startswith("mongodb")


ALL = frozenset({"sqlite", "postgresql", "mysql", "mongodb"})
UNTYPED = frozenset({"sqlite", "mongodb"})
#: What keeps claims away: the column, what stands there in SQL and in BSON, and which products take it.
UNREACHABLE: dict[str, tuple[str, str, Any, frozenset[str]]] = {
    "a stream after all others": ("stream_id", "99", 99, ALL),
    "a stream before all others": ("stream_id", "-1", -1, ALL),
    "a stream that was deleted": ("stream_id", "", None, ALL),
    "a stream that is a text": ("stream_id", "'NONSENSE'", "NONSENSE", UNTYPED),
    "a priority below all": ("priority", "-1", -1, ALL),
    "a priority above all": ("priority", "9", 9, ALL),
    "a priority between others": ("priority", "1.5", 1.5, UNTYPED),
    "a time that never comes": ("scheduled_time", "'infinity'", float("inf"), ALL - {"mysql"}),
    "a time that is none": ("scheduled_time", "'-infinity'", "yesterday", UNTYPED),
}
CASES = [
    (kind, case)
    for kind in KINDS
    for case, (*_, kinds) in UNREACHABLE.items()
    if kind.replace("mariadb", "mysql") in kinds
]


@pytest.mark.parametrize(("stores", "case"), CASES, indirect=["stores"])
def test_explain_and_health_name_it(
    scheduler: ManualScheduler, rows: RawStore, stores: Stores, clock: ManualClock, case: str
) -> None:
    """Beside it jobs run. `explain` says that it is unreadable and which column is, `health` names the job, until it is mended."""
    column, sql, bson, _ = UNREACHABLE[case]
    mongo = is_mongo(stores)
    value: Any = bson if mongo else sql
    name = "due_at" if mongo and column == "scheduled_time" else column
    second = rows.stream_of(scheduler.enqueue(work, 1).with_queue("second").submit().id)
    handle = scheduler.enqueue(work, 1).with_queue("third").submit()
    stream_id = rows.stream_of(handle.id)
    if case == "a stream that was deleted":
        scheduler.cancel_jobs(JobFilter(queue="second"))
        rows.delete_stream(second)
        value = second if mongo else str(second)
    waiting = scheduler.schedule(timedelta(hours=1), work, 2).submit()
    assert unreadable(scheduler) == []
    assert rows.write("scheduler_job_queue", handle.id, name, value)
    sound = [scheduler.enqueue(work, 1).with_queue("third").submit() for _ in range(3)]
    clock.advance(timedelta(seconds=30))
    scheduler.drain()
    assert {one.status() for one in sound} == {JobStatus.SUCCEEDED}
    assert handle.status() is JobStatus.PENDING
    (reason,) = scheduler.explain(handle.id)
    assert reason.code == "unreadable"
    assert f"{name} is " in reason.text
    (problem,) = unreadable(scheduler)
    assert problem.count == 1
    assert f"{handle.id} of " in problem.text
    assert f"{name} is " in problem.text
    assert [one.code for one in scheduler.explain(waiting.id)] == ["not_due"]
    sound_value = stream_id if column == "stream_id" else 2
    if column != "scheduled_time":
        assert rows.write("scheduler_job_queue", handle.id, name, sound_value if mongo else str(sound_value))
        assert unreadable(scheduler) == []
        assert scheduler.explain(handle.id) == []


@pytest.mark.parametrize("column", ["expression", "zone_id", "template"])
def test_a_schedule_that_never_fires(
    scheduler: ManualScheduler, rows: RawStore, stores: Stores, column: str
) -> None:
    """One whose expression, zone or template is none can be read as a row, and never fires: `health` names it."""
    scheduler.schedule_recurring("* * * * *", work, 1, name="sound")
    scheduler.schedule_recurring("* * * * *", work, 1, name="damaged")
    assert unreadable(scheduler) == []
    if is_mongo(stores):
        field = {"zone_id": "zone"}.get(column, column)
        assert rows.write("scheduler_recurring_job", "damaged", f"spec.{field}", "NONSENSE")
    else:
        assert rows.write("scheduler_recurring_job", "damaged", column, "'NONSENSE'")
    (problem,) = unreadable(scheduler)
    assert problem.count == 1
    assert "'damaged'" in problem.text
