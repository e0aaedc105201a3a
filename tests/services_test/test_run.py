"""`make test` repeats what failed beside others, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEADY = "def test_steady():\n    pass\n"
UNSTEADY = """
import pathlib
def test_unsteady():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BROKEN = "def test_broken():\n    assert False\n"
MANY_BROKEN = """
import pytest
@pytest.mark.parametrize("number", range(6))
def test_broken(number):
    assert False
"""


@pytest.mark.parametrize(
    ("text", "code", "runs", "named"),
    [
        (STEADY, 0, 1, False),
        (STEADY + UNSTEADY, 0, 2, True),
        (BROKEN, 1, 2, False),
        (UNSTEADY + BROKEN, 1, 2, False),
        (MANY_BROKEN, 1, 1, False),
        ("not python", 2, 1, False),
    ],
    ids=["steady", "unsteady", "broken", "one of two broken", "many broken", "not collected"],
)
def test_what_failed_is_run_once_more_alone(
    tmp_path: Path, text: str, code: int, runs: int, named: bool
) -> None:
    """One that passes alone is named and does not fail the run; one that fails twice does, and so do many."""
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RATCHET_"))
    }
    result = subprocess.run(
        [sys.executable, "-m", "tests.run", "-q"],
        cwd=tmp_path,
        env=clean | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stdout
    assert len(re.findall(r" in \d+\.\d+s", result.stdout)) == runs
    assert ("UNSTEADY" in result.stdout) is named
