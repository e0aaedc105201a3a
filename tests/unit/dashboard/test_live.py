"""Hints for open pages: one when something has changed, none otherwise, and nothing is read for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from ratchet import Scheduler, dashboard
from ratchet.dashboard import live
from ratchet.dashboard.answers import Answers
from ratchet.dashboard.app import _matching as matching
from ratchet.dashboard.filters import words_of
from ratchet.dashboard.live import Live
from ratchet.dashboard.pages import PAGES, Page
from ratchet.dashboard.pages.overview import rest_of
from ratchet.model.claim import ClaimRequest
from ratchet.model.identifiers import new_id
from tests.browser import shop
from tests.stores.counting import Statements
from tests.unit.dashboard.conftest import Browse

#: Minutes for which a page is left open.
MINUTES = 3


def watched(work: Callable[[Live], Awaitable[None]]) -> None:
    """Run *work* on a loop, with a page that is read as fast as it can be."""
    asyncio.run(asyncio.wait_for(_run(work), 30))


async def _run(work: Callable[[Live], Awaitable[None]]) -> None:
    await work(Live())


def _readers() -> int:
    """How many tasks read a page again and again."""
    return sum("_watch" in str(task.get_coro()) for task in asyncio.all_tasks())


async def _ended() -> bool:
    """True once nothing reads any more."""
    while _readers():
        await asyncio.sleep(0.01)
    return True


class TestHints:
    def test_a_change_is_told_to_all(self) -> None:
        """Ten browsers that show a page cause one reader; each gets one hint at first and one for a change, and none between."""

        async def work(hub: Live) -> None:
            state, reads = ["a"], 0

            async def digest() -> str:
                nonlocal reads
                reads += 1
                return state[0]

            streams = [hub.hints("/jobs", digest, 0.01) for _ in range(10)]
            for stream in streams:
                assert "connected" in await anext(stream)
            assert (hub.connected, hub.watched) == (10, 1)
            for stream in streams:
                assert "changed" in await anext(stream)
            assert _readers() == 1
            while reads < 3:
                await asyncio.sleep(0.01)
            waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
            while reads < 6:
                await asyncio.sleep(0.01)
            assert not any(one.done() for one in waiting)
            state[0] = "b"
            assert set(await asyncio.gather(*waiting)) == {"event: changed\ndata: 1\n\n"}
            for stream in streams:
                await stream.aclose()  # type: ignore[attr-defined]
            assert (hub.connected, hub.watched) == (0, 0)
            assert await _ended()

        watched(work)

    def test_a_silent_connection_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Proxies cut what says nothing for long; and each connection ends, so that rights are checked again."""
        monkeypatch.setattr(live, "PING", 0.01)
        monkeypatch.setattr(live, "LIFE", 0.2)

        async def work(hub: Live) -> None:
            async def digest() -> str:
                return "same"

            told = [text async for text in hub.hints("/", digest, 1.0)]
            assert "still here" in told[2]
            assert "changed" not in "".join(told[2:])

        watched(work)

    def test_a_page_that_cannot_be_read(self) -> None:
        """That it cannot, and that it can again, are changes too; the reader goes on."""

        async def work(hub: Live) -> None:
            broken, reads = [False], 0

            async def digest() -> str:
                nonlocal reads
                reads += 1
                if broken[0]:
                    raise ConnectionError
                return "fine"

            stream = hub.hints("/", digest, 0.01)
            await anext(stream)
            assert "changed" in await anext(stream)
            for state in (True, False):
                seen = reads
                while reads < seen + 2:
                    await asyncio.sleep(0.01)
                broken[0] = state
                assert "changed" in await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]

        watched(work)

    @pytest.mark.parametrize("breaks", [True, False])
    def test_what_changed_before_it_was_watched(self, breaks: bool) -> None:
        """The page was answered, then it changed or could not be read any more, then the browser connected: it is told."""

        async def work(hub: Live) -> None:
            async def digest() -> str:
                if breaks:
                    raise ConnectionError
                return "newer than the page"

            stream = hub.hints("/", digest, 10.0)
            await anext(stream)
            assert "changed" in await asyncio.wait_for(anext(stream), 5)
            await stream.aclose()  # type: ignore[attr-defined]

        watched(work)


