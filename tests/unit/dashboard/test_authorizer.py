"""The scheduler's own authorizer, and its audit log, behind the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ratchet import Job, JobHandle, Permission, Scheduler, dashboard
from tests.browser import shop
from tests.unit.dashboard.conftest import JSON, SAME

P = Permission


def by_queue(principal: str | None, permission: Permission, job: Job | None) -> bool:
    """Ada may do everything; others read, and cancel what is in the queue of their name."""
    if principal == "ada":
        return True
    if permission is P.LIST:
        return True
    return permission in {P.VIEW, P.CANCEL} and job is not None and job.queue == principal


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler that asks."""
    made = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=["tests.browser.shop"], authorizer=by_queue)
    yield made
    made.close()


@pytest.fixture
def jobs(guarded: Scheduler) -> dict[str, JobHandle[object]]:
    """One job of Ann and one of Bob."""
    with guarded.acting_as("ada"):
        return {
            name: guarded.enqueue(shop.resize, name).with_queue(name).with_tags("t").submit()
            for name in ("ann", "bob")
        }


@pytest.fixture
def client(guarded: Scheduler) -> TestClient:
    """A browser whose header says who it is."""
    app = dashboard.asgi(guarded, authorize=lambda request, permission: request.headers.get("who"))
    return TestClient(app, base_url="http://localhost:8080", follow_redirects=False)


def test_a_refusal_is_403_and_written_down(
    client: TestClient, guarded: Scheduler, jobs: dict[str, JobHandle[object]]
) -> None:
    """An action that is not permitted changes nothing; one that is permitted is done, in the person's name."""
    ann = {**SAME, **JSON, "who": "ann"}
    refused = client.post(f"/jobs/{jobs['ann'].id}/pause", headers=ann)
    assert refused.status_code == 403
    assert "'ann' may not pause" in refused.json()["error"]
    assert client.post(f"/jobs/{jobs['ann'].id}/cancel", headers=ann).status_code == 200
    assert client.get(f"/jobs/{jobs['bob'].id}", headers=ann).status_code == 403
    assert client.get("/audit", headers=ann).status_code == 403
    entries = client.get("/audit?principal=ann&source=dashboard", headers={**JSON, "who": "ada"}).json()[
        "entries"
    ]
    assert [(one["verb"], one["outcome"]) for one in reversed(entries)] == [
        ("pause", "refused"),
        ("cancel", "done"),
        ("view", "refused"),
        ("audit", "refused"),
    ]


def test_a_page_is_not_shown_to_others(client: TestClient, jobs: dict[str, JobHandle[object]]) -> None:
    """What was read for one person a moment ago is not the answer to another."""
    for name in ("ann", "bob", "ann"):
        shown = client.get("/jobs", headers={**JSON, "who": name}).json()["jobs"]
        assert [one["queue"] for one in shown] == [name]
    assert len(client.get("/jobs", headers={**JSON, "who": "ada"}).json()["jobs"]) == 2


def test_many_jobs_without_those_that_are_refused(
    client: TestClient, jobs: dict[str, JobHandle[object]], guarded: Scheduler
) -> None:
    """All that match means: of those that the person may change."""
    done = client.post("/jobs/cancel?tag=t", headers={**SAME, **JSON, "who": "ann"})
    assert done.json()["changed"] == 1
    paused = client.post("/jobs/pause?tag=t", headers={**SAME, **JSON, "who": "bob"})
    assert paused.status_code == 409
    with guarded.acting_as("ada"):
        assert jobs["bob"].status() == "PENDING"


def test_the_log_in_pages(client: TestClient, guarded: Scheduler) -> None:
    """Newest first, as HTML and as JSON, and a cursor goes on; a criterion that means nothing is refused."""
    ada = {"who": "ada"}
    with guarded.acting_as("ada"):
        for number in range(60):
            guarded.queues.pause(f"q{number}")
    first = client.get("/audit?verb=pause", headers={**JSON, **ada}).json()
    assert [one["object"] for one in first["entries"]] == [f"queue:q{n}" for n in range(59, 9, -1)]
    words = {"verb": "pause", "cursor": first["next_cursor"]}
    second = client.get("/audit", params=words, headers={**JSON, **ada}).json()
    assert [one["object"] for one in second["entries"]] == [f"queue:q{n}" for n in range(9, -1, -1)]
    page = client.get("/audit?object=queue:q7", headers=ada)
    assert "queue:q7" in page.text
    assert "queue:q8" not in page.text
    for words in ("source=pigeon", "after=soon", "job_id=x", "cursor=x"):
        assert client.get(f"/audit?{words}", headers={**JSON, **ada}).status_code == 400, words


def test_who_has_started_it(guarded: Scheduler) -> None:
    """Where nobody is asked for a name, it is who the command names."""
    app = dashboard.asgi(guarded)
    app.serves("ada")
    client = TestClient(app, client=("127.0.0.1", 1), base_url="http://localhost")
    assert client.post("/queues/mail/pause", headers={**SAME, **JSON}).status_code == 200
    [entry] = client.get("/audit?verb=pause", headers=JSON).json()["entries"]
    assert (entry["principal"], entry["source"], entry["object"]) == ("ada", "dashboard", "queue:mail")
