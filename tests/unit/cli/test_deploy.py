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


def test_modules_that_the_workers_import_count(
    ratchet: CommandLine, scheduler: Scheduler, new_code: Path
) -> None:
    """A job that another module declares is known if it is named with --import, as for ``worker``."""
    scheduler.enqueue(errands.greet, "ann").with_delay(3600).submit()
    (new_code / "deploy_more.py").write_text(NEW_CODE.format(allow=["shop"]))
    (new_code / "deploy_more_jobs.py").write_text(
        "from deploy_more import scheduler\n\n\n"
        "@scheduler.job(name='tests.unit.cli.errands:greet')\ndef greet(name): ...\n"
    )
    assert ratchet.json("check-deploy", "deploy_more:scheduler", code=1)["missing"]
    found = ratchet.json("check-deploy", "deploy_more:scheduler", "--import", "deploy_more_jobs")
    assert found == {"checked": 1, "missing": []}
    said = ratchet("check-deploy", "deploy_more:scheduler", "--import", "deploy_mroe", code=1).output
    assert "no module 'deploy_mroe'" in " ".join(said.split())
