"""Run the kit against a store, as ``ratchet tck pkg.module:Harness`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest


def run(harness_path: str, arguments: Sequence[str] = ()) -> int:
    """
    Test the store of this harness against every contract; 0 if it fulfills them all.

    Prints what pytest prints, and ends with "N of N contracts, S skipped" and a reason for each skip.
    *arguments* go to pytest, for instance ``-x``. No configuration of the current directory is read.
    """
    here = Path(__file__).parent
    options = [
        "-p",
        "ratchet.tck.plugin",
        "-p",
        "no:cacheprovider",
        "-c",
        str(here / "pytest.ini"),
        f"--rootdir={here}",
        "--import-mode=importlib",
        f"--ratchet-harness={harness_path}",
    ]
    return int(pytest.main([*options, *arguments, str(here / "test_contracts.py")]))
