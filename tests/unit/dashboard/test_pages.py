"""Every page, as HTML and as JSON; addresses, search, paging and counts."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

from ratchet import Scheduler, dashboard
from ratchet.api.observe.queries import Jobs
from ratchet.dashboard.answers import Answers
from ratchet.dashboard.rendering import _timed
from tests.browser import shop
from tests.unit.dashboard.conftest import JSON, SAME, Browse


def pages_of(ids: dict[str, UUID]) -> list[str]:
    """The address of every page that there is."""
    found = [
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
    found += ["/audit", "/schedules/nightly-cleanup", f"/batches/{ids['batch']}", f"/graphs/{ids['chain']}"]
    return found + [f"/jobs/{one}" for name, one in ids.items() if name != "batch"]


class TestEveryPage:
    def test_html_and_json(self, ids: dict[str, UUID], client: TestClient) -> None:
        """Both from the same address; only what is preferred decides."""
        for path in pages_of(ids):
            page = client.get(path, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
            assert page.status_code == 200, path
            assert page.headers["content-type"].startswith("text/html")
            assert page.text.count("<h1") == 1, path
            data = client.get(path, headers=JSON)
            assert data.headers["content-type"] == "application/json"
            assert isinstance(data.json(), dict)
            assert "accept" in page.headers["vary"]

    def test_on_an_empty_store(self, client: TestClient) -> None:
        """Each page says that there is nothing, instead of showing an empty table."""
        for path in (
            "/jobs",
            "/dead-letters",
            "/queues",
            "/limits",
            "/schedules",
            "/batches",
            "/nodes",
            "/audit?principal=nobody",  # whoever made the schema is in it
        ):
            page = client.get(path)
            assert page.status_code == 200, path
            assert 'class="empty"' in page.text, path

    def test_what_is_not_there(self, client: TestClient) -> None:
        """A page says so, with a status that programs understand."""
        unknown = uuid4()
        for path in (
            "/nothing",
            f"/jobs/{unknown}",
            f"/batches/{unknown}",
            f"/graphs/{unknown}",
            "/schedules/nope",
        ):
            assert client.get(path).status_code == 404, path
            assert "error" in client.get(path, headers=JSON).json()
        assert client.get("/jobs/nonsense").status_code == 400
        assert client.post("/nothing", headers=SAME).status_code == 404

    def test_a_fragment_is_the_same_without_its_frame(self, ids: dict[str, UUID], client: TestClient) -> None:
        """What a live page fetches has its parts; and nothing is sent again that has not changed."""
        for path in pages_of(ids):
            whole = client.get(path)
            part = client.get(path, headers={"ratchet-fragment": "1"})
            assert "<html" not in part.text
            ids_of = re.compile(r'data-live[^>]* id="([^"]+)"|id="([^"]+)"[^>]* data-live')
            assert ids_of.findall(part.text) == ids_of.findall(whole.text.partition("<main")[2])
        path = "/audit"
        part = client.get(path, headers={"ratchet-fragment": "1"})
        assert " ago</time>" not in part.text  # that would be another text in a second
        again = client.get(path, headers={"ratchet-fragment": "1", "if-none-match": part.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    def test_the_store_goes_away_and_comes_back(self, tmp_path: Path) -> None:
        """Pages say that the store does not answer, without its credentials, and work again."""
        scheduler = Scheduler("postgresql://app:geheim@127.0.0.1:1/shop?connect_timeout=1")
        client = TestClient(dashboard.asgi(scheduler), client=("127.0.0.1", 1), base_url="http://localhost")
        overview = client.get("/")
        assert overview.status_code == 200
        assert "does not answer" in overview.text
        for path in ("/jobs", "/queues"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert "geheim" not in answer.text
        scheduler.close()

    def test_a_page_that_fails(
        self,
        scheduler: Scheduler,
        browse: Browse,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The browser learns no detail; the log does."""

        def fails(*_: Any, **__: Any) -> None:
            raise RuntimeError("secret detail")

        client = browse()
        monkeypatch.setattr(type(scheduler.batches), "records", fails)
        answer = client.get("/batches")
        assert answer.status_code == 500
        assert "secret detail" not in answer.text
        assert "secret detail" in caplog.text