class TestPulse:
    def test_a_page_is_read_when_its_pulse_has_changed(self, browse: Browse) -> None:
        """Otherwise only now and then: what costs many statements is not read each second."""
        felt, read = ["a"], list[int]()

        def reading(_: Any) -> dict[str, Any]:
            read.append(len(read))
            return {"times": len(read)}

        page = Page("x", "/x", reading, pulse=lambda _: felt[0], whole=1000)
        app: Any = browse().app
        look = app._looking(page, {}, words_of(""))
        first = look()
        assert (look(), len(read)) == (first, 1)
        felt[0] = "b"
        second = look()
        assert (second != first, len(read)) == (True, 2)
        assert (look(), len(read)) == (second, 2)

    def test_what_changed_between_the_answer_and_the_first_look(self, browse: Browse) -> None:
        """The pulse knows it already, so it would not change again: what is read for it is not the answer that is kept."""
        state = ["old"]
        page = Page("x", "/x", lambda _: {"is": state[0]}, pulse=lambda _: state[0], whole=1000)
        app: Any = browse().app
        assert app._read(page, {}, words_of("")) == {"is": "old"}
        state[0] = "new"
        app._looking(page, {}, words_of(""))()
        assert app._read(page, {}, words_of("")) == {"is": "new"}

    def test_a_page_without_one(self, browse: Browse) -> None:
        """It is read each time, as often as its answers are allowed to be read."""
        values = iter("aab")
        app: Any = browse().app
        look = app._looking(Page("x", "/x", lambda _: {"v": next(values)}), {}, words_of(""))
        found = []
        for _ in range(3):
            app.forget()
            found.append(look())
        assert found[0] == found[1] != found[2]

    def test_a_page_that_rests(self, browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
        """The overview of two thousand queues is read every 50 s, however often it is looked at; of a few, every 30 s."""
        now = [100.0]
        monkeypatch.setattr("ratchet.dashboard.app.time.monotonic", lambda: now[0])
        for queues, expected in ((2000, 1), (10, 2)):
            read = list[int]()

            def reading(_: Any, read: list[int] = read, queues: int = queues) -> dict[str, Any]:
                read.append(len(read))
                return {"queues": [1] * 10, "more_queues": queues - 10}

            app: Any = browse().app
            look = app._looking(Page("x", "/x", reading, rest=rest_of), {}, words_of(""))
            for _ in range(4):
                app.forget()
                look()
                now[0] += 10
            assert len(read) == expected, queues


class TestCost:
    def test_a_page_at_rest(
        self, scheduler: Scheduler, ids: dict[str, UUID], browse: Browse, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever page is open, and in however many browsers: while nothing happens, it costs the store one statement in a second at most; that of a job that runs, whose log is followed, two."""
        now = [1000.0]
        monkeypatch.setattr("ratchet.dashboard.app.time.monotonic", lambda: now[0])
        app: Any = browse().app
        app._answers = Answers(lambda: now[0])
        statements = Statements(monkeypatch)
        scheduler.enqueue(shop.resize, "runs").with_queue("runs").submit()
        request = ClaimRequest(node_id="busy", claim_id=new_id(), limit=1, queues=frozenset({"runs"}))
        (running,) = scheduler.store.claim_next_batch(request, now=scheduler.backend.now())
        cost = {}
        for path in (
            *("/", "/jobs", "/jobs?status=FAILED", "/jobs?queue=mail", "/dead-letters", "/queues", "/limits"),
            *("/schedules", "/schedules/nightly-cleanup", "/batches", f"/batches/{ids['batch']}"),
            *(f"/graphs/{ids['chain']}", "/nodes", "/audit", f"/jobs/{running.claim.job_id}"),
            *(f"/jobs/{ids[name]}" for name in ("failed", "charged", "pending", "waiting", "paused")),
        ):
            target, _, words = path.partition("?")
            page, names = matching(PAGES, target)
            look = app._looking(page, names, words_of(words))
            look()

            def minutes(page: Page = page, look: Any = look) -> None:
                ends = now[0] + MINUTES * 60
                while now[0] < ends:
                    now[0] += page.every
                    look()

            cost[path] = len(statements.of(minutes)) / (MINUTES * 60)
        assert 1 < cost.pop(f"/jobs/{running.claim.job_id}") < 2
        assert {path: round(value, 2) for path, value in cost.items() if value > 1} == {}


class TestConnections:
    def test_what_there_is_to_watch(self, browse: Browse) -> None:
        """Pages only; and under WSGI nothing, so that browsers poll."""
        client = browse()
        assert client.get("/live?page=/nothing").status_code == 404
        assert client.get("/live", params={"page": "/static/dashboard.js"}).status_code == 404
        assert browse(authorize=lambda request, permission: None).get("/live?page=/jobs").status_code == 403

    def test_too_many(self, browse: Browse, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next browser is sent away, and polls."""
        monkeypatch.setattr(live, "MOST", 0)
        assert browse().get("/live?page=/jobs").status_code == 503

    def test_a_job_that_is_submitted_is_a_hint(self, tmp_path: Path) -> None:
        """From the store to the browser: the listing that is open hears of a new job."""
        scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=["tests.browser.shop"])
        app = dashboard.asgi(scheduler)

        async def work() -> str:
            told: asyncio.Queue[str] = asyncio.Queue()
            gone = asyncio.Event()

            async def receive() -> dict[str, object]:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message: dict[str, object]) -> None:
                if message["type"] == "http.response.body":
                    await told.put(bytes(message["body"]).decode())  # type: ignore[arg-type]

            scope = {
                "type": "http",
                "method": "GET",
                "path": "/live",
                "root_path": "",
                "query_string": b"page=/jobs",
                "headers": [(b"host", b"localhost")],
                "client": ("127.0.0.1", 1),
            }
            task = asyncio.ensure_future(app(scope, receive, send))  # type: ignore[arg-type]
            assert "connected" in await told.get()
            while not any(one.read_at for one in app._answers._kept.values()):  # it was read as it is now
                await asyncio.sleep(0.01)
            await scheduler.aio.enqueue(shop.resize, "new").submit()
            hint = await told.get()
            gone.set()
            await asyncio.wait_for(task, 10)
            assert (app.live.connected, app.live.watched) == (0, 0)
            return hint

        assert "changed" in asyncio.run(asyncio.wait_for(work(), 30))
        scheduler.close()


def test_wsgi_has_no_stream(scheduler: Scheduler) -> None:
    """A page says so to its script."""
    app = dashboard.wsgi(scheduler)
    client = TestClient(app.dashboard, client=("127.0.0.1", 1), base_url="http://localhost")
    assert 'data-streams="no"' in client.get("/").text
    assert client.get("/live?page=/jobs").status_code == 404
