"""The dashboard on every store: each page, and the verbs of the main path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ratchet import JobFilter, JobStatus, Scheduler, dashboard
from tests.browser import shop
from tests.support.store_urls import KINDS, fresh_url

SAME = {"sec-fetch-site": "same-origin"}
JSON = {"accept": "application/json"}


@pytest.fixture(params=KINDS)
def scheduler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scheduler]:
    """An empty store of each kind."""
    made = Scheduler(fresh_url(request.param, request, tmp_path), allow=["tests.browser.shop"])
    yield made
    made.close()


def test_the_main_path(scheduler: Scheduler) -> None:
    """Every page is answered as HTML and as JSON; jobs are found, retried by group and by filter, and deleted."""
    ids = shop.fill(shop.declare(scheduler), mails=12)
    client = TestClient(
        dashboard.asgi(scheduler),
        client=("127.0.0.1", 1),
        base_url="http://localhost",
        follow_redirects=False,
    )
    pages = [
        "/",
        "/?window=day",
        "/jobs",
        "/dead-letters",
        "/queues",
        "/limits",
        "/schedules",
        "/batches",
        "/nodes",
    ]
    pages += ["/schedules/thumbnails", f"/batches/{ids['batch']}", f"/graphs/{ids['chain']}", "/audit"]
    pages += [f"/jobs/{one}" for name, one in ids.items() if name != "batch"]
    pages += ["/jobs?status=FAILED&tag=billing&sort=FINISHED", "/jobs?error_type=ValueError", "/jobs?limit=5"]
    for path in pages:
        for headers in ({}, JSON):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 200, (path, answer.text[-500:])
    groups = {one["target"]: one for one in client.get("/dead-letters", headers=JSON).json()["groups"]}
    billing, mail = groups["billing.charge"], groups["mail.send"]
    assert sum(billing["by_hour"]) == billing["count"]
    found = client.get("/jobs?target=mail.send&error_type=ConnectionError", headers=JSON).json()
    assert found["total"] == mail["count"]
    form = {"target": billing["target"], "error_type": billing["error_type"]}
    assert client.post("/dead-letters/retry", data=form, headers=SAME).status_code == 303
    assert scheduler.handle(ids["failed"]).status() is JobStatus.PENDING
    form = {"target": mail["target"], "error_type": mail["error_type"]}
    purged = client.post("/dead-letters/purge", data=form, headers={**SAME, **JSON}).json()
    assert purged["changed"] == mail["count"]
    for verb, status in (
        ("pause", JobStatus.PAUSED),
        ("resume", JobStatus.PENDING),
        ("cancel", JobStatus.CANCELED),
    ):
        answer = client.post(f"/jobs/{verb}?tag=billing", headers={**SAME, **JSON})
        assert answer.json()["changed"] == billing["count"], (verb, answer.text)
        assert scheduler.handle(ids["failed"]).status() is status
    where = JobFilter(tags=["billing"], statuses=[JobStatus.CANCELED])
    assert scheduler.jobs.count(where, at_most=2) == min(2, billing["count"])
    answer = client.post("/jobs/delete?tag=billing&status=CANCELED", headers={**SAME, **JSON})
    assert answer.json()["changed"] == billing["count"]
    assert scheduler.jobs.count(where) == 0
