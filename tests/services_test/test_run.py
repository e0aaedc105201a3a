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


KNOWN = "# why\n\n2026-01-31 test_it.py::test_unsteady\n"


def run(folder: Path, text: str, known: str = "") -> subprocess.CompletedProcess[str]:
    """Run the tests of *text* as `make test` does, with *known* as the list of unsteady tests."""
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "unsteady.txt").write_text(known)
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RATCHET_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.run", "-q"],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def times_run(output: str) -> int:
    """How often pytest has said how long it took."""
    return len(re.findall(r" in \d+\.\d+s", output))


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
    """A known one that passes alone is named and does not fail the run; one that fails twice does, and so do many."""
    result = run(tmp_path, text, KNOWN if text.endswith(UNSTEADY) else "")
    assert result.returncode == code, result.stdout
    assert times_run(result.stdout) == runs
    assert ("UNSTEADY" in result.stdout) is named


def test_a_new_unsteady_test_is_written_down(tmp_path: Path) -> None:
    """It passed alone: the run is good, and the list of the repository names it from now on, once."""
    result = run(tmp_path, STEADY + UNSTEADY)
    assert result.returncode == 0
    assert times_run(result.stdout) == 2
    assert "New in tests/unsteady.txt" in result.stdout
    listed = (tmp_path / "tests" / "unsteady.txt").read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d test_it.py::test_unsteady\n", listed)


def test_the_list_names_only_tests_that_exist(tmp_path: Path) -> None:
    """An entry whose test is gone fails the run before anything is run."""
    result = run(tmp_path, STEADY, KNOWN)
    assert result.returncode == 1
    assert "remove their lines:\n  test_it.py::test_unsteady" in result.stdout
    assert "passed" not in result.stdout
