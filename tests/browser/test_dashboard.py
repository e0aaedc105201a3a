"""The dashboard as people use it, in a real browser: every page, every verb, live, by keyboard, on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from ratchet import JobFilter, JobStatus, Scheduler, dashboard
from ratchet.dashboard.verbs import VERBS
from ratchet.model.cluster import NodeSpec, NodeState
from tests.browser import shop
from tests.browser.conftest import Shop, Watched, served, set_hidden
from tests.services.postgresql import PostgreSQL
from tests.support.store_urls import KINDS
from tests.support.waiting import until

Windows = Callable[..., Watched]
expect.set_options(timeout=20_000)

#: A node that nobody has heard of for an hour.
GONE = NodeSpec(
    node_id="gone",
    name="gone",
    host="far",
    pid=1,
    version="1",
    beat_interval=timedelta(seconds=1),
    silence=timedelta(seconds=5),
)


def pages_of(found: Shop) -> list[str]:
    """The address of every page."""
    ids = found.ids
    listed = [
        "/",
        "/jobs",
        "/dead-letters",
        "/queues",
        "/limits",
        "/schedules",
        "/batches",
        "/nodes",
        "/audit",
    ]
    listed += ["/schedules/nightly-cleanup", f"/batches/{ids['batch']}", f"/graphs/{ids['chain']}"]
    return listed + [f"/jobs/{ids[name]}" for name in ("failed", "charged", "pending", "waiting", "paused")]


def status(page: Page) -> Any:
    """The badge of a job's page."""
    return page.locator("#status .badge")


@pytest.mark.parametrize("served_shop", KINDS, indirect=True)
def test_the_main_path(served_shop: Shop, windows: Windows) -> None:
    """On every store: from the overview to a failed job, its retry, and back to the list; then many at once, with a question before."""
    window = windows(served_shop.address)
    page = window.open("/")
    expect(page.locator("h1")).to_have_text("Overview")
    expect(page.locator("#health")).to_contain_text("no node takes jobs")
    page.get_by_role("link", name=re.compile("^Dead letters")).first.click()
    group = page.get_by_role("region", name=re.compile("billing.charge"))
    expect(group).to_contain_text("insufficient funds")
    group.get_by_role("link", name="the latest").click()
    expect(status(page)).to_have_text("failed")
    expect(page.locator("#logs")).to_contain_text("the bank refused invoice")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").filter(has_text="Retried")).to_be_visible()
    expect(status(page)).to_have_text("pending")
    page.get_by_role("button", name="Pause").click()
    expect(status(page)).to_have_text("paused")
    page.get_by_label("Priority").select_option("HIGH")
    page.get_by_role("button", name="Set priority").click()
    expect(page.locator("#facts")).to_contain_text("high")
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page).to_have_url(re.compile(r"/jobs\?did="))
    page.get_by_role("group", name="Status").get_by_role("link", name="failed").click()
    boxes = page.locator('input[name="id"]')
    failed = boxes.count()
    assert failed == served_shop.scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED]))
    boxes.nth(0).check()
    boxes.nth(1).check()
    expect(page.get_by_text("2 selected:")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("h1")).to_have_text("Retry 2 jobs?")
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.get_by_role("status").filter(has_text="Retried: 2.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1")).to_have_text("Cancel 0 jobs?")
    page.get_by_role("link", name="Back").click()
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("button", name=f"Retry {failed - 2} jobs").click()
    expect(page.locator("#list")).to_contain_text("No job matches")
    assert served_shop.scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED])) == 0


def test_every_page(served_shop: Shop, windows: Windows) -> None:
    """No script fails, the policy holds, axe finds nothing serious, and 320 pixels are enough; in light and in dark."""
    axe = Axe()
    looks: dict[str, dict[str, Any]] = {
        "light": {"color_scheme": "light"},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": {"width": 320, "height": 640}},
    }
    only: dict[str, Any] = {"resultTypes": ["violations"]}
    # the rest does not depend on colors
    rules = {"light": only, "dark": {**only, "runOnly": ["color-contrast"]}}
    # The markup is the same whatever the store is: one look is enough to see that all pages are there.
    is_first = "sqlite" in repr(served_shop.scheduler).lower()
    for look, settings in looks.items() if is_first else [("light", looks["light"])]:
        window = windows(served_shop.address, **settings)
        for path in pages_of(served_shop):
            page = window.open(path)
            expect(page.locator("#zone")).to_have_text("Times in Europe/Berlin")
            too_wide = page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
            assert not too_wide, (path, look)
            if look in rules and is_first:
                found = axe.run(page, options=rules[look]).response["violations"]
                serious = [
                    (one["id"], node["html"][:200])
                    for one in found
                    if one["impact"] in ("serious", "critical")
                    for node in one["nodes"]
                ]
                assert serious == [], (path, look)


