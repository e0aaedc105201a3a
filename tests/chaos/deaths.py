"""Workers that die or freeze while they work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.chaos.scenario import Scenario
from tests.chaos.stage import Stage

#: Jobs that are running in three crashes are dead letters by right: a job is over before the third kill.
BETWEEN_KILLS = 8.0
BETWEEN_STORM_KILLS = 0.7
#: A worker that is stopped is let go after this time, whether or not its work was taken over.
STOPPED_AT_MOST = 25.0
#: Blows that may miss: the job was over just before, or the worker held a lock of the database.
SPARE = 4


def kill(stage: Stage, rounds: int) -> None:
    """Kill -9 in the middle of jobs, for a worker with its supervisor: only silence tells the others."""
    stage.start_workers(3)
    with stage.load(8, 1.5):
        _strike(stage, rounds, _kill, BETWEEN_KILLS)


def kill_child(stage: Stage, rounds: int) -> None:
    """Kill -9 in the middle of jobs, for a child alone: its supervisor sees it at once."""
    stage.start_workers(3)
    with stage.load(8, 1.5):
        _strike(stage, rounds, _kill_child, BETWEEN_KILLS)


def _kill(stage: Stage, number: int) -> bool:
    victim = stage.workers[number % 3].wait_ready(seconds=60)
    run = stage.wait_for_work(victim)
    stage.kill(victim)
    stage.start_worker()
    return stage.wait_until_taken_over(run)


def _kill_child(stage: Stage, number: int) -> bool:
    victim = stage.workers[number % 3].wait_ready(seconds=60)
    run = stage.wait_for_work(victim)
    stage.kill_child(victim, run.pid)
    return stage.wait_until_taken_over(run)


def freeze(stage: Stage, rounds: int) -> None:
    """SIGSTOP in the middle of a job until another worker has it, then SIGCONT: the sleeper must change nothing."""
    stage.start_workers(3)
    with stage.load(6, 2.0):
        _strike(stage, rounds, _freeze, BETWEEN_KILLS)


def _freeze(stage: Stage, number: int) -> bool:
    victim = stage.workers[number % 3]
    run = stage.wait_for_work(victim)
    with stage.frozen(victim, None if number % 2 else run.pid):
        # A process that is stopped while it holds a lock of the database may hold up everybody, and its
        # rescue too: no judge of liveness can change that. It is let go, and another one is stopped.
        try:
            return stage.wait_until_taken_over(run, STOPPED_AT_MOST)
        except AssertionError:
            stage.notes.append(f"{victim.name} was let go after {STOPPED_AT_MOST:.0f} s: nobody had its work")
            stage.forget_blow()
            return False


def _strike(stage: Stage, rounds: int, blow: Callable[[Stage, int], bool], pause: float) -> None:
    """Strike until *rounds* blows have hit a job in its middle, with a *pause* from one to the next."""
    hits = 0
    for number in range(rounds + SPARE):
        begun = time.monotonic()
        hits += blow(stage, number)
        if hits == rounds:
            return
        time.sleep(max(0.0, pause - (time.monotonic() - begun)))
    stage.broken.append(f"only {hits} of {rounds} blows hit a job")


def storm(stage: Stage, rounds: int) -> None:
    """Kill -9 in quick succession, also for workers that have hardly begun."""
    stage.start_workers(3)
    dice = random.Random(7)
    with stage.load(40, 0.1):
        for _ in range(rounds):
            time.sleep(BETWEEN_STORM_KILLS)
            stage.kill(dice.choice(stage.workers))
            stage.start_worker()


SCENARIOS = [
    Scenario("kill", kill, rounds=6, few=1),
    Scenario("kill-child", kill_child, rounds=6, few=1),
    Scenario("storm", storm, rounds=200, few=20),
    Scenario("freeze", freeze, rounds=6, few=1),
]
