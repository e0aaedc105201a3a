"""
All tests: beside each other first, and what failed there once more, alone.

Many tests here have real processes, real servers and real time. On two cores that three programs share, one of
them may wait longer than its test allows. A test that fails beside others and passes alone is named as unsteady,
in the last lines of the run: it is somebody's next piece of work, but it does not stop everybody else's. A test that
fails twice fails the run, and so do more than a few unsteady ones: then it is not the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CACHE = Path(".pytest_cache")
FAILED = CACHE / "v/cache/lastfailed"
FEW = 5
SOME_FAILED = 1  # pytest's exit code for it; any other than 0 is not about single tests


def main(arguments: list[str]) -> int:
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
    return code


def _say(*lines: str) -> None:
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
