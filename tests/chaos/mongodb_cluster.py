"""A MongoDB replica set of three: its primary steps down, is killed, is stopped, and joins again."""

from __future__ import annotations

import itertools
import time
from functools import partial

import pymongo

from ratchet.model.options import Options
from tests.chaos.failovers import PATIENCE, drill, start_workers
from tests.chaos.replica_set import Member, ReplicaSet
from tests.chaos.scenario import Scenario, only
from tests.chaos.stage import Stage
from tests.support.waiting import until

FROZEN = 20.0


def replica_set(stage: Stage, rounds: int) -> None:
    """The primary steps down, in the next round it is killed, in the third it is stopped; jobs have no retries."""
    cluster = stage.server
    assert isinstance(cluster, ReplicaSet)
    start_workers(stage)
    blows = itertools.cycle([_step_down, _kill, _freeze])
    drill(stage, cluster, rounds, lambda primary: next(blows)(cluster, primary), partial(_probe, stage.url))


def _step_down(cluster: ReplicaSet, primary: Member) -> None:
    # Not for long: in the next rounds it has to be a candidate again.
    primary.command_direct("replSetStepDown", 8, secondaryCatchUpPeriodSecs=4)
    _wait_for_another(cluster, primary)


def _kill(cluster: ReplicaSet, primary: Member) -> None:
    primary.kill()
    _wait_for_another(cluster, primary)
    primary.start()


def _freeze(cluster: ReplicaSet, primary: Member) -> None:
    with primary.frozen():
        time.sleep(FROZEN)
    _wait_for_another(cluster, primary)


def _wait_for_another(cluster: ReplicaSet, former: Member) -> None:
    until(lambda: cluster.primary() is not former, 60, "no other member became the primary")


def _probe(url: str) -> None:
    client: pymongo.MongoClient[dict[str, float]]
    with pymongo.MongoClient(url, serverSelectionTimeoutMS=2000, timeoutMS=2000, w="majority") as client:
        client.get_default_database()["probe"].insert_one({"at": time.time()})


SCENARIOS = [
    Scenario(
        "replica-set",
        replica_set,
        rounds=3,
        server=ReplicaSet,
        options=Options(failover_patience=PATIENCE),
        left_out=only("mongodb", reason="only MongoDB brings a failover of its own"),
    )
]
