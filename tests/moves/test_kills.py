"""A move that is killed at any point goes on, loses nothing, and never lets both stores work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet import ManualClock, Options
from ratchet.stores import open_store
from tests.moves import samples
from tests.moves.conftest import MakeUrl

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("source", "target", "seed"), [("sqlite", "postgresql", 1), ("mongodb", "mysql", 3)])
def test_killed_again_and_again(
    source: str, target: str, seed: int, make_url: MakeUrl, clock: ManualClock
) -> None:
    """
    After up to three kills at random points both sides hold the same rows; at no time a job can be claimed from both, nor from
    the target before the end. `python -m tests.moves.killing` plays other seeds and more kills.
    """
    there, here = make_url(source), make_url(target)
    store = open_store(there, Options())
    store.migrate()
    samples.fill(store, clock)
    rows = samples.rows_of(store)
    command = [sys.executable, "-m", "tests.moves.killing", there, here, "--seed", str(seed), "--kills", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] > 0, "a seed that kills nothing shows nothing"
    assert [1, 1] not in found["seen"]
    assert found["seen"][-1] == [0, 1]
    arrived = open_store(here, Options())
    after, before = samples.rows_of(arrived), samples.rows_of(store)
    for kind, expected in rows.items():
        assert {key: row for key, row in after[kind].items() if key in expected} == expected, kind
        if kind != "audit":  # the log of the new store has entries of its own
            assert len(after[kind]) == len(expected), kind
        assert before[kind] == expected, "the old store is as it was"
    store.close()
    arrived.close()
