"""A real browser, and dashboards that it can look at."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from ratchet import Options, Scheduler, dashboard
from tests.browser import shop
from tests.services import chromium
from tests.support.store_urls import fresh_url
from tests.support.waiting import until

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


#: A node learns with its beat what it was asked.
LIVELY = Options(heartbeat=timedelta(milliseconds=500), idle_heartbeat=timedelta(milliseconds=500))


@dataclass
class Shop:
    """A served dashboard: its address, its scheduler, and some ids of what it shows."""

    address: str
    scheduler: Scheduler
    ids: dict[str, UUID] = field(default_factory=dict)
    app: Any = None


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address at which *app* is served, by a thread of this process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    config = uvicorn.Config(app, port=port, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, 30, "the server did not start")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)


def set_hidden(page: Page, *, hidden: bool) -> None:
    """As if another tab were in front, or this one again."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium; if it is missing, the run fails with the command that installs it."""
    program = chromium.program()
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield made
        made.close()


class Watched:
    """A window, and everything that goes wrong in it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address
        self.faults: list[str] = []
        self.requests: list[str] = []
        #: The paths of what was asked for with a form.
        self.posted: list[str] = []
        self.page = self.tab()

    def tab(self) -> Page:
        """One more page that is watched."""
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self._requested(request.method, request.url))
        return page

    def _requested(self, method: str, url: str) -> None:
        self.requests.append(url)
        if method == "POST":
            self.posted.append(unquote(urlsplit(url).path))

    def _console(self, kind: str, text: str) -> None:
        # What the server refuses on purpose is written to the console too.
        if kind == "error" and "the server responded with a status of" not in text and "ERR_" not in text:
            self.faults.append(text)

    def open(self, path: str) -> Page:
        """Go to a page of the dashboard."""
        self.page.goto(f"{self.address}{path}")
        return self.page

    def check(self) -> None:
        """No script failed, the policy was not broken, and nothing was asked of anybody else."""
        assert self.faults == []
        assert [url for url in self.requests if not url.startswith(self.address)] == []


@pytest.fixture
def windows(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens windows, each with cookies and looks of its own; at the end of a test nothing may have gone wrong."""
    opened: list[Watched] = []
    with ExitStack() as contexts:

        def window(address: str, **settings: Any) -> Watched:
            context = contexts.enter_context(browser.new_context(timezone_id="Europe/Berlin", **settings))
            opened.append(Watched(context, address))
            return opened[-1]

        yield window
        for one in opened:
            one.check()


@pytest.fixture(params=["sqlite", "postgresql"])
def served_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop with jobs in every state, on each of two stores."""
    scheduler = shop.declare(
        Scheduler(fresh_url(request.param, request, tmp_path), allow=["tests.browser.shop"], options=LIVELY)
    )
    ids = shop.fill(scheduler, mails=24)
    app = dashboard.asgi(scheduler)
    with served(app) as address:
        yield Shop(address, scheduler, ids, app)
    scheduler.close()
