"""What a person can do: each verb does it, says so, and refuses what the state does not allow."""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from ratchet import AuditFilter, JobFilter, JobStatus, Priority, ScheduleNotFound, Scheduler
from ratchet.dashboard import bulk
from ratchet.dashboard.pages.question import path_of
from tests.browser import shop
from tests.support.waiting import until
from tests.unit.dashboard.conftest import JSON, SAME


def post(client: TestClient, path: str, **form: str) -> str:
    """Send a form as a page does; where it leads."""
    answer = client.post(path, data=form, headers=SAME)
    assert answer.status_code == 303, (path, answer.text[-500:])
    shown = client.get(answer.headers["location"])
    assert shown.status_code == 200
    assert 'class="banner done"' in shown.text
    return str(answer.headers["location"])


def refused(client: TestClient, path: str, status: int = 409, **form: str) -> str:
    """Send a form that changes nothing; what it says."""
    answer = client.post(path, data=form, headers={**SAME, **JSON})
    assert answer.status_code == status, (path, answer.text)
    return str(answer.json().get("refused") or answer.json()["error"])


class TestOneJob:
    def test_each_verb(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """A job is taken through them all."""
        path = f"/jobs/{ids['failed']}"
        status = scheduler.handle(ids["failed"]).status
        post(client, f"{path}/retry")
        assert status() is JobStatus.PENDING
        post(client, f"{path}/set-priority", to="CRITICAL")
        assert scheduler.jobs.get(ids["failed"]).priority is Priority.CRITICAL
        post(client, f"{path}/pause")
        assert status() is JobStatus.PAUSED
        post(client, f"{path}/resume")
        assert status() is JobStatus.PENDING
        scheduler.reschedule_job(ids["failed"], timedelta(days=1))
        post(client, f"{path}/run-now")
        job = scheduler.jobs.get(ids["failed"])
        assert job.scheduled_at <= scheduler.backend.now()
        post(client, f"{path}/cancel")
        assert scheduler.jobs.get(ids["failed"]).canceled_reason == "requested by local"
        assert post(client, f"{path}/delete").startswith("/jobs?")
        assert client.get(path).status_code == 404

    def test_what_its_state_does_not_allow(self, ids: dict[str, UUID], client: TestClient) -> None:
        """A sentence and status 409; a page for people, a document for programs."""
        path = f"/jobs/{ids['charged']}"
        for verb, words in (
            ("retry", "FAILED"),
            ("pause", "PENDING"),
            ("resume", "PAUSED"),
            ("run-now", "ended"),
        ):
            assert words in refused(client, f"{path}/{verb}")
        answer = client.post(f"{path}/retry", headers=SAME)
        assert answer.status_code == 409
        assert "Nothing was changed" in answer.text
        assert "no priority" in refused(client, f"{path}/set-priority", 400, to="URGENT")

    def test_run_now_resumes(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """A paused job is not only due: it can run."""
        post(client, f"/jobs/{ids['paused']}/run-now")
        assert scheduler.handle(ids["paused"]).status() is JobStatus.PENDING


class TestManyJobs:
    def test_says_how_many_first(
        self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient
    ) -> None:
        """A form asks; only with its confirmation something is done, and to as many as it said."""
        failed = scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED], tags=["billing"]))
        answer = client.post("/jobs/retry?tag=billing", headers=SAME)
        assert answer.status_code == 200
        assert f"Retry {failed} jobs?" in answer.text
        assert scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED], tags=["billing"])) == failed
        action = re.findall(r'action="(/jobs/retry[^"]*)"', answer.text)
        assert action == ["/jobs/retry?tag=billing"]
        done = client.post(action[0], data={"confirm": "1"}, headers=SAME)
        assert done.status_code == 303
        assert f"n={failed}" in done.headers["location"]
        assert f"Retried: {failed}." in client.get(done.headers["location"]).text
        assert scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED], tags=["billing"])) == 0

    @pytest.mark.parametrize("verb", ["pause", "resume", "run-now", "set-priority", "cancel", "delete"])
    def test_each_verb(self, scheduler: Scheduler, client: TestClient, verb: str) -> None:
        """All that match and can be changed so, and no others."""
        first = scheduler.enqueue_many(shop.resize, [("a",), ("b",), ("c",)])
        other = scheduler.enqueue(shop.resize, "d").with_queue("other").submit()
        if verb == "resume":
            for handle in first:
                handle.pause()
        body = {"to": "LOW"} if verb == "set-priority" else {}
        answer = client.post(f"/jobs/{verb}?queue=default", json=body, headers={**SAME, **JSON})
        assert answer.json()["changed"] == 3
        assert other.status() is JobStatus.PENDING
        if verb == "set-priority":
            assert [scheduler.jobs.get(one.id).priority for one in first] == [Priority.LOW] * 3
        if verb == "delete":
            assert scheduler.jobs.count(JobFilter(queue="default")) == 0

    def test_a_program_can_look_first(self, scheduler: Scheduler, client: TestClient) -> None:
        """With `dry_run` it learns how many; without, it is done at once."""
        scheduler.enqueue_many(shop.resize, [("a",), ("b",)])
        headers = {**SAME, **JSON}
        looked = client.post("/jobs/cancel?queue=default", data={"dry_run": "1"}, headers=headers)
        assert looked.json() == {"verb": "jobs.cancel", "would_change": 2}
        assert scheduler.jobs.counts()[JobStatus.PENDING] == 2
        assert client.post("/jobs/cancel?queue=default", headers=headers).json()["changed"] == 2

    def test_a_filter_in_the_body(self, scheduler: Scheduler, client: TestClient) -> None:
        """It chooses as one in the address does: nothing else is changed."""
        scheduler.enqueue_many(shop.resize, [("a",), ("b",)])
        mine = scheduler.enqueue(shop.resize, "c").with_priority(Priority.HIGH).submit()
        for body in ({"priority": "HIGH"}, {"status": ["PENDING", "PAUSED"], "priority": "HIGH"}):
            answer = client.post("/jobs/pause", json=body, headers={**SAME, **JSON})
            assert answer.json()["changed"] == (1 if mine.status() is JobStatus.PAUSED else 0), body
            mine.resume()

    def test_selected_ones(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Those that were ticked, as far as their state allows; the filter of the page does not matter."""
        chosen = {"id": [str(ids["failed"]), str(ids["charged"])]}
        asked = client.post("/jobs/retry?queue=mail", data=chosen, headers=SAME)
        assert "Retry 1 job?" in asked.text
        done = client.post("/jobs/retry", data={**chosen, "confirm": "1"}, headers=SAME)
        assert done.status_code == 303
        assert scheduler.handle(ids["failed"]).status() is JobStatus.PENDING

    def test_all_jobs_there_are(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Refused without a filter, as everywhere else."""
        before = scheduler.jobs.counts()
        for form in ({}, {"confirm": "1"}):
            answer = client.post("/jobs/delete", data=form, headers=SAME)
            assert answer.status_code == 400
            assert "filter" in answer.text
        assert scheduler.jobs.counts() == before

    def test_more_than_one_request_changes(
        self, scheduler: Scheduler, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It stops at its limit and says that there is more."""
        monkeypatch.setattr(bulk, "MOST", 4)
        monkeypatch.setattr(bulk, "CHUNK", 3)
        scheduler.enqueue_many(shop.resize, [(str(number),) for number in range(9)])
        asked = client.post("/jobs/cancel?queue=default", headers=SAME)
        assert "4+ jobs" in asked.text
        done = client.post("/jobs/cancel?queue=default", headers={**SAME, **JSON}).json()
        assert (done["changed"], done["more"]) == (4, True)
        assert scheduler.jobs.counts()[JobStatus.PENDING] == 5


class TestOtherObjects:
    def test_dead_letters(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """A group is retried or purged, and no other."""
        groups = {group.target: group for group in scheduler.dead_letters.summary()}
        billing, mail = groups["billing.charge"], groups["mail.send"]
        post(client, "/dead-letters/retry", target=billing.target, error_type=billing.error_type or "")
        left = {group.target: group.count for group in scheduler.dead_letters.summary()}
        assert left == {one.target: one.count for one in groups.values() if one.target != billing.target}
        location = post(client, "/dead-letters/purge", target=mail.target, error_type=mail.error_type or "")
        assert f"n={mail.count}" in location
        assert mail.target not in {group.target for group in scheduler.dead_letters.summary()}
        refused(client, "/dead-letters/purge", target=mail.target, error_type=mail.error_type or "")
        refused(client, "/dead-letters/purge", 400, target=mail.target)
        refused(client, "/dead-letters/purge", 400)

    def test_queues(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Paused for good or for a while, and resumed; whatever the name is."""
        post(client, "/queues/mail/pause")
        post(client, "/queues/a%2Fb%20%3F/pause", **{"for": "1h"})
        queues = {queue.name: queue for queue in scheduler.queues.list()}
        assert queues["mail"].paused
        assert queues["a/b ?"].paused_until is not None
        post(client, "/queues/mail/resume")
        assert not {queue.name: queue for queue in scheduler.queues.list()}["mail"].paused
        refused(client, "/queues/mail/resume")
        refused(client, "/queues/mail/pause", 400, **{"for": "soon"})

    def test_limits_and_breakers(
        self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient
    ) -> None:
        """Set, changed and removed; opened and reset."""
        post(client, "/limits/set", name="gpu", concurrent="2")
        post(client, "/limits/mail-server/set", rate="10", per="1m")
        limits = {limit.name: limit for limit in scheduler.limits.list()}
        assert limits["gpu"].concurrent == 2
        assert (limits["mail-server"].rate, limits["mail-server"].period) == (10, timedelta(minutes=1))
        post(client, "/limits/gpu/remove")
        assert "gpu" not in {limit.name for limit in scheduler.limits.list()}
        for form in (
            {"name": "x"},
            {"name": "x", "concurrent": "1", "rate": "2"},
            {"name": "x", "concurrent": "-1"},
        ):
            refused(client, "/limits/set", 400, **form)
        refused(client, "/limits/nope/remove")
        post(client, "/breakers/bank/open")
        post(client, "/breakers/bank/reset")
        refused(client, "/breakers/bank/reset")
        assert {one.service: one.state for one in scheduler.breakers.list()}["bank"] == "CLOSED"

    def test_schedules(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Paused, resumed, triggered and removed."""
        schedule = scheduler.schedules.get("thumbnails")
        post(client, "/schedules/thumbnails/pause")
        assert schedule.paused
        post(client, "/schedules/thumbnails/resume")
        assert not schedule.paused
        location = post(client, "/schedules/thumbnails/trigger")
        assert scheduler.jobs.get(location.partition("?")[0].removeprefix("/jobs/")).schedule == "thumbnails"
        post(client, "/schedules/thumbnails/edit", expression="*/5 * * * *", zone="Asia/Tokyo", jitter="30s")
        assert (schedule.record().spec.expression, schedule.record().spec.zone) == (
            "*/5 * * * *",
            "Asia/Tokyo",
        )
        post(client, "/schedules/thumbnails/remove")
        with pytest.raises(ScheduleNotFound):
            scheduler.schedules.get("thumbnails")
        refused(client, "/schedules/thumbnails/pause", 404)

    def test_editing_a_schedule(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """What the form says is stored, and nothing else; what makes no sense is refused in a sentence."""
        schedule, path = scheduler.schedules.get("thumbnails"), "/schedules/thumbnails/edit"
        before = schedule.record().spec
        form = {"expression": before.expression, "zone": "UTC", "jitter": "", "overlap": "SKIP"}
        assert "so already" in refused(client, path, **form, arguments='["logo.png"]')
        assert schedule.record().spec == before
        post(
            client,
            path,
            **{**form, "jitter": "1m"},
            arguments='{"args": ["big.png"], "kwargs": {"width": 9}}',
        )
        post(client, path, misfire="catch_up:3")
        spec = schedule.record().spec
        assert (spec.jitter, spec.misfire, spec.expression) == (
            timedelta(minutes=1),
            "catch_up:3",
            "every 15m",
        )
        run = scheduler.jobs.get(schedule.trigger().id)
        assert (run.args, run.kwargs, run.target) == (("big.png",), {"width": 9}, "media.resize")
        shown = client.get("/schedules/thumbnails").text
        assert "big.png" in shown
        assert 'value="1m"' in shown
        for wrong, words in (
            ({"expression": "61 * * * *"}, "cron"),
            ({"zone": "Mars/Olympus"}, "time zone"),
            ({"jitter": "soon"}, "jitter"),
            ({"misfire": "never"}, "catch_up"),
            ({"overlap": "maybe"}, "ALLOW, SKIP, QUEUE"),
            ({"arguments": "{]"}, "no JSON"),
            ({"arguments": '{"a": 1}'}, "write [1, 2]"),
        ):
            assert words in refused(client, path, 400, **wrong)
        assert schedule.record().spec == spec
        (last, *_) = scheduler.audit.find(AuditFilter(verb="change", outcome="done"))
        assert (last.principal, last.source, last.object) == ("local", "dashboard", "schedule:thumbnails")
        assert "misfire=catch_up:3" in (last.reason or "")

    def test_a_schedule_that_is_declared_in_code(self, scheduler: Scheduler, client: TestClient) -> None:
        """It is not edited here: a node that starts would change it back. The page says so."""
        scheduler.recurring("@daily", name="nightly")(shop.cleanup)
        with scheduler:
            pass
        assert "declared in code" in refused(client, "/schedules/nightly/edit", 400, zone="Asia/Tokyo")
        assert "declared in code: change it there" in client.get("/schedules/nightly").text
        assert scheduler.schedules.get("nightly").record().spec.zone == "UTC"

    def test_arguments_that_are_no_plain_json(self, scheduler: Scheduler, client: TestClient) -> None:
        """They are neither shown nor overwritten: as JSON, a date would come back as text."""
        scheduler.schedule_recurring("@daily", shop.resize, timedelta(days=3), name="typed")
        page = client.get("/schedules/typed").text
        assert 'name="arguments"' not in page
        post(client, "/schedules/typed/edit", zone="Asia/Tokyo")
        assert scheduler.jobs.get(scheduler.schedules.get("typed").trigger().id).args == (timedelta(days=3),)

    def test_batches(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Failed items are retried, which opens it again; then it is canceled."""
        batch = scheduler.batches.get(ids["batch"])
        failed = batch.context().failed_items
        assert failed
        assert f"n={failed}" in post(client, f"/batches/{batch.id}/retry-failed")
        refused(client, f"/batches/{batch.id}/retry-failed")
        post(client, f"/batches/{batch.id}/cancel")
        assert batch.context().is_complete
        refused(client, f"/batches/{batch.id}/cancel")

    def test_nodes(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """A living one is drained, resumed and stopped; one that is gone can be forgotten, a living one cannot."""
        for verb in ("drain", "resume", "stop"):
            assert "no node" in refused(client, f"/nodes/nobody/{verb}", 404)
        refused(client, "/nodes/nobody/remove")
        with scheduler:
            node = next(one for one in scheduler.nodes.list() if one.state == "ACTIVE")
            path = path_of("nodes", node.node_id)
            assert "is alive" in refused(client, f"{path}/remove")
            refused(client, f"{path}/resume")
            post(client, f"{path}/drain")
            refused(client, f"{path}/drain")
            page = client.get("/nodes").text
            assert f'action="{path}/resume"' in page
            assert f'action="{path}/drain"' not in page
            assert "MiB" in page  # its memory
            post(client, f"{path}/resume")
            post(client, f"{path}/stop")
            assert f'action="{path}/stop"' not in client.get("/nodes").text
            until(lambda: not scheduler.running, 60)