@pytest.mark.parametrize("served_shop", ["sqlite"], indirect=True)
def test_times_and_suggestions(served_shop: Shop, windows: Windows) -> None:
    """Times are in the zone of the browser, with the exact one on hover, also in messages; the search box knows names."""
    page = windows(served_shop.address).open("/schedules/nightly-cleanup")
    first = page.locator("#next time").first
    moment = served_shop.scheduler.schedules.get("nightly-cleanup").next_fires(1)[0]
    assert first.get_attribute("datetime") == moment.isoformat()
    assert "GMT+1" in (first.get_attribute("title") or "") or "CET" in (first.get_attribute("title") or "")
    expect(page.locator("#next td.nowrap").nth(1)).to_contain_text("02:00:00")
    page = windows(served_shop.address).open("/")
    note = page.locator(".waiting time[data-exact]").first
    due = datetime.fromisoformat(note.get_attribute("datetime") or "").astimezone(ZoneInfo("Europe/Berlin"))
    expect(note).to_contain_text(f"{due:%M}")
    assert "T" not in note.inner_text().replace("UTC", "")
    assert str(due.hour % 12 or 12) in note.inner_text()
    page.get_by_label("Search jobs").focus()
    expect(page.locator('#suggestions option[value="schedule:nightly-cleanup"]')).to_have_count(1)
    expect(page.locator('#suggestions option[value="queue:mail"]')).to_have_count(1)


def test_every_verb(served_shop: Shop, windows: Windows) -> None:
    """What is clicked is done, for each verb that the dashboard has: one that is added without a step here fails this."""
    window, scheduler, ids = windows(served_shop.address), served_shop.scheduler, served_shop.ids
    _verbs_of_a_job(window, ids["paused"], ids["failed"])
    _verbs_of_many_jobs(window)
    _verbs_of_dead_letters(window)
    _verbs_of_queues_and_limits(window)
    _verbs_of_schedules(window, scheduler)
    _verbs_of_batches(window, scheduler, ids["batch"])
    _verbs_of_nodes(window, scheduler)
    done = {verb.path for verb in VERBS for path in window.posted if verb.pattern.match(path)}
    assert {verb.path for verb in VERBS} - done == set()
    page = window.open("/audit?source=dashboard&outcome=done")
    expect(page.locator("#entries")).to_contain_text("local")
    assert page.locator("#entries tbody tr").count() >= 20


def _said(page: Page, text: str) -> None:
    """The banner after an action."""
    expect(page.locator(".banner.done")).to_contain_text(text)


def _verbs_of_a_job(window: Watched, paused: UUID, failed: UUID) -> None:
    page = window.open(f"/jobs/{paused}")
    page.get_by_role("button", name="Resume").click()
    expect(status(page)).to_have_text("pending")
    page.get_by_role("button", name="Pause").click()
    expect(status(page)).to_have_text("paused")
    page.get_by_role("button", name="Run now").click()
    expect(status(page)).to_have_text("pending")
    page.get_by_label("Priority").select_option("HIGH")
    page.get_by_role("button", name="Set priority").click()
    _said(page, "Priority changed")
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(status(page)).to_have_text("canceled")
    expect(page.locator("#actions")).to_contain_text("local")
    page = window.open(f"/jobs/{failed}")
    page.get_by_role("button", name="Retry").click()
    expect(status(page)).to_have_text("pending")
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    _said(page, "Deleted")


def _verbs_of_many_jobs(window: Watched) -> None:
    page = window.open("/jobs?status=PENDING&status=PAUSED&status=FAILED")
    for label, said in (
        ("Pause", "Paused"),
        ("Resume", "Resumed"),
        ("Set priority", "Priority changed"),
        ("Run now", "Due now"),
        ("Cancel", "Canceled"),
    ):
        page.locator('tr:not(:has-text("canceled")) input[name="id"]').first.check()
        page.locator(".bulk").get_by_role("button", name=label).click()
        page.locator(".confirm button").click()
        _said(page, said)
    page = window.open("/jobs?status=FAILED&target=mail.send")
    for label, said in (("Retry", "Retried"), ("Delete", "Deleted")):
        page.locator('input[name="id"]').first.check()
        page.locator(".bulk").get_by_role("button", name=label).click()
        page.locator(".confirm button").click()
        _said(page, said)


