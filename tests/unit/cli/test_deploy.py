"""``ratchet check-deploy``: what the new code would not know is said before it is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.scheduler import Scheduler
from tests.unit.cli import errands
from tests.unit.cli.conftest import CommandLine

NEW_CODE = """
from ratchet.scheduler import Scheduler

scheduler = Scheduler(allow={allow!r})
"""


@pytest.fixture
def new_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app in the current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_known_targets_are_fine(ratchet: CommandLine, scheduler: Scheduler, new_code: Path) -> None:
    """Exit code 0 where the new code can run everything that waits."""
    scheduler.enqueue(errands.greet, "ann").with_delay(3600).submit()
    (new_code / "deploy_fine.py").write_text(NEW_CODE.format(allow=["tests.unit.cli.errands"]))
    assert ratchet.json("check-deploy", "deploy_fine:scheduler") == {"checked": 1, "missing": []}


def test_a_target_that_is_gone_is_named(ratchet: CommandLine, scheduler: Scheduler, new_code: Path) -> None:
    """Exit code 1, with the target, how many jobs wait for it, and why it cannot run."""
    for name in ("ann", "bob"):
        scheduler.enqueue(errands.greet, name).with_delay(3600).submit()
    (new_code / "deploy_gone.py").write_text(NEW_CODE.format(allow=["shop"]))
    found = ratchet("check-deploy", "deploy_gone:scheduler", code=1)
    assert "tests.unit.cli.errands:greet" in found.stdout.replace("\n", "")
