"""Who is let in, what is refused, and what hostile text can do: nothing."""

from __future__ import annotations

import logging
import re
from urllib.parse import quote
from uuid import UUID

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from ratchet import ConfigurationError, JobContext, JobStatus, Scheduler, dashboard
from ratchet.dashboard.pages import PAGES
from ratchet.dashboard.text import LONGEST, shown
from ratchet.dashboard.verbs import PERMISSIONS, VERBS
from tests.browser import shop
from tests.unit.dashboard.conftest import JSON, SAME, Browse


class TestWhoIsServed:
    def test_this_machine_only(self, browse: Browse) -> None:
        """Without `authorize` others are refused, and told what to pass."""
        for host in ("127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
            assert browse(client=(host, 1)).get("/").status_code == 200, host
        for host in ("10.0.0.7", "192.168.1.1", "2001:db8::1", "::ffff:10.0.0.7", "", "testclient"):
            answer = browse(client=(host, 1)).get("/")
            assert answer.status_code == 403, host
            assert "authorize=" in answer.text

    @pytest.mark.parametrize(
        "base", ["http://evil.example", "http://127.0.0.1.evil.example", "http://10.0.0.7:8080"]
    )
    def test_dns_rebinding(self, browse: Browse, base: str) -> None:
        """A page of strangers whose name leads to this machine reads nothing."""
        answer = browse(base=base).get("/jobs", headers=JSON)
        assert answer.status_code == 403
        assert set(answer.json()) == {"error"}

    @pytest.mark.parametrize("base", ["http://localhost:1", "http://127.0.0.1:8080", "http://[::1]:8080"])
    def test_names_of_this_machine(self, browse: Browse, base: str) -> None:
        """By each of its names, at any port."""
        assert browse(base=base).get("/").status_code == 200

    @pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host"])
    def test_a_proxy_is_not_this_machine(self, client: TestClient, header: str) -> None:
        """What a proxy on this machine passes on may come from anywhere."""
        assert client.get("/", headers={header: "127.0.0.1"}).status_code == 403

    def test_named_hosts(self, browse: Browse) -> None:
        """With `hosts` it answers to these names alone."""
        options = {"hosts": ["jobs.example"], "authorize": lambda request, permission: "ann"}
        assert browse(base="https://jobs.example", **options).get("/").status_code == 200
        assert browse(base="https://other.example", **options).get("/").status_code == 403

    def test_static_files_too(self, browse: Browse) -> None:
        """Strangers get nothing at all."""
        assert browse(client=("10.0.0.7", 1)).get("/static/dashboard.js").status_code == 403

    def test_what_is_no_dashboard(self, scheduler: Scheduler) -> None:
        """Refused where it is made."""
        with pytest.raises(ConfigurationError, match="Scheduler"):
            dashboard.asgi("sqlite:///x.db")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="authorize"):
            dashboard.asgi(scheduler, authorize="ann")  # type: ignore[arg-type]