def _verbs_of_dead_letters(window: Watched) -> None:
    page = window.open("/dead-letters")
    group = page.get_by_role("region", name=re.compile("billing.charge"))
    group.get_by_role("button", name=re.compile("^Retry")).click()
    _said(page, "Retried")
    group = page.get_by_role("region", name=re.compile("mail.send"))
    group.get_by_text("Purge…").click()
    group.get_by_role("button", name="Purge", exact=True).click()
    expect(group).to_have_count(0)


def _verbs_of_queues_and_limits(window: Watched) -> None:
    page = window.open("/queues")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="mail", exact=True))
    row.get_by_text("Pause…").click()
    row.get_by_role("button", name="Pause", exact=True).click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("open")
    page = window.open("/limits")
    form = page.locator('form[action$="/limits/set"]').last
    form.get_by_label("Resource").fill("gpu")
    form.get_by_label("Jobs at once").fill("2")
    form.get_by_role("button", name="Set", exact=True).click()
    limit = page.get_by_role("row").filter(has_text="gpu")
    limit.get_by_text("Change…").click()
    limit.get_by_label("Jobs at once").fill("7")
    limit.get_by_role("button", name="Change", exact=True).click()
    expect(limit.get_by_role("cell", name="7", exact=True)).to_be_visible()
    limit.get_by_text("Remove…").click()
    limit.get_by_role("button", name="Remove", exact=True).click()
    expect(limit).to_have_count(0)
    breaker = page.get_by_role("row").filter(has_text="tax-service")
    breaker.get_by_role("button", name="Reset").click()
    expect(breaker).to_contain_text("closed")
    breaker.get_by_role("button", name="Open").click()
    expect(breaker).to_contain_text("open")


def _verbs_of_schedules(window: Watched, scheduler: Scheduler) -> None:
    page = window.open("/schedules")
    page.get_by_role("row").filter(has_text="weekly-report").get_by_role("button", name="Resume").click()
    expect(page.locator("#status")).to_have_text("active")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("paused")
    page.locator("#edit summary").click()
    page.get_by_label("When").fill("61 * * * *")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#problem")).to_contain_text("not a cron expression")
    page.get_by_role("link", name="Go on").click()
    page.locator("#edit summary").click()
    page.get_by_label("When").fill("15 7 * * FRI")
    page.get_by_label("Zone").fill("Asia/Tokyo")
    page.get_by_label("Arguments").fill('["staff@example.com", "Week"]')
    page.get_by_role("button", name="Save").click()
    _said(page, "Schedule changed")
    expect(page.locator("#facts")).to_contain_text("Asia/Tokyo")
    page.get_by_role("button", name="Trigger").click()
    expect(page.locator("h1")).to_have_text("mail.send")
    expect(page.locator("#values")).to_contain_text("staff@example.com")
    page = window.open("/schedules/thumbnails")
    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    _said(page, "Schedule removed")
    assert [one.name for one in scheduler.schedules.list()] == ["nightly-cleanup", "weekly-report"]


def _verbs_of_batches(window: Watched, scheduler: Scheduler, batch_id: UUID) -> None:
    page = window.open(f"/batches/{batch_id}")
    retry = page.get_by_role("button", name=re.compile("Retry . failed"))
    retry.click()
    expect(retry).to_have_count(0)
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    until(lambda: scheduler.batches.get(batch_id).context().is_complete)


def _verbs_of_nodes(window: Watched, scheduler: Scheduler) -> None:
    scheduler.start()
    page = window.open("/nodes")
    node = page.locator("section.node")
    expect(node).to_contain_text("MiB")
    node.get_by_role("button", name="Drain").click()
    _said(page, "Asked to drain")
    until(lambda: scheduler.nodes.list()[-1].state is NodeState.DRAINING)
    node.get_by_role("button", name="Resume").click()
    _said(page, "Asked to take jobs again")
    until(lambda: scheduler.nodes.list()[-1].state is NodeState.ACTIVE)
    node.get_by_text("Stop…").click()
    node.get_by_role("button", name="Stop", exact=True).click()
    _said(page, "Asked to stop")
    until(lambda: not scheduler.running)
    scheduler.store.register(GONE, now=scheduler.backend.now() - timedelta(hours=1))
    page = window.open("/nodes")
    expect(node).to_contain_text("silent")
    node.get_by_text("Remove…").click()
    node.get_by_role("button", name="Remove", exact=True).click()
    _said(page, "Node removed")


