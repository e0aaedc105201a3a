"""Databases that 0.1.0 has left behind, with a job in every state: they are upgraded, and every job means what it meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet import BusinessKeyBusy, JobFilter, Scheduler
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from tests.cluster.earlier import earlier_version, python
from tests.support.store_urls import KINDS, empty_url
from tests.support.waiting import until
from tests.upgrades import past
from tests.upgrades.restore import DUMPS, restore

pytestmark = pytest.mark.timeout(120)

EXPECTED = json.loads((DUMPS / "expected.json").read_text())
#: What 0.1.0 knew of jobs; a field that a job lacks in the file was None.
FIELDS = {name for one in EXPECTED.values() for job in one["jobs"].values() for name in job}
#: The dumps grow old; nothing in them may be archived for that.
FOR_EVER = Options(
    retention=None, dead_letter_retention=None, log_retention=None, execution_retention=None, archive_retention=None,
    heartbeat=0.5, silence=2, concurrency=4,
)  # fmt: skip


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database as 0.1.0 has left it."""
    found = empty_url(kind, request, tmp_path)
    restore(kind, found)
    return found


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    made = Scheduler(url, allow=["tests.upgrades"], options=FOR_EVER)
    yield made
    made.close()


def seen(scheduler: Scheduler) -> dict[str, dict[str, Any]]:
    """Every job as this version sees it, as plain values."""
    found = scheduler.jobs.find(JobFilter(include_archived=True), limit=200)
    plain = [{name: getattr(job, name) for name in FIELDS} for job in found]
    return {job["id"]: job for job in json.loads(msgspec.json.encode(plain))}


def test_an_old_database_means_the_same_after_an_upgrade(scheduler: Scheduler, kind: str) -> None:
    """Each field of each job is what 0.1.0 itself saw in it, in whatever state; so are dead letters, schedules, records, keys and limits."""
    expected = EXPECTED[kind]
    assert {job["status"] for job in expected["jobs"].values()} == {status.value for status in JobStatus}
    names = scheduler.migrate()
    assert names[0] == "V002__checks"
    found = seen(scheduler)
    assert set(found) == set(expected["jobs"])
    for job_id, before in expected["jobs"].items():
        assert {name: value for name, value in found[job_id].items() if value is not None} == before
    ids = expected["ids"]
    assert (
        [str(one.job_id) for one in scheduler.dead_letters.find()]
        == expected["dead_letters"]
        == [ids["failed"]]
    )
    assert [one.name for one in scheduler.schedules.list()] == expected["schedules"] == ["nightly"]
    for name, count in expected["executions"].items():
        assert len(list(scheduler.jobs.executions(ids[name]))) == count, name
    assert [line.message for line in scheduler.jobs.logs(ids["running"])] == ["stalling as running"]
    assert [(one.name, one.concurrent) for one in scheduler.limits.list()] == [("press", 1)]
    same = scheduler.enqueue(past.greet, "fay").with_idempotency_key("order-1").submit()
    assert (str(same.id), same.duplicate) == (ids["keyed"], True)
    with pytest.raises(BusinessKeyBusy):
        scheduler.enqueue(past.greet, "gus").with_business_key("customer-1").submit()


def test_an_old_database_goes_on_after_an_upgrade(
    scheduler: Scheduler, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited runs, what ran on the node that died runs again with the state it had saved, what was decided stays decided."""
    ids, results = EXPECTED[kind]["ids"], {"pending": "hello ned", "limited": "hello hal", "running": "running after 3", "paused": "hello dora", "signaled": "hello ian", "successor": "hello new", "retried": None, "failed": None, "later": "hello eve", "keyed": "hello fay", "busy": "hello gus", "parent": "hello kim", "step": "hello lou", "joined": "hello joined", "closed": "hello jo"}  # fmt: skip
    scheduler.migrate()
    monkeypatch.setattr(past, "OPEN", past.threading.Event())
    past.OPEN.set()
    assert scheduler.resume_job(ids["paused"])
    assert scheduler.retry_job(ids["failed"])
    assert scheduler.signal("order:1") == 1
    for queue in ("default", "closed"):
        scheduler.queues.resume(queue)
    for job_id, job in seen(scheduler).items():
        if job["status"] == JobStatus.PENDING.value:
            assert scheduler.reschedule_job(job_id, scheduler.store.database_time()), job
    with scheduler:
        handles = {name: scheduler.handle(ids[name]) for name in results}
        until(
            lambda: all(one.status() is JobStatus.SUCCEEDED for one in handles.values()),
            90,
            "a job of the dump has not succeeded",
        )
        assert scheduler.batches.get(ids["batch"]).wait(60).completed_items == 3
        until(lambda: scheduler.jobs.count(JobFilter(statuses=[JobStatus.PENDING])) == 0, 60, "work is left")
    assert {name: one.result(timeout=5) for name, one in handles.items()} == results
    assert handles["running"].job().crashes == 1
    assert handles["retried"].job().attempts == 2
    for name, status in (("canceled", JobStatus.CANCELED), ("replaced", JobStatus.CANCELED), ("succeeded", JobStatus.SUCCEEDED), ("archived", JobStatus.SUCCEEDED)):  # fmt: skip
        assert scheduler.jobs.get(ids[name]).status is status
    assert list(scheduler.dead_letters.find()) == []


STARTS = """
from tests.upgrades import past
past.OPEN.set()
handle = past.scheduler.enqueue(past.greet, "again").with_queue("open").submit()  # the default one is paused
with past.scheduler:
    print(handle.result(timeout=60))
past.scheduler.close()
"""


def test_the_code_can_be_rolled_back_after_an_upgrade(scheduler: Scheduler, url: str, kind: str) -> None:
    """
    0.1.0 refuses an upgraded schema by itself; after ``ratchet db rollback`` it starts and works on it.

    Nothing of the schema is undone, so the way forward is open: the next upgrade changes no table, and today's code works.
    """
    applied = scheduler.migrate()
    with earlier_version() as old:
        refused = python({**old, "RATCHET_URL": url}, "-c", STARTS)
        assert refused.returncode != 0
        assert "upgrade this installation" in refused.stderr
        hidden = scheduler.store.roll_back_schema()
        assert hidden == applied
        assert scheduler.store.roll_back_schema() == []
        works = python({**old, "RATCHET_URL": url}, "-c", STARTS)
        assert works.stdout.strip() == "hello again", works.stderr
    assert {migration.name for migration in scheduler.store.upgrade_plan().migrations} == set(applied)
    assert scheduler.migrate() == applied
    scheduler.store.check_schema()
    assert scheduler.store.upgrade_plan().migrations == ()
    done = scheduler.jobs.find(
        JobFilter(targets=["tests.upgrades.past:greet"], statuses=[JobStatus.SUCCEEDED])
    )
    assert "hello again" in [job.result for job in done]