class TestAuthorize:
    def test_nobody(self, browse: Browse) -> None:
        """None refuses each page; so does what names nobody."""
        for answer in (None, "", True, 1):
            client = browse(authorize=lambda request, permission, answer=answer: answer)
            for page in PAGES:
                if "{" not in page.path:
                    assert client.get(page.path).status_code == 403, (answer, page.path)

    def test_others_are_served(self, browse: Browse) -> None:
        """With it, any address and name will do; it is given the request."""
        seen: list[str] = []

        def authorize(request: Request, permission: str) -> str | None:
            seen.append(permission)
            return request.headers.get("x-user")

        client = browse(client=("10.0.0.7", 1), base="https://jobs.example", authorize=authorize)
        assert client.get("/").status_code == 403
        answer = client.get("/", headers={"x-user": "ann"})
        assert "Signed in as ann" in answer.text
        assert seen[0] == "view"
        assert set(PERMISSIONS) <= set(seen)

    def test_coroutine_functions(self, browse: Browse) -> None:
        """Awaited."""

        async def authorize(request: Request, permission: str) -> str | None:
            return "ann" if permission == "view" else None

        answer = browse(authorize=authorize).get("/")
        assert answer.status_code == 200
        assert "Signed in as ann" in answer.text

    def test_one_that_raises(self, browse: Browse, caplog: pytest.LogCaptureFixture) -> None:
        """The page fails; it is not served."""

        def authorize(request: Request, permission: str) -> str | None:
            raise RuntimeError("no session")

        answer = browse(authorize=authorize).get("/jobs")
        assert answer.status_code == 500
        assert "no session" not in answer.text
        assert "no session" in caplog.text

    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: f"{verb.permission} {verb.path}")
    def test_a_permission_for_each_verb(
        self, scheduler: Scheduler, browse: Browse, verb: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whoever has all others but not this one changes nothing; with it alone, the verb is carried out or finds nothing."""
        path = verb.path.replace("{id}", str(UUID(int=1))).replace("{name:path}", "x")  # type: ignore[attr-defined]
        permission = verb.permission  # type: ignore[attr-defined]
        others = browse(authorize=lambda request, asked: None if asked == permission else "ann")
        answer = others.post(path, headers={**SAME, **JSON})
        assert answer.status_code == 403
        assert permission in answer.json()["error"]
        only = browse(authorize=lambda request, asked: "ann" if asked == permission else None)
        assert only.post(path, headers={**SAME, **JSON}).status_code in (200, 400, 404, 409)

    def test_pages_show_what_may_be_done(self, ids: dict[str, UUID], browse: Browse) -> None:
        """Who may only retry sees no other button."""
        allowed = ("view", "jobs.retry")
        client = browse(authorize=lambda request, asked: "ann" if asked in allowed else None)
        page = client.get(f"/jobs/{ids['failed']}").text
        assert f"/jobs/{ids['failed']}/retry" in page
        assert f"/jobs/{ids['failed']}/delete" not in page
        assert "/pause" not in client.get("/queues").text


class TestCrossSite:
    @pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "", "Same-Origin"])
    def test_forms_of_other_pages(
        self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient, site: str
    ) -> None:
        """Refused by what the browser says, whatever Origin claims."""
        headers = {"sec-fetch-site": site, "origin": "http://localhost:8080"}
        assert client.post(f"/jobs/{ids['failed']}/retry", headers=headers).status_code == 403
        assert scheduler.jobs.get(ids["failed"]).status is JobStatus.FAILED

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"origin": "http://localhost"},
            {"origin": "http://localhost:80800"},
            {"referer": "http://localhost:8080/jobs"},
        ],
        ids=str,
    )
    def test_without_the_header(
        self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient, headers: dict[str, str]
    ) -> None:
        """An older browser must name this very host as its Origin."""
        assert client.post(f"/jobs/{ids['failed']}/retry", headers=headers).status_code == 403
        assert scheduler.jobs.get(ids["failed"]).status is JobStatus.FAILED

    def test_this_very_host(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Origin alone is enough if it is right."""
        answer = client.post(f"/jobs/{ids['failed']}/retry", headers={"origin": "http://localhost:8080"})
        assert answer.status_code == 303
        assert scheduler.jobs.get(ids["failed"]).status is JobStatus.PENDING

    def test_other_methods(self, client: TestClient) -> None:
        """PUT, DELETE and PATCH are not answered; a GET changes nothing."""
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, "/jobs", headers=SAME).status_code == 405
        for verb in VERBS:
            path = verb.path.replace("{id}", str(UUID(int=1))).replace("{name:path}", "x")
            assert client.get(path).status_code == 404 or path.startswith(("/jobs/", "/schedules/")), path


class TestReadOnly:
    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: f"{verb.permission} {verb.path}")
    def test_every_verb_is_refused(self, browse: Browse, verb: object) -> None:
        """Even to those who have the permission."""
        path = verb.path.replace("{id}", str(UUID(int=1))).replace("{name:path}", "x")  # type: ignore[attr-defined]
        answer = browse(read_only=True).post(path, headers={**SAME, **JSON})
        assert answer.status_code == 403
        assert "read-only" in answer.json()["error"]

    def test_no_page_has_a_form_that_changes(self, ids: dict[str, UUID], browse: Browse) -> None:
        """Pages say that they are read-only, and offer nothing."""
        client = browse(read_only=True)
        for path in (
            "/jobs",
            f"/jobs/{ids['failed']}",
            "/dead-letters",
            "/queues",
            "/limits",
            "/schedules",
            "/nodes",
        ):
            page = client.get(path).text
            assert "Read-only" in page
            assert not [
                form
                for form in re.findall(r"<form[^>]*method=\"post\"[^>]*>", page)
                if 'id="many"' not in form
            ]
            assert "<button" not in page.replace('<button type="button" class="copy"', "").replace(
                '<button class="primary solid">Show</button>', ""
            )


class TestHeaders:
    def test_on_every_answer(self, ids: dict[str, UUID], client: TestClient) -> None:
        """No inline script or style, no frame around it, no guessing of types; on errors, redirects and files too."""
        answers = [
            client.get("/"),
            client.get("/jobs", headers=JSON),
            client.get("/nothing"),
            client.get("/static/dashboard.css"),
            client.post("/jobs/retry"),
            client.post(f"/jobs/{ids['failed']}/retry", headers=SAME),
        ]
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"

    def test_pages_obey_the_policy(self, ids: dict[str, UUID], client: TestClient) -> None:
        """No inline script, no style attribute, no handler, nothing from elsewhere."""
        for path in (
            "/",
            "/jobs",
            f"/jobs/{ids['failed']}",
            f"/graphs/{ids['chain']}",
            "/dead-letters",
            "/nodes",
        ):
            page = client.get(path).text
            assert not re.findall(r"<script(?![^>]* src=)", page)
            assert not re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page), path
            assert not re.findall(r"(?:src|href|action)=\"(?:https?:)?//", page), path


