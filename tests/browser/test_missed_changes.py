"""Open pages that could not follow a change when they were told of it: nobody tells them again, and still they show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, Route, expect

from ratchet import JobHandle, Scheduler, dashboard
from ratchet.dashboard.answers import FRESH
from ratchet.dashboard.app import FRAGMENT
from ratchet.dashboard.live import LIFE, Live
from tests.browser import shop
from tests.browser.conftest import Watched, served, set_hidden
from tests.support.waiting import until

Windows = Callable[..., Watched]

#: What dashboard.js waits for, in milliseconds: until it asks again, and until a form that leads nowhere was stopped.
POLL, STAYED = 5_000, 30_000
#: And how long it believes in a stream that says nothing: longer than the server keeps one.
OLD = 660_000
#: Counts the hints that a page is given.
COUNTING = """
    window.hints = 0;
    const Real = window.EventSource;
    window.EventSource = class extends Real {
        constructor(...words) {
            super(...words);
            this.addEventListener("changed", () => { window.hints += 1; });
        }
    };
"""


class Opened:
    """The page of one job, in a browser whose time can be moved, after all that comes with opening it has happened."""

    def __init__(self, scheduler: Scheduler, window: Watched) -> None:
        self.scheduler = scheduler
        self.handle: JobHandle[object] = scheduler.enqueue(shop.resize, "x").submit()
        self.page = window.page
        self.streams = 0
        #: Times at which this page has asked for what changes on it, and was answered.
        self.looks = self.answers = 0
        self.page.on("request", self._asked)
        self.page.on("response", lambda response: self._answered(response.request))
        self.page.add_init_script(COUNTING)
        self.page.clock.install()
        window.open(f"/jobs/{self.handle.id}")
        # The first reading of the page is told too.
        self.goes_on_until(lambda: self.hints == 1)
        self.goes_on_until(lambda: self.answers == 1)

    @property
    def hints(self) -> int:
        """How often it was told of a change."""
        return int(self.page.evaluate("window.hints"))

    def goes_on_until(self, condition: Callable[[], bool]) -> None:
        """Wait; what happens in the browser is heard of only while playwright is asked for something."""
        until(lambda: self.page.wait_for_timeout(20) or condition())

    def shows(self, status: str) -> None:
        """Wait until the page says that its job is in this state."""
        expect(self.page.locator("#status .badge")).to_have_text(status)

    def _asked(self, request: Request) -> None:
        self.streams += "/live?" in request.url
        self.looks += FRAGMENT in request.headers

    def _answered(self, request: Request) -> None:
        self.answers += FRAGMENT in request.headers


@pytest.fixture
def opened(windows: Windows, tmp_path: Path) -> Iterator[Opened]:
    """A job's page, open and up to date; the store is SQLite."""
    scheduler = Scheduler(f"sqlite:///{tmp_path}/shop.db", allow=["tests.browser.shop"])
    scheduler.migrate()
    app = dashboard.asgi(scheduler)
    with served(app) as address:
        yield Opened(scheduler, windows(address))
    scheduler.close()


@contextmanager
def unread(page: Page) -> Iterator[list[str]]:
    """Whatever the page asks for to follow its job is lost on the way; its stream of hints stays open."""
    lost: list[str] = []

    def lose(route: Route) -> None:
        if FRAGMENT not in route.request.headers:
            route.fallback()
            return
        lost.append(route.request.url)
        route.abort()

    page.route("**/jobs/*", lose)
    yield lost
    page.unroute("**/jobs/*", lose)


def test_a_change_that_was_told_and_could_not_be_read(opened: Opened) -> None:
    """The only hint is spent on a request that is lost: the page says so, asks again by itself, and shows the change."""
    page = opened.page
    with unread(page) as lost:
        assert opened.handle.pause()
        opened.goes_on_until(lambda: bool(lost))
        expect(page.locator("#offline")).to_be_visible()
        asked = len(lost)
        page.clock.fast_forward(POLL)
        opened.goes_on_until(lambda: len(lost) > asked)  # and again, for as long as it is not answered
        expect(page.locator("#offline")).to_be_visible()
        opened.shows("pending")
    page.clock.fast_forward(POLL)
    expect(page.locator("#offline")).to_be_hidden()
    opened.shows("paused")
    assert (opened.hints, opened.streams) == (2, 1), "it was told again: the test has shown nothing"


def test_a_form_that_was_stopped(opened: Opened) -> None:
    """
    While a form is under way nothing is looked at, or a page that is being left would be led back to. One that has led nowhere
    for half a minute was stopped: the page shows what it has missed, and follows again.
    """
    page = opened.page
    page.route("**/pause", lambda route: route.abort("aborted"))  # as if somebody had pressed Escape
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Pause").click()
    assert opened.scheduler.cancel_job(opened.handle.id)
    opened.goes_on_until(lambda: opened.hints == 2)
    page.clock.fast_forward(1_000)
    page.evaluate("0")  # what was due is done
    assert opened.looks == 1
    opened.shows("pending")
    page.clock.fast_forward(STAYED)
    opened.shows("canceled")
    assert (opened.hints, opened.streams) == (2, 1), "it was told again: the test has shown nothing"
    opened.scheduler.jobs.delete(opened.handle.id)
    expect(page.locator("h1")).to_have_text("Not Found")


def test_a_stream_that_was_cut_without_a_word(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sleep of the machine, say: hints no longer come, and nobody says so. The page asks for a new stream, and looks."""
    assert LIFE * 1000 < OLD, "the server ends a stream in time: an older one is dead"

    async def silence(*_: object) -> AsyncIterator[str]:
        yield ": connected\n\n"
        await asyncio.sleep(3600)

    page = opened.page
    monkeypatch.setattr(Live, "hints", silence)
    set_hidden(page, hidden=True)
    set_hidden(page, hidden=False)
    opened.goes_on_until(lambda: (opened.streams, opened.answers) == (2, 2))
    assert opened.handle.pause()
    time.sleep(FRESH)  # for so long the server gives what it has read before
    page.clock.fast_forward(LIFE * 1000)
    page.evaluate("0")
    opened.shows("pending")
    page.clock.fast_forward(OLD - LIFE * 1000 + 10_000)
    opened.shows("paused")
    assert (opened.hints, opened.streams) == (1, 3)
