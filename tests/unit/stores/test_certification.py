"""What tells a server of a Galera cluster from a single one, and which of its settings break a promise."""

from __future__ import annotations

import pytest

from ratchet import Scheduler
from ratchet.stores.memory import MemoryStore
from ratchet.stores.sql.dialects.mysql.certification import certifies, holding, unsound

CLUSTER = {"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (CLUSTER, True),
        ({**CLUSTER, "wsrep_on": "OFF"}, False),  # installed, not in a cluster
        ({**CLUSTER, "wsrep_provider": "none"}, False),
        ({"wsrep_on": "OFF", "wsrep_provider": "none"}, False),  # MariaDB alone
        ({}, False),  # MySQL
    ],
)
def test_a_cluster_is_one_that_is_on_and_has_a_provider(settings: dict[str, str], expected: bool) -> None:
    """Both settings decide; a server that knows neither is none."""
    assert certifies({"max_allowed_packet": "16777216", **settings}) is expected


def test_what_is_held_changes_and_comes_back() -> None:
    """Two changes, each of which changes something, and which together change nothing."""
    assert holding("scheduler_job", "job_id = :x") == (
        "UPDATE scheduler_job SET needs = needs + 1 WHERE job_id = :x",
        "UPDATE scheduler_job SET needs = needs - 1 WHERE job_id = :x",
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"wsrep_provider_options": "gcache.size = 32M; pc.ignore_quorum = true; pc.ignore_sb = false"}, 1),
        ({"wsrep_provider_options": "pc.ignore_quorum = true; pc.ignore_sb = yes"}, 2),
        ({"wsrep_provider_options": "gcache.size = 32M; pc.ignore_sb = false", "binlog_format": "ROW"}, 0),
        ({"binlog_format": "MIXED"}, 1),
        ({}, 0),
    ],
)
def test_settings_that_break_a_promise(settings: dict[str, str], named: int) -> None:
    """A cluster that goes on without a quorum takes writes on both sides of a split; one without rows has nothing to compare."""
    assert len(unsound(settings)) == named


def test_health_names_them() -> None:
    """What a store says about its database is a problem, whatever else is well."""
    store = MemoryStore()
    store.capabilities.unsound = ("pc.ignore_quorum is on",)
    with Scheduler(store=store, allow=[__name__]) as scheduler:
        (problem,) = scheduler.health().problems
    assert (problem.code, problem.text) == ("settings", "pc.ignore_quorum is on")
