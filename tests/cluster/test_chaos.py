"""The short version of ``make chaos``: what is done to a cluster must not show in its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.catalog import CATALOG
from tests.chaos.history import Row
from tests.support.store_urls import KINDS, fresh_url

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn."""
    return str(request.param)


def play(name: str, kind: str, request: pytest.FixtureRequest, folder: Path) -> Row:
    """Play a scenario for a few rounds; nothing may be lost, doubled, punished or robbed."""
    scenario = CATALOG[name]
    url = None if scenario.needs_server else fresh_url(kind, request, folder)
    row = scenario.run(kind, folder, url=url, rounds=scenario.few)
    assert row.faults() == {}, f"{row}\n{(folder / 'logs').read_text()}"
    assert row.jobs > 0
    return row


def test_killed_workers(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Kill -9 in the middle of jobs: they run again elsewhere, and each effect happens exactly once."""
    row = play("kill", kind, request, tmp_path)
    assert row.recoveries, "no kill hit a running job: the test has shown nothing"


def test_killed_children(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The same for a child alone, whose supervisor goes on and starts another."""
    row = play("kill-child", kind, request, tmp_path)
    assert row.recoveries, "no kill hit a running job: the test has shown nothing"


def test_a_storm_of_kills(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of three workers one is killed every 0.7 s: the ledger has each acknowledged job exactly once, nobody is punished."""
    row = play("storm", kind, request, tmp_path)
    assert row.recoveries, "no kill hit a running job: the test has shown nothing"


def test_frozen_workers(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """SIGSTOP in the middle of a job: another worker takes it over, and the sleeper changes nothing when it wakes."""
    row = play("freeze", kind, request, tmp_path)
    assert row.recoveries, "no worker was stopped in the middle of a job: the test has shown nothing"


def test_rolling_restarts(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Three workers are replaced one after the other under load: no attempt and no crash is counted for it."""
    play("rolling", kind, request, tmp_path)


def test_database_restarts(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The database is gone for longer than any node may be silent: nobody is rescued, and work goes on by itself."""
    play("restart", kind, request, tmp_path)


def test_a_short_soak(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Operations of every kind at once, on workers that are killed, frozen and replaced: every invariant holds at the end."""
    play("soak", kind, request, tmp_path)
