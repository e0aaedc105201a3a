"""``ratchet bench`` measures and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from ratchet.cli.app import app


def test_on_sqlite_beside_the_file_that_is_named(tmp_path: Path) -> None:
    """Every workload has a positive number, and neither the file nor its directory holds anything afterwards."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    done = CliRunner().invoke(app, ["bench", "--url", url, "--jobs", "100", "--rounds", "1", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert len(rows) == 6
    assert all(row["median"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []
