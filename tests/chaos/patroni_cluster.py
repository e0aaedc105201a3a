"""Three PostgreSQL servers under Patroni: the primary is replaced, killed, stopped, cut off, and joins again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg

from ratchet import Scheduler, StoreReadOnly, StoreUnavailable, SubmissionBlocked
from ratchet.model.options import Options
from tests.chaos import diary, jobs
from tests.chaos.failovers import PATIENCE, drill, start_workers
from tests.chaos.scenario import Scenario, only
from tests.chaos.stage import Stage
from tests.services.patroni import Node, Patroni, Way
from tests.support.waiting import until

FROZEN = 30.0
CUT_OFF = 40.0
#: Clients on the side of a primary that nobody else reaches.
INSIDE = 4
#: Less than Patroni waits for its PostgreSQL, and less than `statement_timeout`: whoever waits is answered.
STALLED = 10.0
#: A transaction of a caller stays open for so long after its jobs are due.
LATE = 3.0
#: Jobs that are due before what claims have passed are found within seconds; they were not within minutes.
FOUND_WITHIN = 60.0


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
    """Nobody reaches the primary, and it does not reach etcd; but there are clients on its side."""
    inside: list[int | None] = []

    def cut_off(cluster: Patroni, primary: Node) -> None:
        with primary.cut_off(), _clients_of(stage, primary, inside):
            time.sleep(CUT_OFF)

    _drill(stage, rounds, cut_off)
    acknowledged = sum(number is not None for number in inside)
    stage.notes.append(
        f"a primary that was cut off took {acknowledged} of {len(inside)} submissions from its side"
    )
    if not inside:
        stage.broken.append("nobody has asked the primary that was cut off")


def silent_standby(stage: Stage, rounds: int) -> None:
    """The synchronous standby stands still: nothing is acknowledged without it, and it takes over when the primary dies."""
    cluster = _cluster(stage)
    start_workers(stage)
    for _ in range(rounds):
        with stage.load(10, 0.3, hold=0.05):
            stage.wait_for_progress()
        stage.wait_until_all_ended()
        primary, standby = cluster.primary(), cluster.successor()
        with standby.postgresql_frozen():
            begun = time.monotonic()
            answers = _answers(stage, stage.scheduler)
            stage.notes.append(f"all submissions were answered after {time.monotonic() - begun:.1f} s")
            primary.kill()
        _wait_for_another(cluster, primary)
        primary.begin()
        cluster.wait_until_whole()
        with stage.load(10, 0.3, hold=0.05):
            stage.recoveries.append(stage.wait_for_progress())
        _judge(stage, answers)


def stalled_primary(stage: Stage, rounds: int) -> None:
    """The primary's PostgreSQL stands still while workers claim; jobs become visible 3 s after they were due."""
    cluster = _cluster(stage)
    # One: another that did not wait, or not for the whole stall, would find what this one passes by.
    stage.start_workers(1)
    # It claims all the time, so that it passes what becomes visible late; and seldom, so that each claim is a sweep.
    with stage.load(3, 0.1):
        for _ in range(rounds):
            stage.wait_for_progress()
            with cluster.primary().postgresql_frozen():
                time.sleep(STALLED)
            stage.wait_for_progress()
            for _ in range(3):
                stage.recoveries.append(_found_late(stage))
    stage.notes.append(f"started {max(stage.recoveries):.1f} s after their commit at the latest")


# --- the parts of drills ------------------------------------------------------------------------


def _drill(stage: Stage, rounds: int, blow: Callable[[Patroni, Node], None]) -> None:
    cluster = _cluster(stage)
    with psycopg.connect(stage.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE probe (at timestamptz NOT NULL)")
    start_workers(stage)
    _ask_a_standby(stage, cluster)
    drill(stage, cluster, rounds, partial(blow, cluster), partial(_probe, stage.url))


def _cluster(stage: Stage) -> Patroni:
    assert isinstance(stage.server, Patroni)
    return stage.server


def _probe(url: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
        connection.execute("INSERT INTO probe VALUES (clock_timestamp())")


def _kill(cluster: Patroni, primary: Node) -> None:
    primary.kill()
    _wait_for_another(cluster, primary)
    primary.begin()


def _freeze(_: Patroni, primary: Node) -> None:
    with primary.frozen():
        time.sleep(FROZEN)


def _wait_for_another(cluster: Patroni, former: Node) -> None:
    while cluster.primary() is former:
        time.sleep(0.1)


def _scheduler_at(stage: Stage, node: Node) -> Any:
    """A scheduler that reaches this node alone, past its proxies; to be closed."""
    url = urlsplit(node.url)._replace(path=urlsplit(stage.url).path).geturl()
    return closing(Scheduler(url, allow=["tests.chaos.jobs"], options=Options(failover_patience=PATIENCE)))


def _ask_a_standby(stage: Stage, cluster: Patroni) -> None:
    """A standby reads, and says of every submission that it takes none."""
    primary = cluster.primary()
    standby = next(node for node in cluster.nodes if node is not primary)
    with _scheduler_at(stage, standby) as scheduler:
        scheduler.jobs.counts()
        stage.broken += [
            f"a standby that was asked to write said {answer!r}"
            for answer in _answers(stage, scheduler)
            if not isinstance(answer, StoreReadOnly)
        ]


@contextmanager
def _clients_of(stage: Stage, node: Node, answers: list[int | None]) -> Iterator[None]:
    """Clients that reach this node as before, and submit to it."""
    over = threading.Event()

    def submit() -> None:
        with _scheduler_at(stage, node) as scheduler:
            while not over.wait(0.1):
                answers.append(stage.submit(jobs.pay, by=scheduler))

    threads = [threading.Thread(target=submit, daemon=True) for _ in range(INSIDE)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def _answers(stage: Stage, scheduler: Scheduler) -> list[Exception | None]:
    """What submissions of one job, of many, and of a chain raise, all asked at once; None for one that is acknowledged."""
    one, first, second, *many = numbers = stage.take_numbers(23)
    stage.refused += numbers  # nothing is promised for them, but none may run twice
    submissions: list[Callable[[], object]] = [
        lambda: scheduler.enqueue(jobs.pay, stage.book, one).submit(),
        lambda: scheduler.enqueue_many(jobs.pay, [(stage.book, number) for number in many]),
        lambda: scheduler.enqueue(jobs.pay, stage.book, first).then(jobs.pay, stage.book, second).submit(),
    ]
    answers: list[Exception | None] = []

    def ask(submit: Callable[[], object]) -> None:
        try:
            submit()
        except Exception as error:  # in a thread, it would be lost
            answers.append(error)
        else:
            answers.append(None)

    threads = [threading.Thread(target=ask, args=(submit,), daemon=True) for submit in submissions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _judge(stage: Stage, answers: list[Exception | None]) -> None:
    for answer in answers:
        if answer is None:
            stage.broken.append("a submission was acknowledged that no standby had")
        elif not isinstance(answer, SubmissionBlocked | StoreUnavailable):
            stage.broken.append(f"a submission that waits for a standby raised {answer!r}")
        elif " key" in str(answer):
            stage.broken.append(f"the refusal blames a key, and there is none: {answer}")
        else:
            stage.notes.append(f"{type(answer).__name__}: {answer}")


def _found_late(stage: Stage) -> float:
    """Seconds from the commit of a job that was due long before, to its start."""
    with psycopg.connect(stage.url) as connection:
        number = stage.submit(jobs.pay, within=connection)
        time.sleep(LATE)
        connection.commit()
    committed = time.monotonic()

    def starts() -> list[float]:
        found = diary.read(stage.book)
        return [entry.at for entry in found if entry.verb == "start" and entry.number == number]

    until(
        lambda: bool(starts()), FOUND_WITHIN, f"job {number} was committed and is not found:\n{stage.logs()}"
    )
    return starts()[0] - committed


def _scenarios(way: Way, suffix: str) -> list[Scenario]:
    plays = {
        "switchover": switchover,
        "kill-primary": kill_primary,
        "freeze-primary": freeze_primary,
        "partition": partition,
    }
    return [_scenario(name + suffix, play, way) for name, play in plays.items()]


def _scenario(name: str, play: Callable[[Stage, int], None], way: Way) -> Scenario:
    return Scenario(
        name,
        play,
        rounds=3,
        server=partial(Patroni, way=way),
        options=Options(failover_patience=PATIENCE),
        left_out=only("postgresql", reason="Patroni is PostgreSQL's"),
    )


SCENARIOS = [
    *_scenarios("haproxy", ""),
    *_scenarios("multihost", "-multihost"),
    _scenario("silent-standby", silent_standby, "haproxy"),
    # HAProxy would take a primary that stands still for a dead one, and cut whoever waits.
    _scenario("stalled-primary", stalled_primary, "multihost"),
]
