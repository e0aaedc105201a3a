"""``ratchet db move``, ``export``, ``import`` and ``after-restore``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from ratchet.cli.commands.moving import _line
from ratchet.cli.exit_codes import ExitCode
from ratchet.model.moves import RowKind
from ratchet.moving import Progress, Stage
from tests.unit.cli.conftest import World


def test_moves_by_command(world: World, url: str, bare: Callable[..., Result], tmp_path: Path) -> None:
    """A dry run, a script that says --yes or is refused, the same again, and an old store that says where its jobs are."""
    target = f"sqlite:///{tmp_path / 'new.db'}"
    assert "5 jobs" in bare("db", "move", "--from", url, "--to", target, "--dry-run").stdout
    assert bare("db", "move", "--from", url).exit_code == ExitCode.USAGE
    unasked = bare("db", "move", "--from", url, "--to", target)
    assert unasked.exit_code != 0
    assert "--yes" in unasked.stderr
    assert not (tmp_path / "new.db").exists()
    done = bare("db", "move", "--from", url, "--to", target, "--yes")
    assert done.exit_code == 0, done.stderr
    assert "moved 5 jobs" in done.stdout
    assert "before; it is open" in bare("db", "move", "--from", url, "--to", target, "--yes").stdout
    refused = bare("jobs", "submit", "shop:charge", "--url", url)
    assert refused.exit_code != 0
    assert "moved to" in refused.stderr
    assert "twice" in bare("db", "move", "--from", url, "--give-up").stderr
    found = json.loads(bare("jobs", "list", "--url", target, "--json").stdout)
    assert str(world.pending) in json.dumps(found)


def test_files_and_restores_by_command(
    world: World, url: str, bare: Callable[..., Result], tmp_path: Path
) -> None:
    """An export and an import with JSON for machines; after-restore says what it found."""
    path, target = str(tmp_path / "jobs.jsonl"), f"sqlite:///{tmp_path / 'new.db'}"
    exported = json.loads(bare("db", "export", path, "--url", url, "--yes", "--json").stdout)
    imported = json.loads(bare("db", "import", path, "--url", target, "--json").stdout)
    assert exported["rows"] == imported["rows"]
    assert exported["jobs"] == 5
    assert bare("db", "export", path, "--url", url, "--yes").exit_code != 0, "it is there already"
    report = json.loads(bare("db", "after-restore", "--url", target, "--yes", "--json").stdout)
    assert report["running"] == []
    assert "0 jobs were running" in bare("db", "after-restore", "--url", target, "--dry-run").stdout
    assert "no unfinished move" in bare("db", "move", "--from", url, "--give-up").stdout
    assert world.pending


def test_the_bar() -> None:
    """Half of it is full when half is done; without an estimate there are numbers only."""
    half = Progress(stage=Stage.COPY, kind=RowKind.JOB, rows=50, seconds=2.0, expected=100)
    assert _line(half) == f"copy [{'#' * 12}{'-' * 12}]  50% 50 rows, 25/s job"
    assert _line(Progress(stage=Stage.COMPARE, kind=None, rows=50, seconds=2.0)) == "compare: 50 rows, 25/s"
    assert "3 runs" in _line(Progress(stage=Stage.DRAIN, kind=None, rows=3, seconds=2.0))
