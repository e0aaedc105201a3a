"""The code of version 0.1.0, unpacked from this repository, and processes that run it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.earlier import commit, unpack
from tests.cluster.workers import ROOT

#: The commit that 0.1.0 was released from.
RELEASED = "ae2d245"


@contextmanager
def earlier_version() -> Iterator[dict[str, str]]:
    """
    The environment variables with which a process runs 0.1.0.

    Its drivers are those of this environment: what 0.1.0 needs is among what is installed here.
    """
    try:
        commit(RELEASED)
    except (ValueError, OSError) as error:
        pytest.fail(
            f"the code of 0.1.0 is not here ({error}); in a clone that has its history, run "
            f"`git fetch --unshallow origin` or `git fetch origin {RELEASED}`, then the test again",
            pytrace=False,
        )
    with tempfile.TemporaryDirectory(prefix="ratchet-0.1.0-") as folder:
        unpack(RELEASED, Path(folder))
        environment = {"PYTHONPATH": f"{Path(folder) / 'src'}{os.pathsep}{ROOT}"}
        said = python(environment, "-c", "import ratchet; print(ratchet.__version__, ratchet.__file__)")
        assert said.stdout.startswith("0.1.0 " + folder), said.stdout + said.stderr
        yield environment


def python(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, with the code that *environment* leads to."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
