"""The site of the docs: it builds without a warning, every page is in its navigation, and its reference has every public name."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import typer.main
from playwright.sync_api import Page, sync_playwright
from starlette.staticfiles import StaticFiles

import ratchet
import ratchet.testing
from docs.book import api, check, docstrings
from docs.book.pages import OUTSIDE, Navigation
from ratchet.cli.app import app
from ratchet.model.events import Event
from ratchet.model.metrics import METRICS
from ratchet.model.options import Options
from ratchet.model.status import TRANSITIONS
from tests.browser.conftest import served
from tests.services import chromium

ROOT = Path(__file__).parents[2]


def text_of(page: Path) -> str:
    """The words of a page, without its tags."""
    return unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def headings(folder: Path) -> set[str]:
    """What has a heading of its own on the pages of a folder."""
    found = re.findall(
        r"<h[234]>(.*?)<a class=\"headerlink\"", "".join(p.read_text() for p in folder.glob("*.html"))
    )
    return {unescape(re.sub(r"<[^>]+>", "", heading)) for heading in found}


class TestReference:
    def test_every_public_name_is_there(self, site: Path) -> None:
        """Of ratchet, ratchet.testing, the dashboard and contrib: each has a heading, and so has each method of a class."""
        found = headings(site / "reference" / "api")
        names = {*api.public_names(ratchet), *api.public_names(ratchet.testing), "asgi", "wsgi"}
        for module in api.contrib_modules():
            names |= set(api.public_names(__import__(module, fromlist=["_"])))
        assert names - found == set()
        assert {
            "Scheduler.enqueue",
            "Scheduler.run",
            "JobHandle.result",
            "JobBuilder.submit",
            "JobContext.transaction",
        } <= found
        assert len(names) > 150

    def test_every_option_metric_event_error_and_state_is_there(self, site: Path) -> None:
        """The tables have what the code has."""
        reference = site / "reference"
        options, metrics, states = (
            text_of(reference / f"{name}.html") for name in ("options", "metrics", "states")
        )
        assert [field.name for field in dataclasses.fields(Options) if field.name not in options] == []
        assert [metric.name for metric in METRICS if metric.name not in metrics] == []
        assert [each for each in TRANSITIONS if each.trigger not in states or each.target not in states] == []
        events, errors = text_of(reference / "events.html"), text_of(reference / "errors.html")
        for name in api.public_names(ratchet):
            value = getattr(ratchet, name)
            if isinstance(value, type) and issubclass(value, Event):
                assert re.search(rf"\b{name}\b", events), name
            if isinstance(value, type) and issubclass(value, BaseException):
                assert re.search(rf"\b{name}\b", errors), name

    def test_every_command_is_there(self, site: Path) -> None:
        """Each has a section of its own."""
        found = headings(site / "reference")
        assert set(commands("ratchet", typer.main.get_command(app))) - found == set()


def commands(path: str, command: object) -> Iterator[str]:
    """The full names of all commands."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path
    else:
        for name, each in inner.items():
            yield from commands(f"{path} {name}", each)


class TestExamplesOfVerbs:
    CLASSES = ("Scheduler", "JobBuilder", "JobHandle", "JobContext", "BatchHandle", "Schedule", "JoinBuilder")

    def test_they_run(self, tmp_path: Path) -> None:
        """The script that they are cut from runs as it stands."""
        script = ROOT / "docs" / "book" / "verbs.py"
        ran = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    def test_the_verbs_have_one(self) -> None:
        """Nearly all verbs do, and there is none for a verb that does not exist."""
        known = {
            f"{name}.{verb}"
            for name in self.CLASSES
            for verb, _ in docstrings._methods(getattr(ratchet, name))
        }
        missing = known - docstrings.examples().keys()
        assert len(missing) <= 8, f"add examples to docs/book/verbs.py: {sorted(missing)}"
        for verb in docstrings.examples():
            name, _, member = verb.partition(".")
            assert member in dict(docstrings._methods(getattr(ratchet, name))), verb

    def test_the_site_shows_them(self, site: Path) -> None:
        """Below the verb."""
        shown = text_of(site / "reference" / "api" / "scheduler.html")
        assert "handle = scheduler.enqueue(charge, 42).with_priority(Priority.HIGH).submit()" in shown


class TestNavigation:
    def test_every_page_is_in_it_once(self, site: Path) -> None:
        """Each page of docs/ has a link in the sidebar of the home page, and a line in llms.txt."""
        pages = [
            page.relative_to(ROOT / "docs").with_suffix("").as_posix()
            for page in (ROOT / "docs").rglob("*.md")
        ]
        pages += [name.removesuffix(".md") for name in OUTSIDE.values()]
        home, listed = (site / "index.html").read_text(), (site / "llms.txt").read_text()
        for page in pages:
            if page != "index":
                assert home.count(f'class="reference internal" href="{page}.html"') >= 1, page
                assert listed.count(f"({page}.html): ") == 1, page

    def test_a_page_in_an_unknown_folder_is_an_error(self) -> None:
        """It would be built, and nobody would find it."""
        assert Navigation(["index", "how-to/new-page", "misc/lost"]).lost == ["misc/lost"]


class TestCheck:
    """The link check, which other tests believe."""

    @pytest.mark.parametrize(
        ("html", "fault"),
        [
            ('<a href="gone.html">x</a>', "a.html has a broken link: gone.html"),
            ('<a href="a.html#gone">x</a>', "a.html has a broken link: a.html#gone"),
            ('<a href="#gone">x</a>', "a.html has a broken link: #gone"),
            ('<img src="gone.png">', "a.html has a broken link: gone.png"),
            ('<script src="https://cdn.example/x.js"></script>', "a.html fetches https://cdn.example/x.js"),
            ('<link href="//fonts.example/x.css">', "a.html fetches //fonts.example/x.css"),
        ],
    )
    def test_what_it_finds(self, tmp_path: Path, html: str, fault: str) -> None:
        """Missing pages, anchors and files, and what a browser would fetch from elsewhere."""
        (tmp_path / "a.html").write_text(f'<h1 id="here">x</h1><a href="#here">x</a>{html}')
        assert check.faults(tmp_path) == [fault]

    def test_styles_that_fetch_are_found(self, tmp_path: Path) -> None:
        """A font from elsewhere is a request to elsewhere."""
        (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example/x.woff2) }")
        assert check.faults(tmp_path) == ["a.css fetches something from elsewhere"]


class TestInABrowser:
    def test_it_reads_and_finds(self, site: Path) -> None:
        """No error, no request to elsewhere, no page wider than a phone; dark is dark; search finds pages."""
        with served(StaticFiles(directory=site)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium.program(), args=["--no-sandbox"])
            faults: list[str] = []
            page = browser.new_context(viewport={"width": 375, "height": 800}, color_scheme="dark").new_page()
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on(
                "request",
                lambda request: request.url.startswith((address, "data:")) or faults.append(request.url),
            )
            for name in (
                "index",
                "how-to/composition",
                "reference/cli",
                "reference/api/scheduler",
                "reference/states",
            ):
                page.goto(f"{address}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth") <= 375, name
                assert brightness(page) < 80, name
            page.goto(f"{address}/search.html?q=dead+letters")
            page.wait_for_selector("#search-results li a")
            assert page.locator("#search-results li a").count() > 3
            browser.close()
        assert faults == []


def brightness(page: Page) -> float:
    """Of the background, from 0 to 255."""
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3
