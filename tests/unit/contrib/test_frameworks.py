"""Ratchet in FastAPI, Starlette, Litestar and Flask."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from flask import Flask, current_app
from litestar import Litestar, get
from litestar.di import NamedDependency
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ratchet import ConfigurationError, JobStatus, Options, Scheduler
from ratchet.contrib.flask import Ratchet
from ratchet.contrib.litestar import RatchetPlugin
from ratchet.contrib.starlette import current_scheduler, lifespan
from ratchet.testing import isolated
from tests.support.waiting import until


def add(left: int, right: int) -> int:
    return left + right


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    made = Scheduler(url, allow=[__name__])
    yield made
    made.close()


class TestFastApi:
    @pytest.mark.parametrize("worker", [True, False])
    def test_a_job_of_an_endpoint(self, scheduler: Scheduler, worker: bool) -> None:
        """A dependency gives the scheduler; with a worker the job runs in this process, without one it waits."""
        app = FastAPI(lifespan=lifespan(scheduler, worker=worker))

        @app.get("/add")
        async def add_later(known: Annotated[Scheduler, Depends(current_scheduler)]) -> dict[str, str]:
            handle = await known.aio.enqueue_now(add, 2, 3)
            return {"id": str(handle.id)}

        with TestClient(app) as client:
            job_id = client.get("/add").json()["id"]
            assert scheduler.running is worker
            if worker:
                assert scheduler.handle(job_id).result(timeout=20) == 5
        assert not scheduler.running
        assert scheduler.handle(job_id).status() is (JobStatus.SUCCEEDED if worker else JobStatus.PENDING)

    def test_two_lifespans(self, scheduler: Scheduler) -> None:
        """The application's own runs inside ours, and its state reaches requests."""
        calls: list[str] = []

        @asynccontextmanager
        async def own(app: FastAPI) -> AsyncIterator[dict[str, str]]:
            calls.append("begin" if scheduler.running else "too early")
            yield {"greeting": "hello"}
            calls.append("end" if scheduler.running else "too late")

        app = FastAPI(lifespan=lifespan(scheduler, worker=True, then=own))

        @app.get("/")
        def greet(request: Request) -> str:
            return str(request.state.greeting)

        with TestClient(app) as client:
            assert client.get("/").json() == "hello"
        assert calls == ["begin", "end"]

    def test_under_test_nothing_reaches_the_database(self, scheduler: Scheduler, tmp_path: Path) -> None:
        """An application with a worker in its lifespan is isolated like any other."""
        app = FastAPI(lifespan=lifespan(scheduler, worker=True))

        @app.get("/")
        def submit(known: Annotated[Scheduler, Depends(current_scheduler)]) -> str:
            return str(known.enqueue_now(add, 1, 1).id)

        with isolated(scheduler) as test, TestClient(app) as client:
            client.get("/")
            test.assert_enqueued(add, 1, 1)
        assert not list(tmp_path.glob("*.db"))


class TestStarlette:
    def test_a_request_knows_its_scheduler(self, scheduler: Scheduler) -> None:
        """Without FastAPI the same function is called with the request."""

        async def submit(request: Request) -> JSONResponse:
            handle = await current_scheduler(request).aio.enqueue_now(add, 1, 2)
            return JSONResponse(str(handle.id))

        app = Starlette(routes=[Route("/", submit)], lifespan=lifespan(scheduler))
        with TestClient(app) as client:
            job_id = client.get("/").json()
        assert scheduler.jobs.get(job_id).args == (1, 2)

    def test_an_application_without_one(self) -> None:
        """The message says what to do."""

        async def submit(request: Request) -> JSONResponse:
            with pytest.raises(ConfigurationError, match="lifespan="):
                current_scheduler(request)
            return JSONResponse("refused")

        with TestClient(Starlette(routes=[Route("/", submit)])) as client:
            assert client.get("/").json() == "refused"


