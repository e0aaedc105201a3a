"""A planned switchover of a real cluster (Patroni, etcd, HAProxy) under load; the longer drills are in ``make chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.catalog import CATALOG

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_switchover_costs_no_job(tmp_path: Path) -> None:
    """
    Jobs without retries, in transactions that the switchover cuts: none is lost, doubled or a dead letter, no node is rescued.

    Before it, a standby that is asked to write says that it takes none.
    """
    scenario = CATALOG["switchover"]
    row = scenario.run("postgresql", tmp_path, rounds=scenario.few)
    assert row.faults() == {}, f"{row}\n{(tmp_path / 'logs').read_text()}"
    assert row.jobs > 0
    assert row.recoveries, "no job has ended after the switchover"
