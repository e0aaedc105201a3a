"""Three PostgreSQL servers under Patroni: the primary is replaced, killed, stopped, cut off, and joins again."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psycopg

from ratchet.model.options import Options
from tests.chaos import diary
from tests.chaos.scenario import Scenario, only
from tests.chaos.stage import Stage
from tests.services.patroni import Node, Patroni, Way

FROZEN = 30.0
CUT_OFF = 40.0
#: Patroni replaces a silent leader after 20 s: a call that waits longer than this for it waits in vain.
PATIENCE = 8.0
BETWEEN_PROBES = 0.25


def switchover(stage: Stage, rounds: int) -> None:
    """A planned change of the primary."""
    _drill(stage, rounds, lambda cluster, _: cluster.switch_over())


def kill_primary(stage: Stage, rounds: int) -> None:
    """Kill -9 for the primary and its Patroni; started again, it joins as a standby."""
    _drill(stage, rounds, _kill)


def freeze_primary(stage: Stage, rounds: int) -> None:
    """SIGSTOP for the primary and its Patroni; when it goes on, another one is the primary."""
    _drill(stage, rounds, _freeze)


def partition(stage: Stage, rounds: int) -> None:
    """Nobody reaches the primary, and it does not reach etcd."""
    _drill(stage, rounds, _cut_off)


def _kill(cluster: Patroni, primary: Node) -> None:
    primary.kill()
    _wait_for_another(cluster, primary)
    primary.begin()


def _freeze(cluster: Patroni, primary: Node) -> None:
    with primary.frozen():
        time.sleep(FROZEN)


def _cut_off(cluster: Patroni, primary: Node) -> None:
    with primary.cut_off():
        time.sleep(CUT_OFF)


def _wait_for_another(cluster: Patroni, former: Node) -> None:
    while cluster.primary() is former:
        time.sleep(0.1)


def _drill(stage: Stage, rounds: int, blow: Callable[[Patroni, Node], None]) -> None:
    """The blow, under load of jobs without retries; each time until the cluster is whole again."""
    cluster = stage.server
    assert isinstance(cluster, Patroni)
    for _ in range(3):
        stage.start_worker(RATCHET_FAILOVER_PATIENCE=f"{PATIENCE:.0f}s")
    for worker in stage.workers:
        worker.wait_ready(seconds=60)
    with _probed(stage.url) as answered, stage.load(10, 0.3, hold=0.05):
        for number in range(rounds):
            stage.wait_for_work(stage.workers[number % 3])
            former, begun = cluster.primary(), time.monotonic()
            blow(cluster, former)
            cluster.wait_until_whole()
            whole = time.monotonic() - begun
            stage.recoveries.append(stage.wait_for_progress())
            if cluster.primary() is former:
                stage.broken.append(f"{former.member} is still the primary: the drill has shown nothing")
            ends = [entry.at for entry in diary.read(stage.book) if entry.verb == "end"]
            stage.notes.append(
                f"without a primary {_longest_gap(answered, begun):.1f} s, "
                f"without progress {_longest_gap(ends, begun):.1f} s, whole again after {whole:.1f} s"
            )
    stage.notes.append(f"{len(stage.refused)} submissions were refused")


def _longest_gap(times: list[float], begun: float) -> float:
    # From the blow itself: the first round may have nothing to show before it.
    seen = [begun, *(at for at in sorted(times) if at > begun)]
    return max((after - before for before, after in itertools.pairwise(seen)), default=float("inf"))


@contextmanager
def _probed(url: str) -> Iterator[list[float]]:
    """The moments at which a client that knows nothing of Ratchet could commit a write."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE probe (at timestamptz NOT NULL)")
    answered: list[float] = []
    over = threading.Event()

    def probe() -> None:
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                connection.execute("INSERT INTO probe VALUES (clock_timestamp())")
                answered.append(time.monotonic())
        except psycopg.Error:
            pass  # no primary at this moment

    def repeat() -> None:
        # Each in a thread of its own: one that meets a silent server must not hold up the next.
        while not over.wait(BETWEEN_PROBES):
            threading.Thread(target=probe, daemon=True).start()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join(10)


def _scenarios(way: Way, suffix: str) -> list[Scenario]:
    plays = {
        "switchover": switchover,
        "kill-primary": kill_primary,
        "freeze-primary": freeze_primary,
        "partition": partition,
    }
    return [
        Scenario(
            name + suffix,
            play,
            rounds=3,
            server=partial(Patroni, way=way),
            options=Options(failover_patience=PATIENCE),
            left_out=only("postgresql", reason="Patroni is PostgreSQL's"),
        )
        for name, play in plays.items()
    ]


SCENARIOS = [*_scenarios("haproxy", ""), *_scenarios("multihost", "-multihost")]