def test_litestar(scheduler: Scheduler) -> None:
    """A handler takes the scheduler as a parameter; the plugin starts and stops the worker."""

    @get("/add")
    async def add_later(scheduler: NamedDependency[Scheduler]) -> str:
        handle = await scheduler.aio.enqueue_now(add, 2, 3)
        return str(handle.id)

    app = Litestar([add_later], plugins=[RatchetPlugin(scheduler, worker=True)])
    with LitestarClient(app) as client:
        job_id = client.get("/add").text
        assert scheduler.handle(job_id).result(timeout=20) == 5
    assert not scheduler.running


def where() -> str:
    return str(current_app.name)


async def where_async() -> str:
    return str(current_app.name)


class TestFlask:
    def test_an_application_factory(self, url: str) -> None:
        """The extension is made first and told its store later; jobs see the application in threads and coroutines."""
        extension = Ratchet(allow=[__name__])

        def create_app() -> Flask:
            app = Flask("shop")
            app.config.update(RATCHET_URL=url, RATCHET_OPTIONS={"concurrency": 3})
            extension.init_app(app)
            return app

        assert create_app().extensions["ratchet"] is extension
        scheduler = extension.scheduler
        assert scheduler.options.concurrency == 3
        with scheduler:
            assert scheduler.enqueue_now(where).result(timeout=20) == "shop"
            assert scheduler.enqueue_now(where_async).result(timeout=20) == "shop"
        scheduler.close()

    def test_at_once(self, url: str) -> None:
        """`Ratchet(app)` is the same in one step; options may be `Options`."""
        app = Flask("shop")
        app.config.update(RATCHET_URL=url, RATCHET_OPTIONS=Options(concurrency=4))
        assert Ratchet(app).scheduler.options.concurrency == 4

    def test_a_second_application_on_the_same_store(self, url: str) -> None:
        """A test suite makes many applications; another store after the first use is refused."""
        extension = Ratchet(allow=[__name__])
        for name in ("one", "two"):
            app = Flask(name)
            app.config["RATCHET_URL"] = url
            extension.init_app(app)
            with extension.scheduler:
                assert extension.scheduler.enqueue_now(where).result(timeout=20) == name
        other = Flask("three")
        other.config["RATCHET_URL"] = "sqlite:///:memory:"
        with pytest.raises(ConfigurationError, match="has used its store already"):
            extension.init_app(other)
        extension.scheduler.close()

    def test_the_commands(self, tmp_path: Path) -> None:
        """`flask ratchet worker` runs the jobs of a factory's application, in processes too; `flask ratchet jobs` lists them."""
        (tmp_path / "shop.py").write_text(
            "from flask import Flask, current_app\n"
            "from ratchet.contrib.flask import Ratchet\n"
            "ratchet = Ratchet()\n"
            "@ratchet.scheduler.job\n"
            "def where(): return current_app.name\n"
            "@ratchet.scheduler.job(lane='process')\n"
            "def where_else(): return current_app.name\n"
            "def create_app():\n"
            "    app = Flask('shop')\n"
            f"    app.config['RATCHET_URL'] = 'sqlite:///{tmp_path / 'shop.db'}'\n"
            "    ratchet.init_app(app)\n"
            "    @app.cli.command('submit')\n"
            "    def submit():\n"
            "        print(where.enqueue().submit().id, where_else.enqueue().submit().id)\n"
            "    return app\n"
        )
        environment = {**os.environ, "FLASK_APP": "shop:create_app", "PYTHONPATH": str(tmp_path)}

        def flask(*words: str) -> str:
            command = [sys.executable, "-m", "flask", *words]
            done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout

        ids = flask("submit").split()
        log = tmp_path / "log"
        command = [sys.executable, "-m", "flask", "ratchet", "worker", "--concurrency", "2"]
        with log.open("wb") as file:
            worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=file, stdout=file)
        reader = Scheduler(f"sqlite:///{tmp_path / 'shop.db'}")
        try:
            for job_id in ids:
                until(lambda job_id=job_id: reader.jobs.get(job_id).status.is_terminal, 60, log.read_text())
                assert reader.jobs.get(job_id).result == "shop", log.read_text()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
            reader.close()
        assert "SUCCEEDED" in flask("ratchet", "jobs", "list")