@pytest.mark.parametrize("served_shop", ["sqlite"], indirect=True)
class TestLive:
    def test_a_job_that_ends_while_it_is_looked_at(self, served_shop: Shop, windows: Windows) -> None:
        """Its page follows it through its states, in two browsers at once, and keeps what a person has opened."""
        ids, scheduler = served_shop.ids, served_shop.scheduler
        one, two = windows(served_shop.address), windows(served_shop.address)
        first, second = one.open(f"/jobs/{ids['pending']}"), two.open(f"/jobs/{ids['pending']}")
        expect(status(first)).to_have_text("pending")
        first.get_by_text("Cancel…").click()
        until(lambda: served_shop.app.live.connected == 2)
        scheduler.pause_job(ids["pending"])
        expect(status(first)).to_have_text("paused")
        expect(status(second)).to_have_text("paused")
        expect(first.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        first.get_by_role("button", name="Cancel", exact=True).click()
        expect(status(second)).to_have_text("canceled")
        scheduler.jobs.delete(ids["pending"])
        expect(second.locator("h1")).to_have_text("Not Found")

    def test_the_list(self, served_shop: Shop, windows: Windows) -> None:
        """A new job appears; what was ticked stays ticked, and the keyboard stays where it was."""
        window = windows(served_shop.address)
        page = window.open("/jobs?queue=default")
        box = page.locator('input[name="id"]').nth(2)
        chosen = box.get_attribute("value")
        box.check()
        box.focus()
        until(lambda: served_shop.app.live.connected == 1)
        until(lambda: any(one.read_at for one in served_shop.app._answers._kept.values()))
        made = served_shop.scheduler.enqueue(shop.resize, "new").submit()
        expect(page.locator(f'input[name="id"][value="{made.id}"]')).to_be_visible()
        expect(page.locator(f'input[name="id"][value="{chosen}"]')).to_be_checked()
        assert page.evaluate("document.activeElement.value") == chosen

    def test_a_job_that_runs(self, served_shop: Shop, windows: Windows, tmp_path: Path) -> None:
        """Its page follows its log and its progress, line by line, from its start to its result."""
        steps = [tmp_path / name for name in ("first", "second")]
        handle = served_shop.scheduler.enqueue(shop.follow, [str(step) for step in steps]).submit()
        page = windows(served_shop.address).open(f"/jobs/{handle.id}")
        expect(page.locator("#logs")).to_contain_text("It has logged nothing")
        with served_shop.scheduler:
            expect(page.locator("#logs")).to_contain_text("waiting for first")
            expect(page.locator("#state")).to_contain_text("0 % first")
            steps[0].touch()
            expect(page.locator("#logs")).to_contain_text("waiting for second")
            expect(page.locator("#state")).to_contain_text("50 % second")
            expect(status(page)).to_have_text("running")
            steps[1].touch()
            expect(status(page)).to_have_text("succeeded")
            expect(page.locator("#values")).to_contain_text("followed to the end")

    def test_a_graph(self, served_shop: Shop, windows: Windows) -> None:
        """What becomes of a job is seen in the drawing of its graph."""
        scheduler = served_shop.scheduler
        chain = scheduler.enqueue(shop.validate, 1).with_delay(timedelta(hours=1)).then(shop.ship, 1).submit()
        page = windows(served_shop.address).open(f"/graphs/{chain.id}")
        first = page.locator("#graph a").filter(has_text="orders.validate")
        expect(first).to_contain_text("pending")
        until(lambda: served_shop.app.live.connected == 1)
        assert chain.cancel()
        expect(first).to_contain_text("canceled")
        expect(page.locator("#graph a").filter(has_text="orders.ship")).to_contain_text("canceled")

    def test_a_hidden_page_asks_nothing(self, served_shop: Shop, windows: Windows) -> None:
        """It lets go of its connection, and looks again at once when it is shown."""
        window = windows(served_shop.address)
        page = window.open(f"/jobs/{served_shop.ids['pending']}")
        until(lambda: served_shop.app.live.connected == 1)
        set_hidden(page, hidden=True)
        until(lambda: served_shop.app.live.connected == 0)
        asked = len(window.requests)
        served_shop.scheduler.pause_job(served_shop.ids["pending"])
        page.wait_for_timeout(1500)
        assert len(window.requests) == asked
        expect(status(page)).to_have_text("pending")
        set_hidden(page, hidden=False)
        expect(status(page)).to_have_text("paused")

    def test_without_a_stream(self, served_shop: Shop, windows: Windows) -> None:
        """Where none can be had, the page polls."""
        app = dashboard.asgi(served_shop.scheduler)
        app._streams = False
        with served(app) as address:
            window = windows(address)
            page = window.open(f"/jobs/{served_shop.ids['pending']}")
            expect(status(page)).to_have_text("pending")
            served_shop.scheduler.pause_job(served_shop.ids["pending"])
            expect(status(page)).to_have_text("paused")
            assert not [url for url in window.requests if "/live" in url]

    def test_by_keyboard(self, served_shop: Shop, windows: Windows) -> None:
        """The search is one key away, content one link, and a question that was opened is closed with Escape."""
        page = windows(served_shop.address).open("/")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("Search jobs")).to_be_focused()
        page.keyboard.type("queue:payments failed")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"queue=payments&status=FAILED"))
        expect(page.locator(".criteria a")).to_have_count(2)
        page.locator("#list a").first.focus()
        page.keyboard.press("Enter")
        expect(status(page)).to_have_text("failed")
        page.get_by_text("Delete…").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Delete", exact=True)).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Delete", exact=True)).not_to_be_visible()

    def test_hostile_text(self, served_shop: Shop, windows: Windows) -> None:
        """A script in an argument, a tag, a queue and a log line is text: nothing runs, and the policy has no work."""
        text = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e\x1b[31m"
        scheduler = served_shop.scheduler
        handle = scheduler.enqueue(shop.send_mail, text, text).with_tags(text).with_queue(text[:60]).submit()
        scheduler.enqueue_batch(text).for_each([text], shop.resize).submit()
        window = windows(served_shop.address)
        for path in (f"/jobs/{handle.id}", "/jobs", "/queues", "/batches", f"/graphs/{handle.id}"):
            page = window.open(path)
            expect(page).not_to_have_title(re.compile("owned"))
            expect(page.locator("#zone")).to_have_text("Times in Europe/Berlin")
            assert page.locator("main img, main script").count() == 0

    def test_a_large_graph(self, served_shop: Shop, windows: Windows) -> None:
        """Five hundred jobs are a few boxes; one can be unfolded, and a box leads to its job."""
        scheduler = served_shop.scheduler
        parts = [
            scheduler.enqueue(shop.validate, number).with_delay(timedelta(hours=1)) for number in range(499)
        ]
        join = scheduler.join(parts).then(shop.cleanup).submit()
        page = windows(served_shop.address).open(f"/graphs/{join.id}")
        expect(page.locator("#graph")).to_contain_text("500 jobs in 2 boxes")
        page.get_by_role("link", name=re.compile("Unfold orders.validate")).click()
        expect(page.locator("#graph svg a")).to_have_count(500)
        page.get_by_role("link", name="fold all again").count()
        page.locator("#graph svg a.current").click()
        expect(page.locator("h1")).to_have_text("maintenance.cleanup")


def test_the_database_goes_away_and_comes_back(windows: Windows, tmp_path: Path) -> None:
    """The page says so, goes on asking, and is itself again without being loaded anew by hand."""
    with PostgreSQL() as server:
        scheduler = Scheduler(server.create_database(), allow=["tests.browser.shop"])
        scheduler.migrate()
        handle = scheduler.enqueue(shop.resize, "x").submit()
        with served(dashboard.asgi(scheduler)) as address:
            page = windows(address).open(f"/jobs/{handle.id}")
            expect(status(page)).to_have_text("pending")
            expect(page.locator("#offline")).to_be_hidden()
            server.stop()
            expect(page.locator("#offline")).to_be_visible()
            other = windows(address).open("/jobs")
            expect(other.locator("h1")).to_have_text("Service Unavailable")
            server.start()
            expect(page.locator("#offline")).to_be_hidden()
            expect(other.locator("h1")).to_have_text("Jobs")
            scheduler.cancel_job(handle.id)
            expect(status(page)).to_have_text("canceled")
        scheduler.close()