class TestAddresses:
    def test_each_criterion(self, scheduler: Scheduler, client: TestClient) -> None:
        """Finds its job and not the other; the words are those of the command line."""
        scheduler.job(name="media.resize")(shop.resize)
        scheduler.enqueue(shop.resize, "other").submit()
        wanted = (
            scheduler.enqueue(shop.resize, "mine", width=640)
            .with_queue("pictures")
            .with_tags("a", "b")
            .with_business_key("key-1")
            .with_delay(timedelta(hours=2))
            .submit()
        )
        wanted.pause()
        for words in (
            "status=PAUSED",
            "status=paused,running",
            "queue=pictures",
            "tag=a&tag=b",
            "key=key-1",
            "arg=0=mine",
            "arg=width=640",
            "target=media.resize&status=PAUSED",
            "queue=pictures&since=1h&priority=NORMAL&type=SINGLE",
            "tag=a&until=2099-01-01T00:00",
        ):
            data = client.get(f"/jobs?{words}", headers=JSON)
            assert [job["id"] for job in data.json()["jobs"]] == [str(wanted.id)], words
        for words in (
            "queue=none",
            "tag=c",
            "arg=0=other&queue=pictures",
            "error_type=ValueError",
            "caller=x",
        ):
            assert client.get(f"/jobs?{words}", headers=JSON).json()["jobs"] == [], words

    @pytest.mark.parametrize(
        "words",
        [
            "status=DONE",
            "priority=9",
            "since=yesterday",
            "batch=7",
            "arg=x",
            "sort=SIZE",
            "limit=0",
            "cursor=x",
        ],
    )
    def test_what_cannot_be_meant(self, client: TestClient, words: str) -> None:
        """Says which word is wrong, with status 400."""
        answer = client.get(f"/jobs?{words}", headers=JSON)
        assert answer.status_code == 400
        assert answer.json()["error"]

    def test_the_search_box(self, ids: dict[str, UUID], client: TestClient) -> None:
        """Words become criteria, an id its job, and the rest is looked for in error texts; other filters stay."""

        def found(text: str, **more: str) -> str:
            answer = client.get("/jobs", params={"q": text, **more})
            assert answer.status_code == 303
            return str(answer.headers["location"])

        assert found(str(ids["failed"])) == f"/jobs/{ids['failed']}"
        assert found(ids["failed"].hex[:28]) == f"/jobs/{ids['failed']}"
        words = parse_qs(urlsplit(found('queue:mail FAILED "card declined" soon', tag="x")).query)
        assert words == {
            "queue": ["mail"],
            "status": ["FAILED"],
            "error": ["card declined soon"],
            "tag": ["x"],
        }
        assert client.get("/jobs", params={"q": "0" * 30}).status_code == 404
        assert parse_qs(urlsplit(found("it's broken")).query) == {"error": ["it's broken"]}

    def test_paging_and_sorting(self, scheduler: Scheduler, client: TestClient) -> None:
        """A cursor in the address leads through all jobs, each once, whatever the order."""
        handles = scheduler.enqueue_many(shop.resize, [(str(number),) for number in range(7)])
        for words in ("limit=3", "limit=3&order=asc", "limit=3&sort=PRIORITY"):
            path, seen = f"/jobs?{words}", []
            for _ in range(4):
                page = client.get(path, headers=JSON).json()
                seen += [job["id"] for job in page["jobs"]]
                links = re.findall(r'rel="next" href="([^"]+)"', client.get(path).text)
                if not links:
                    break
                path = links[0].replace("&amp;", "&")
            assert sorted(seen) == sorted(str(handle.id) for handle in handles)
            assert (seen == sorted(seen)) == ("asc" in words)

    def test_counts_are_capped(
        self, scheduler: Scheduler, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counting ends at a number, and a page that holds all counts nothing."""
        monkeypatch.setattr(sys.modules["ratchet.dashboard.pages.jobs"], "COUNTED", 5)
        scheduler.enqueue_many(shop.resize, [(str(number),) for number in range(9)])
        counted = list[int]()
        count = Jobs.count

        def seen(jobs: Jobs, *words: Any, **more: Any) -> int:
            counted.append(count(jobs, *words, **more))
            return counted[-1]

        monkeypatch.setattr(Jobs, "count", seen)
        assert "5+ jobs" in client.get("/jobs?limit=2").text
        assert counted == [6], "more is read than is told"
        monkeypatch.setattr(sys.modules["ratchet.dashboard.pages.jobs"], "COUNTED", 10)
        monkeypatch.setattr("ratchet.api.observe.queries.Jobs.count", None)
        assert "9 jobs" in client.get("/jobs?limit=20").text

    def test_only_what_an_index_has_is_counted(self, ids: dict[str, UUID], client: TestClient) -> None:
        """Of a queue or a function no index has all jobs: how many there are is not told, rather than read."""
        for words, is_counted in (
            ("", True),
            ("status=PENDING", True),
            ("tag=billing", True),
            (f"batch={ids['batch']}", True),
            ("queue=default&status=PENDING", True),
            ("queue=payments", False),
            ("target=mail.send", False),
            ("queue=payments&status=FAILED", False),
            ("since=1d", False),
            ("archived=1", False),
        ):
            answer = client.get(f"/jobs?{words}&limit=1", headers=JSON).json()
            assert (answer["total"] is not None) == is_counted, words
        assert "1 shown, more may match" in client.get("/jobs?queue=payments&limit=1").text

    def test_queues_by_name(
        self, ids: dict[str, UUID], client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those with most to do are shown, what is paused first; the others are found by their names."""
        monkeypatch.setattr("ratchet.dashboard.pages.cluster.QUEUES", 2)
        answer = client.get("/queues", headers=JSON).json()
        assert answer["total"] == 5
        assert [one["name"] for one in answer["queues"]] == ["newsletter", "default"]
        found = client.get("/queues?name=MAI", headers=JSON).json()
        assert [one["name"] for one in found["queues"]] == ["mail"]
        assert found["queues"][0]["rate"] > 0
        assert "the 2 busiest of 5" in client.get("/queues").text
        assert "No queue has these words" in client.get("/queues?name=nothing").text

    def test_few_jobs_in_a_long_history(
        self, scheduler: Scheduler, client: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A page looks at so many jobs, counts nothing, and leads further back until it has found them."""
        wanted = scheduler.enqueue(shop.resize, "first").submit()
        scheduler.enqueue_many(shop.resize, [(str(number),) for number in range(9)])
        monkeypatch.setattr("ratchet.stores.sql.rows.search.LOOKED_AT", 4)
        monkeypatch.setattr("ratchet.stores.listing.STRETCH", 4)
        monkeypatch.setattr("ratchet.api.observe.queries.Jobs.count", None)
        path, steps = "/jobs?arg=0=first", 0
        while not client.get(path, headers=JSON).json()["jobs"]:
            page = client.get(path).text
            assert "None among the jobs that were looked at" in page
            assert "not counted" in page
            path = re.findall(r'rel="next" href="([^"]+)"', page)[0].replace("&amp;", "&")
            steps += 1
        assert steps == 2
        assert str(wanted.id) in client.get(path).text


def test_times_in_messages(ids: dict[str, UUID], client: TestClient) -> None:
    """They are marked, so that the script can show them in the viewer's zone; what only looks like one is text."""
    page = client.get("/").text
    assert re.search(r'the next is due at <time data-exact datetime="[^"]+\+00:00" title=', page)
    assert not re.search(r"due at \d{4}-\d\d-\d\dT", page)
    text = "<b> 2026-02-31T00:00:00+00:00 and 2026-02-01T12:00:00+02:00 <i>"
    made = _timed(text)
    assert made.startswith("&lt;b&gt; 2026-02-31T00:00:00+00:00 and <time data-exact")
    assert 'datetime="2026-02-01T10:00:00+00:00"' in made
    assert made.endswith("</time> &lt;i&gt;")


class TestCost:
    def test_ten_browsers_cost_what_one_does(self) -> None:
        """The same question within a second is answered from what was read, also to those who ask at once."""
        now, reads = [0.0], []
        answers = Answers(lambda: now[0])
        for _ in range(10):
            assert answers.get("a", lambda: reads.append(1) or len(reads)) == 1
        now[0] = 1.0
        assert answers.get("a", lambda: reads.append(1) or len(reads)) == 2
        answers.clear()
        assert answers.get("a", lambda: reads.append(1) or len(reads)) == 3

    def test_answers_do_not_pile_up(self) -> None:
        """Old ones are forgotten when there are many."""
        answers = Answers(lambda: 0.0)
        for number in range(10_000):
            answers.get(str(number), list)
        assert len(answers._kept) <= 256

    def test_an_error_is_not_kept(self) -> None:
        """Whoever asks next reads again."""
        answers = Answers(lambda: 0.0)

        def fails() -> None:
            raise ValueError

        with pytest.raises(ValueError):  # noqa: PT011 - it has no text
            answers.get("a", fails)
        assert answers.get("a", lambda: 7) == 7

    def test_pages_show_a_change_at_once(
        self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient
    ) -> None:
        """Whoever retries a job does not see it FAILED for another second."""
        assert client.get(f"/jobs/{ids['failed']}", headers=JSON).json()["job"]["status"] == "FAILED"
        client.post(f"/jobs/{ids['failed']}/retry", headers=SAME)
        assert client.get(f"/jobs/{ids['failed']}", headers=JSON).json()["job"]["status"] == "PENDING"


class TestAJob:
    def test_why_it_is_not_running(self, ids: dict[str, UUID], client: TestClient) -> None:
        """The reasons of `explain`, with links to what blocks it."""
        page = client.get(f"/jobs/{ids['pending']}").text
        assert "Why it is not running" in page
        assert 'href="/queues"' in page.partition('id="explain"')[2].partition("</section>")[0]
        reasons = client.get(f"/jobs/{ids['pending']}", headers=JSON).json()["reasons"]
        assert "queue_paused" in [reason["code"] for reason in reasons]
        assert "waiting signal" in client.get(f"/jobs/{ids['waiting']}").text

    def test_verbs_fit_its_state(self, ids: dict[str, UUID], client: TestClient) -> None:
        """A failed job can be retried, a paused one resumed; none can be asked what would be refused."""
        expected = {
            "failed": {"retry", "pause", "delete"},
            "paused": {"run-now", "resume", "cancel", "set-priority", "delete"},
            "pending": {"run-now", "pause", "cancel", "set-priority", "delete"},
            "waiting": {"cancel", "set-priority", "delete"},
            "running": {"delete"},
        }
        for name, verbs in expected.items():
            page = client.get(f"/jobs/{ids[name]}").text
            assert set(re.findall(rf'action="/jobs/{ids[name]}/([a-z-]+)"', page)) == verbs, name

    def test_submitting_it_again(self, scheduler: Scheduler, client: TestClient) -> None:
        """The Python that is shown makes the same job."""
        scheduler.job(name="media.resize")(shop.resize)
        first = (
            scheduler.enqueue(shop.resize, 'it\'s "quoted"', width=7)
            .with_queue("q")
            .with_tags("t", "u")
            .submit()
        )
        text = client.get(f"/jobs/{first.id}", headers=JSON).json()["as_python"]
        made = eval(text, {"scheduler": scheduler})  # the text is ours, and this is what people do with it
        one, two = scheduler.jobs.get(first.id), scheduler.jobs.get(made.id)
        assert (one.args, one.kwargs, one.queue, one.tags) == (two.args, two.kwargs, two.queue, two.tags)

    def test_who_acted_on_it(self, ids: dict[str, UUID], scheduler: Scheduler, client: TestClient) -> None:
        """Each change by hand, with who made it and through what."""
        with scheduler.acting_as("ann"):
            scheduler.retry_job(ids["failed"])
        client.post(f"/jobs/{ids['failed']}/pause", headers=SAME)
        answer = client.get(f"/jobs/{ids['failed']}", headers=JSON).json()
        found = [(one["principal"], one["verb"], one["source"]) for one in answer["actions"]]
        assert found == [("local", "pause", "dashboard"), ("ann", "retry", "api")]
        page = client.get(f"/jobs/{ids['failed']}").text.partition('id="actions"')[2]
        assert page.index("local") < page.index("ann")

    def test_logs_and_runs(self, ids: dict[str, UUID], client: TestClient) -> None:
        """What it logged, its traceback, and a bar for each run."""
        page = client.get(f"/jobs/{ids['failed']}").text
        assert "the bank refused invoice 14" in page
        assert "Traceback" in page
        assert page.count('class="ran s-FAILED"') == 1


def test_a_job_that_ends_while_it_is_looked_at(scheduler: Scheduler, client: TestClient) -> None:
    """The page of a job that was deleted is a 404, and its listing goes on without it."""
    handle = scheduler.enqueue(shop.resize, "x").submit()
    assert client.get(f"/jobs/{handle.id}").status_code == 200
    scheduler.jobs.delete(handle.id)
    client.app._answers.clear()  # type: ignore[attr-defined]
    assert client.get(f"/jobs/{handle.id}").status_code == 404
    assert scheduler.jobs.count(None) == 0
    assert client.get("/jobs", headers=JSON).json()["jobs"] == []
