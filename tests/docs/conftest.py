"""The built site, for the tests that look at it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of this version, in their folder of a new site; the workers of a run share one."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = tmp_path_factory.getbasetemp() if run is None else tmp_path_factory.getbasetemp().parent
    place = base / f"site-{run}"
    with (base / f"site-{run}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            built = subprocess.run(
                [sys.executable, "-m", "docs.book", str(place)], cwd=ROOT, capture_output=True, text=True
            )
            assert built.returncode == 0, built.stderr
            assert built.stderr == ""
    (folder,) = (each for each in place.iterdir() if each.is_dir())
    return folder
