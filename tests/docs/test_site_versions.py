"""The versions of the site: each page offers all of them, from a server and from a file, and asks nobody else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from docs.book import versions
from tests.services import chromium

GONE = "how-to/quotas"
WIDTHS = (375, 820, 1440)


@pytest.fixture(scope="module")
def three(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of three versions: the next one, and two older ones, of which the oldest lacks a page."""
    place = tmp_path_factory.mktemp("versions")
    shutil.copytree(site, place / "next")
    for older in ("0.9.0", "0.10.0"):
        shutil.copytree(site, place / older)
        for page in (place / older).rglob("*.html"):
            page.write_text(
                page.read_text().replace(f'data-version="{site.name}"', f'data-version="{older}"')
            )
    (place / "0.9.0" / f"{GONE}.html").unlink()
    versions.write(place)
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium.program(), args=["--no-sandbox"])
        yield launched
        launched.close()


def opened(browser: Browser, width: int, address: str) -> tuple[Page, list[str]]:
    """The page, and what it did that it must not do: fail, or ask for anything but files."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request", lambda request: request.url.startswith(("file:", "data:")) or faults.append(request.url)
    )
    page.goto(address)
    return page, faults


def offered(page: Page) -> list[str]:
    """What the switch offers."""
    return page.locator("#version-switch option").all_inner_texts()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_switch_leads_to_the_same_page(three: Path, browser: Browser, width: int) -> None:
    """From a page that was opened as a file: newest first, the same page of the other version, and the choice is right after going back."""
    page, faults = opened(browser, width, f"file://{three}/0.10.0/how-to/gates.html")
    assert offered(page) == ["next", "0.10.0", "0.9.0"]
    assert page.locator("#version-switch").input_value() == "0.10.0"
    assert page.locator(".version-note").count() == 0, "it is the newest release"
    if width < 1000:
        page.locator("label.nav-overlay-icon[for=__navigation]").first.click()
    assert page.locator("#version-switch").is_visible()
    page.select_option("#version-switch", "0.9.0")
    page.wait_for_url("**/0.9.0/how-to/gates.html")
    assert page.locator("#version-switch").input_value() == "0.9.0"
    assert "Read it for 0.10.0" in page.locator(".version-note").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.go_back()
    page.wait_for_url("**/0.10.0/how-to/gates.html")
    assert page.locator("#version-switch").input_value() == "0.10.0"
    assert faults == []


def test_a_page_that_the_other_version_lacks(three: Path, browser: Browser) -> None:
    """Leads to the home page of that version, not to nothing."""
    page, faults = opened(browser, 1440, f"file://{three}/next/{GONE}.html")
    assert "next release" in page.locator(".version-note").inner_text()
    page.select_option("#version-switch", "0.9.0")
    page.wait_for_url("**/0.9.0/index.html")
    assert faults == []


def test_the_home_page_leads_to_the_newest_release(three: Path, browser: Browser) -> None:
    """To what readers can install; its ``llms.txt`` stands beside it."""
    page, _ = opened(browser, 1440, f"file://{three}/index.html")
    page.wait_for_url("**/0.10.0/index.html")
    listed = (three / "llms.txt").read_text()
    assert "](0.10.0/tutorial/first-job.html)" in listed
    assert (three / "0.10.0" / "tutorial" / "first-job.html").exists()


def test_a_site_of_one_version(site: Path, browser: Browser) -> None:
    """Offers that one, and does not say that there is a newer one."""
    page, faults = opened(browser, 1440, f"file://{site}/index.html")
    assert offered(page) == [site.name]
    assert page.locator(".version-note").count() == 0
    assert faults == []


class TestWhichVersion:
    @pytest.mark.parametrize(
        ("heading", "expected"),
        [
            ("## Unreleased\n\n## 0.1.0\n", "next"),
            ("## 0.2.0\n", "0.2.0"),
            ("## 0.2.0 (2026-12-01)\n\n## 0.1.0\n", "0.2.0"),
            ("", "next"),
        ],
    )
    def test_it_is_the_newest_of_the_changelog(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, expected: str
    ) -> None:
        """What is above the newest release is not released."""
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}")
        monkeypatch.setattr(versions, "ROOT", tmp_path)
        monkeypatch.delenv(versions.VARIABLE, raising=False)
        assert versions.label() == expected

    def test_other_folders_are_no_versions(self, tmp_path: Path) -> None:
        """Only numbers and the next one, with a home page."""
        for name in ("0.9", "0.10", "next", "drafts", "0.11"):
            (tmp_path / name).mkdir()
            if name != "0.11":
                (tmp_path / name / "index.html").touch()
        assert versions.built(tmp_path) == ["next", "0.10", "0.9"]

    def test_pages_of_a_tag_are_built_by_the_builder_of_that_time(self, tmp_path: Path) -> None:
        """Not by the one of today, whose code may be gone; what is changed in the working tree does not count."""
        repository, site = tmp_path / "repository", tmp_path / "site"
        book = repository / "docs" / "book"
        book.mkdir(parents=True)
        (repository / "src").mkdir()
        (repository / "src" / "then.py").write_text("WORDS = 'as it was'")
        (repository / "docs" / "__init__.py").touch()
        (book / "__init__.py").touch()
        (book / "__main__.py").write_text(
            "import json, os, pathlib, sys, then\n"
            "said = [os.environ['RATCHET_BOOK_VERSION'], then.WORDS]\n"
            "pathlib.Path(sys.argv[1]).write_text(json.dumps(said))\n"
        )
        for command in (
            ["init", "--quiet"],
            ["add", "."],
            ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--message", "x"],
            ["tag", "v0.2.0"],
        ):
            subprocess.run(["git", *command], cwd=repository, env=os.environ, check=True)
        (repository / "src" / "then.py").write_text("WORDS = 'changed'")
        versions.build_at("v0.2.0", site, repository)
        assert json.loads(site.read_text()) == ["0.2.0", "as it was"]
