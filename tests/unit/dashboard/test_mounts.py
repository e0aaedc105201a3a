"""The dashboard in FastAPI, Starlette, Litestar, Django and Flask: every link of every page holds."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar, asgi
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client as WerkzeugClient

from ratchet import JobStatus, Scheduler, dashboard
from ratchet.dashboard.app import located
from tests.unit.dashboard.conftest import SAME

#: (status, text, where it leads) of an address.
Get = Callable[[str], tuple[int, str, str]]
Post = Callable[[str], tuple[int, str, str]]


def follow(get: Get, start: str) -> set[str]:
    """
    Every address that can be reached by links; each must be answered, and be below *start*.

    Of pages that differ in an id or a word alone, a few are looked at.
    """
    seen, todo = set(), [f"{start}/"]
    alike: Counter[str] = Counter()
    while todo:
        path = todo.pop()
        seen.add(path)
        kind = re.sub(r"[0-9a-f-]{36}|=[^&]*", "*", path)
        alike[kind] += 1
        if alike[kind] > 3:
            continue
        status, text, _ = get(path)
        assert status == 200, (path, status, text[-300:])
        if "/static/" in path:
            continue
        for found in re.findall(r'(?:href|src)="([^"#]+)"', text):
            link = html.unescape(found)
            assert link.startswith(f"{start}/"), (path, link)
            # one listing after the other would be the whole product of all filters
            if link not in seen and link not in todo and not ("?" in link and "?" in path):
                todo.append(link)
        for action in re.findall(r'(?:action|formaction)="([^"]+)"', text):
            assert html.unescape(action).startswith(f"{start}/"), (path, action)
    return seen


def check(get: Get, post: Post, start: str, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
    """All links, one verb, and where it leads."""
    seen = follow(get, start)
    kinds = {path.removeprefix(start).split("?")[0].split("/")[1] for path in seen}
    wanted = {
        "jobs",
        "dead-letters",
        "queues",
        "limits",
        "schedules",
        "batches",
        "nodes",
        "audit",
        "graphs",
        "static",
    }
    assert wanted <= kinds
    status, _, location = post(f"{start}/jobs/{ids['failed']}/retry")
    assert status == 303
    assert location.startswith(f"{start}/jobs/{ids['failed']}?")
    assert get(location)[0] == 200
    assert scheduler.handle(ids["failed"]).status() is JobStatus.PENDING


def check_with(client: Any, start: str, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
    """With a client that speaks as httpx does."""

    def get(path: str) -> tuple[int, str, str]:
        answer = client.get(path)
        return answer.status_code, answer.text, answer.headers.get("location", "")

    def post(path: str) -> tuple[int, str, str]:
        answer = client.post(path, headers=SAME)
        return answer.status_code, answer.text, answer.headers.get("location", "")

    check(get, post, start, scheduler, ids)


def browser(app: Any) -> TestClient:
    """A client on this machine."""
    return TestClient(app, client=("127.0.0.1", 1), base_url="http://localhost", follow_redirects=False)


class TestAsgi:
    def test_alone(self, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
        """At the root of a server."""
        check_with(browser(dashboard.asgi(scheduler)), "", scheduler, ids)

    def test_fastapi(self, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
        """Mounted; its lifespan is not run, and need not be. Without its last slash the address leads there."""
        app = FastAPI()
        app.mount("/admin/jobs", dashboard.asgi(scheduler))
        client = browser(app)
        check_with(client, "/admin/jobs", scheduler, ids)
        assert client.get("/admin/jobs").headers["location"].endswith("/admin/jobs/")

    def test_starlette(self, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
        """Mounted in a mount, behind a proxy that takes a prefix away."""
        inner = Starlette(routes=[Mount("/jobs", dashboard.asgi(scheduler))])
        app = Starlette(routes=[Mount("/admin", inner)])
        check_with(browser(app), "/admin/jobs", scheduler, ids)

    @pytest.mark.parametrize("prefix", [None, "/admin/jobs"])
    def test_litestar(self, scheduler: Scheduler, ids: dict[str, UUID], prefix: str | None) -> None:
        """Its mounts tell nothing of their path; it is found out, or told."""
        mounted = asgi("/admin/jobs", is_mount=True, copy_scope=True)(
            _handler(dashboard.asgi(scheduler, prefix=prefix, authorize=lambda request, permission: "ann"))
        )
        with LitestarClient(Litestar([mounted]), base_url="http://jobs.example") as client:
            client.follow_redirects = False
            check_with(client, "/admin/jobs", scheduler, ids)

    def test_behind_a_proxy_that_takes_a_prefix_away(
        self, scheduler: Scheduler, ids: dict[str, UUID]
    ) -> None:
        """The application sees other addresses than the browser: `prefix` says which the browser sees."""
        client = browser(dashboard.asgi(scheduler, prefix="ops/jobs/"))
        page = client.get("/queues").text
        assert 'href="/ops/jobs/nodes"' in page
        assert 'href="/nodes"' not in page
        assert client.get("/ops/jobs/queues").status_code == 200

    @pytest.mark.parametrize(
        ("path", "root", "raw", "prefix", "expected"),
        [
            ("/jobs", "", "/jobs", None, ("", "/jobs")),
            ("/x/jobs", "/x", "/x/jobs", None, ("/x", "/x/jobs")),
            ("/jobs", "/x", "/jobs", None, ("/x", "/x/jobs")),
            ("/jobs", "", "/x/jobs", None, ("/x", "/x/jobs")),
            ("/a/b", "", "/a%2Fb", None, ("", "/a/b")),
            ("/", "", "/x/jobs", None, ("/x/jobs", "/x/jobs/")),
            ("/jobs/", "", "/x/jobs?a=b", None, ("/x", "/x/jobs")),
            ("/queues/a/b/pause/", "", "/x/queues/a%2Fb/pause", None, ("/x", "/x/queues/a/b/pause")),
            ("/jobs/", "", "/jobs/", None, ("", "/jobs/")),
            ("/jobs", "", "", None, ("", "/jobs")),
            ("/x/jobs", "", "/x/jobs", "/x", ("/x", "/x/jobs")),
            ("/jobs", "", "/jobs", "/x", ("/x", "/x/jobs")),
            ("/x/jobs", "/x", "/x/jobs", "/ops", ("/ops", "/ops/jobs")),
            ("/x", "/x", "/x", None, ("/x", "/x")),
        ],
    )
    def test_where_it_is(
        self, path: str, root: str, raw: str, prefix: str | None, expected: tuple[str, str]
    ) -> None:
        """What frameworks say of a mount, in all the ways there are."""
        found = located({"path": path, "root_path": root, "raw_path": raw.encode()}, prefix)
        assert (found["root_path"], found["path"]) == expected


def _handler(app: Any) -> Any:
    async def handle(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    handle.__annotations__.update(scope="Scope", receive="Receive", send="Send")
    return handle


class TestWsgi:
    def test_flask(self, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
        """Beside the application's own pages."""
        app = Flask("shop")
        app.route("/")(lambda: "shop")
        made = dashboard.wsgi(scheduler)
        app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/jobs": made})  # type: ignore[method-assign]
        client = app.test_client()
        assert client.get("/").text == "shop"
        check_wsgi(client, "/jobs", scheduler, ids)
        made.close()

    def test_alone(self, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
        """HEAD has no body; strangers are refused; after `close` it goes on with another loop."""
        made = dashboard.wsgi(scheduler)
        client = WerkzeugClient(made)
        check_wsgi(client, "", scheduler, ids)
        made.close()
        head = client.head("/", environ_base={"REMOTE_ADDR": "127.0.0.1"})
        assert (head.status_code, head.data) == (200, b"")
        assert client.get("/", environ_base={"REMOTE_ADDR": "10.0.0.7"}).status_code == 403
        made.close()

    def test_the_request_of_authorize(self, scheduler: Scheduler) -> None:
        """It finds what the server and the middleware around it have put into the environment."""
        made = dashboard.wsgi(
            scheduler, authorize=lambda request, _: request.scope["wsgi.environ"].get("REMOTE_USER")
        )
        client = WerkzeugClient(made)
        assert client.get("/").status_code == 403
        assert "Signed in as ann" in client.get("/", environ_base={"REMOTE_USER": "ann"}).text
        made.close()


def check_wsgi(client: Any, start: str, scheduler: Scheduler, ids: dict[str, UUID]) -> None:
    """With Werkzeug's client."""
    here = {"REMOTE_ADDR": "127.0.0.1"}

    def get(path: str) -> tuple[int, str, str]:
        answer = client.get(path, environ_base=here)
        return answer.status_code, answer.text, answer.headers.get("location", "")

    def post(path: str) -> tuple[int, str, str]:
        answer = client.post(path, headers=SAME, environ_base=here)
        return answer.status_code, answer.text, answer.headers.get("location", "")

    check(get, post, start, scheduler, ids)


DJANGO = """
import sys
from uuid import UUID
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", SECRET_KEY="x", DEBUG=False)
import django
django.setup()
import types
from django.http import HttpResponse
from django.urls import path
urls = types.ModuleType("urls")
urls.urlpatterns = [path("", lambda request: HttpResponse("shop"))]
sys.modules["urls"] = urls
from ratchet import Scheduler, dashboard
from tests.unit.dashboard import test_mounts
scheduler = Scheduler(sys.argv[1])
ids = {"failed": UUID(sys.argv[2])}
if sys.argv[3] == "asgi":
    from django.core.asgi import get_asgi_application
    from starlette.applications import Starlette
    from starlette.routing import Mount
    application = Starlette(routes=[Mount("/jobs", dashboard.asgi(scheduler)), Mount("/", get_asgi_application())])
    client = test_mounts.browser(application)
    assert client.get("/").text == "shop"
    test_mounts.check_with(client, "/jobs", scheduler, ids)
else:
    from django.core.wsgi import get_wsgi_application
    from werkzeug.middleware.dispatcher import DispatcherMiddleware
    from werkzeug.test import Client
    made = dashboard.wsgi(scheduler)
    client = Client(DispatcherMiddleware(get_wsgi_application(), {"/jobs": made}))
    assert client.get("/").text == "shop"
    test_mounts.check_wsgi(client, "/jobs", scheduler, ids)
    made.close()
scheduler.close()
print("every link holds")
"""


@pytest.mark.parametrize("face", ["asgi", "wsgi"])
def test_django(scheduler: Scheduler, ids: dict[str, UUID], tmp_path: Path, face: str) -> None:
    """Beside a project's own pages, in a process of its own: settings are made once for each."""
    root = Path(__file__).parents[3]
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, url, str(ids["failed"]), face],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "every link holds\n", done.stderr[-3000:]
