"""
All tests: beside each other first, and what failed there once more, alone.

Many tests here have real processes, real servers and real time. On two cores that three programs share, one of
them may wait longer than its test allows. A test that fails beside others and passes alone is unsteady. It does not
stop the run, but it is printed in the last lines and written into ``tests/unsteady.txt``, with the day it was first
seen: commit that line, or find the race. What fails the run: a test that fails twice, more than a few failures (then
it is not the machine), and an entry of the list whose test does not exist any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

UNSTEADY = Path("tests/unsteady.txt")
FAILED = Path(".pytest_cache/v/cache/lastfailed")
FEW = 5
# pytest's exit codes; others than these and 0 are not about single tests
SOME_FAILED = 1
NOT_FOUND = 4


def main(arguments: Sequence[str]) -> int:
    known = _known()
    if known and (missing := _missing(known)):
        _say(f"{UNSTEADY} names tests that do not exist; remove their lines:", *missing)
        return SOME_FAILED
    FAILED.unlink(missing_ok=True)
    code = _pytest(*arguments)
    if code != SOME_FAILED:
        return code
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= FEW:
        return code
    _say(f"\n{len(failed)} failed beside others; once more, alone:", *failed)
    code = _pytest("--numprocesses=0", *failed)
    if code == 0:
        _say("UNSTEADY, passed only alone:", *failed)
        _write_down([test for test in failed if test not in known])
    return code


def _write_down(tests: Sequence[str]) -> None:
    """Add *tests* to the list."""
    if not tests:
        return
    with UNSTEADY.open("a") as file:
        file.writelines(f"{datetime.now(UTC):%Y-%m-%d} {test}\n" for test in tests)
    _say(f"New in {UNSTEADY}; find the race, or commit the line:", *tests)


def _known() -> list[str]:
    """The tests that may pass only alone: lines of a date and a test; others are empty or begin with #."""
    lines = UNSTEADY.read_text().splitlines() if UNSTEADY.exists() else []
    entries = [line.strip() for line in lines]
    return [line.split(maxsplit=1)[1] for line in entries if line and not line.startswith("#")]


def _missing(tests: Sequence[str]) -> list[str]:
    """Those that pytest does not find."""
    return [test for test in tests if _pytest("--collect-only", test, quiet=True) == NOT_FOUND]


def _say(*lines: str) -> None:
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


def _pytest(*arguments: str, quiet: bool = False) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, check=False, capture_output=quiet).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