HOSTILE = {
    "script": "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>",
    "bidi": "invoice\u202egnp.exe\u2066\u200f",
    "ansi": "\x1b[31mred\x1b[0m\x07\x9b2J",
    "template": "{{ 7 * 7 }}{% raw %}",
    "long": "x" * 3000,
}


def hostile(text: str) -> None:
    """Fails with what it is given, and logs it."""
    JobContext.current().logger.warning("%s", text)
    raise ValueError(text)


class TestHostileText:
    @pytest.mark.parametrize("kind", HOSTILE)
    def test_in_each_field(self, scheduler: Scheduler, client: TestClient, kind: str) -> None:
        """Arguments, tags, keys, errors, log lines, names of queues, schedules, batches and limits: text on every page."""
        text = HOSTILE[kind]
        name = text[:60]
        scheduler.job(name="hostile")(hostile)
        with scheduler:
            handle = (
                scheduler.enqueue(hostile, text)
                .with_tags(name)
                .with_business_key(name)
                .with_param("region", text)
                .with_queue(name)
                .submit()
            )
            handle.wait(timeout=30)
        waiting = scheduler.enqueue(shop.resize, text).with_queue(name).with_resource(name).submit()
        scheduler.enqueue_batch(name).for_each([text], shop.resize).submit()
        scheduler.schedule_recurring("0 2 * * *", shop.resize, text, name=name)
        scheduler.limits.set(name, concurrent=1)
        scheduler.breakers.open(name)
        waiting.cancel(text[:200])
        batch = scheduler.batches.list()[0].id
        answer = client.post(f"/jobs/{handle.id}/pause", headers=SAME)
        assert answer.status_code == 303
        pages = [
            "/",
            "/jobs",
            f"/jobs/{handle.id}",
            f"/jobs/{waiting.id}",
            "/dead-letters",
            "/queues",
            "/limits",
        ]
        pages += ["/schedules", "/batches", f"/batches/{batch}", f"/graphs/{handle.id}", "/audit", "/nodes"]
        links = re.findall(r'href="(/schedules/[^"]+)"', client.get("/schedules").text)
        assert len(links) == 1
        pages += links
        for path in pages:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text[-600:])
            assert "<script>alert" not in answer.text
            assert "<img" not in answer.text
            assert not re.findall(
                "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200f]", answer.text
            ), path
            assert client.get(path, headers=JSON).status_code == 200
        assert "7 * 7" in client.get(f"/jobs/{handle.id}").text or kind != "template"

    def test_in_the_address(self, client: TestClient) -> None:
        """What a filter says is shown as text, and what cannot be meant is a page that says so."""
        for text in HOSTILE.values():
            for name in ("queue", "tag", "error", "node", "key", "caller"):
                answer = client.get("/jobs", params={name: text})
                assert answer.status_code in (200, 400), (name, text[:20])
                assert "<script>alert" not in answer.text
            assert client.get("/jobs", params={"status": text}).status_code == 400
            assert "<script>alert" not in client.get("/jobs", params={"cursor": text}).text
            assert client.get("/", params={"did": text, "n": text}).status_code == 200
            assert client.get(f"/jobs/{quote(text[:20], safe='')}").status_code in (400, 404)

    def test_a_megabyte(self) -> None:
        """Cut, with how long it was; and it does not take the megabyte's time."""
        text = shown("\x1b" * 1_000_000)
        assert len(text) < 5 * LONGEST
        assert text.endswith("… (1,000,000 characters)")

    def test_half_characters(self) -> None:
        """What cannot be written as UTF-8 is spelled out."""
        assert shown("a\ud800b") == "a\\ud800b"

    def test_a_form_that_is_too_large(self, client: TestClient) -> None:
        """Refused while it is read."""
        answer = client.post("/jobs/retry", content=b"id=" + b"x" * 2_000_000, headers={**SAME, **JSON})
        assert answer.status_code == 400


class TestTheLog:
    def test_each_action_with_who_did_it(
        self, ids: dict[str, UUID], browse: Browse, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In the log and on the audit page, also where it was refused by the state of the job."""
        caplog.set_level(logging.INFO, "ratchet.dashboard")
        client = browse(authorize=lambda request, permission: "ann\n\x1b[31mbob")
        assert client.post(f"/jobs/{ids['failed']}/retry", headers=SAME).status_code == 303
        assert client.post(f"/jobs/{ids['failed']}/retry", headers=SAME).status_code == 409
        lines = [record.getMessage() for record in caplog.records if record.name == "ratchet.dashboard"]
        assert len(lines) == 2
        assert all("jobs.retry" in line and str(ids["failed"]) in line for line in lines)
        assert all("\x1b" not in line for line in lines)
        entries = client.get("/audit?source=dashboard", headers=JSON).json()["entries"]
        assert [entry["outcome"] for entry in entries] == ["unchanged", "done"]
        assert {entry["principal"] for entry in entries} == {"ann\n\x1b[31mbob"}
        assert {entry["job_id"] for entry in entries} == {str(ids["failed"])}
