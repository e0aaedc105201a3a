"""The command that plays faults on Ratchet and its peers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_killed_worker_of_ours_is_judged_by_the_file() -> None:
    """One round of kill -9 on Ratchet: the job runs again on the other worker, and no job is left over."""
    command = [
        sys.executable,
        "-m",
        "bench.faults",
        "--peers",
        "ratchet",
        "--faults",
        "kill",
        "--limit",
        "60",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    trial = json.loads(done.stdout)
    assert trial["again_after"] is not None
    assert (trial["not_ended"], trial["ended_twice"]) == (0, 0)
    assert sorted(trial["exits"].values(), key=str) == [-9, None]
