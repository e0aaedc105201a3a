"""``package.module:attribute`` becomes a scheduler, or an error that says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.cli.user_app import AppNotUsable, load_scheduler, split_app
from ratchet.scheduler import Scheduler

GOOD = """
from ratchet.scheduler import Scheduler

scheduler = other = Scheduler("sqlite:///:memory:", allow=["x"])
number = 7

def job():
    raise OSError("called")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory whose modules can be imported, and are forgotten afterwards."""
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_attribute_that_is_a_scheduler_is_found(folder: Path) -> None:
    """By name, and by the default name."""
    (folder / "good_app.py").write_text(GOOD)
    for app in ("good_app:scheduler", "good_app:other", "good_app"):
        assert isinstance(load_scheduler(app, str(folder)), Scheduler)


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("good_app:nothing", r"has no 'nothing'; did you mean good_app:scheduler\?"),
        ("good_app:number", r"is not a Scheduler but int; did you mean good_app:scheduler\?"),
        ("good_app:job", r"is not a Scheduler but function"),
        ("missing_app:scheduler", r"there is no module 'missing_app' in .*PYTHONPATH"),
        ("good_app.deeper:scheduler", r"good_app"),
    ],
)
def test_an_app_that_cannot_be_used_says_why(folder: Path, app: str, message: str) -> None:
    """The message names what is wrong and, where it can, what would be right."""
    (folder / "good_app.py").write_text(GOOD)
    with pytest.raises(AppNotUsable, match=message):
        load_scheduler(app, str(folder))


def test_an_error_in_the_app_is_shown_with_the_line_that_raised_it(folder: Path) -> None:
    """User code that fails at import is shown like a traceback, without the machinery."""
    (folder / "failing_app.py").write_text("import math\n\nvalue = math.sqrt(-1)\n")
    with pytest.raises(AppNotUsable) as caught:
        load_scheduler("failing_app:scheduler", str(folder))
    text = str(caught.value)
    assert "value = math.sqrt(-1)" in text
    assert "ValueError" in text
    assert "importlib" not in text


def test_an_import_that_the_app_misses_is_not_taken_for_the_app(folder: Path) -> None:
    """A missing dependency of the app is named, with the line that imports it."""
    (folder / "needy_app.py").write_text("import a_package_that_is_not_there\n")
    with pytest.raises(AppNotUsable, match="No module named 'a_package_that_is_not_there'"):
        load_scheduler("needy_app:scheduler", str(folder))


@pytest.mark.parametrize("app", ["shop/jobs.py", "./shop/jobs.py:scheduler"])
def test_a_file_is_refused_with_the_module_that_is_meant(app: str) -> None:
    """A path is a common mistake; the right form is in the message."""
    with pytest.raises(AppNotUsable, match=r"shop\.jobs:scheduler"):
        split_app(app)


@pytest.mark.parametrize("app", ["", ":scheduler", "1shop:x", "a b:c"])
def test_what_is_no_module_is_refused(app: str) -> None:
    """Nonsense is refused before a process is started for it."""
    with pytest.raises(AppNotUsable, match=r"package\.module:attribute"):
        split_app(app)
