"""
What must hold where several servers take writes: asked through three nodes of a Galera cluster at the same moment.

    python -m tests.stores.mysql.galera_rounds --rounds 300

Each round lets two or three stores, each on a node of its own, do what a lock of a row would keep apart on one server.
Their transactions wait for each other before the first of them commits, so each round is the race. Prints, for each
invariant, the rounds in which it was violated and what an act raised.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ratchet.model.errors import is_of_store
from ratchet.model.identifiers import new_id
from ratchet.model.job import SignalWait
from ratchet.model.status import Busy, JobStatus
from ratchet.stores.sql.store import open_store
from ratchet.tck.race import Finish, race
from tests.services.galera import GaleraCluster
from tests.stores.mysql_server import ask, connect
from tests.stores.sql_stores import SqlSteps

Act = tuple[SqlSteps, Callable[[], Any]]
#: One round; what was wrong, None: nothing.
Round = Callable[["Nodes"], str | None]

#: Seconds that a transaction waits for the others to be about to commit; they may be waiting for a lock of this one.
_MEETING = 3.0


@dataclass
class Nodes:
    """A store on each node, all on one database."""

    urls: Sequence[str]
    steps: Sequence[SqlSteps]
    #: What acts have raised that is no answer, by the name of the error.
    errors: Counter[str] = field(default_factory=Counter)

    @classmethod
    @contextmanager
    def on(cls, urls: Sequence[str]) -> Iterator[Nodes]:
        """Stores on these URLs; the first of them makes the schema."""
        with ExitStack() as stack:
            steps: list[SqlSteps] = []
            for url in urls:
                steps.append(SqlSteps(url))
                stack.callback(steps[-1].close)
            yield cls(urls, steps)

    def at_once(self, *acts: Act) -> list[Finish[Any]]:
        """Run the acts, each in a thread of its own; the first transaction of each commits when all are about to."""
        gate = threading.Barrier(len(acts))
        with ExitStack() as stack:
            for steps, _ in acts:
                stack.enter_context(_meeting(steps, gate))
            finishes = race([act for _, act in acts])
        self.errors.update(type(one.error).__name__ for one in finishes if one.error is not None)
        return finishes

    def __getitem__(self, number: int) -> SqlSteps:
        return self.steps[number]

    def __iter__(self) -> Iterator[SqlSteps]:
        return iter(self.steps)


@contextmanager
def _meeting(steps: SqlSteps, gate: threading.Barrier) -> Iterator[None]:
    dialect: Any = steps.store.database.dialect
    commit, has_met = dialect._commit, False

    def meet(session: Any, *, for_user: bool) -> None:
        nonlocal has_met
        if not has_met:
            has_met = True
            with suppress(threading.BrokenBarrierError):
                gate.wait(_MEETING)
        commit(session, for_user=for_user)

    dialect._commit = meet
    try:
        yield
    finally:
        del dialect._commit


# --- jobs that wait for others ------------------------------------------------------------------


def join(nodes: Nodes) -> str | None:
    """Three parents of a join end at once, each through its own node: the join is released."""
    first = nodes[0]
    parents, child = first.specs(3), first.child(needs=3)
    first.insert([*parents, child], [first.edge(parent, child) for parent in parents])
    claims = first.claim()
    nodes.at_once(*((steps, _ending(steps, claim)) for steps, claim in zip(nodes, claims, strict=True)))
    found = first.status(child.job_id)
    first.end_all(first.claim())
    return None if found is JobStatus.PENDING else f"the join is {found}"


def late_dependant(nodes: Nodes) -> str | None:
    """A job that has dependants ends while another one is added through another node: it is released too."""
    first, second, _ = nodes
    parent, early, late = first.spec(), first.child(), first.child()
    first.insert([parent, early], [first.edge(parent, early)])
    (claim,) = first.claim()
    add = lambda: second.insert([late], [second.edge(parent, late)])  # noqa: E731 - two words
    nodes.at_once((first, _ending(first, claim)), (second, add))
    found = first.statuses([early.job_id, late.job_id])
    first.end_all(first.claim())
    return None if found == [JobStatus.PENDING] * 2 else f"the dependants are {found}"


def signal_and_parent(nodes: Nodes) -> str | None:
    """The last parent of a job ends while the signal that it waits for too is sent through another node."""
    first, second, _ = nodes
    key = f"approval-{new_id()}"
    parent, child = first.spec(), first.child(signal=SignalWait(key=key))
    first.insert([parent, child], [first.edge(parent, child)])
    (claim,) = first.claim()
    send = lambda: second.store.send_signal(second.signal(key), now=second.now)  # noqa: E731
    nodes.at_once((first, _ending(first, claim)), (second, send))
    found = first.status(child.job_id)
    first.end_all(first.claim())
    return None if found is JobStatus.PENDING else f"the job is {found}"


def signal_and_waiter(nodes: Nodes) -> str | None:
    """A signal is sent while the job that waits for it is submitted through another node: it gets it."""
    first, second, _ = nodes
    key = f"approval-{new_id()}"
    first.store.send_signal(first.signal(key, keep_until=first.now), now=first.now)  # makes the key's row
    waiter = first.spec(status=JobStatus.WAITING, signal=SignalWait(key=key))
    send = lambda: second.store.send_signal(second.signal(key), now=second.now)  # noqa: E731
    nodes.at_once((first, lambda: first.insert([waiter])), (second, send))
    found = first.status(waiter.job_id)
    first.end_all(first.claim())
    return None if found is JobStatus.PENDING else f"the job is {found}"


def batch(nodes: Nodes) -> str | None:
    """The last children of a batch end at once, through three nodes: each is counted, and the parent is released."""
    first = nodes[0]
    made, _ = first.batch_of(3)
    claims = first.claim()
    nodes.at_once(*((steps, _ending(steps, claim)) for steps, claim in zip(nodes, claims, strict=True)))
    record = first.store.batch(made.batch_id)
    assert record is not None
    found = first.status(made.parent.job_id)
    first.end_all(first.claim())
    if record.completed == 3 and found is JobStatus.PENDING:
        return None
    return f"{record.completed} of 3 are counted, and the parent is {found}"


def batch_in_transactions(nodes: Nodes) -> str | None:
    """The same inside transactions of the jobs' own: who loses is told that it was the store, and tries again."""
    first = nodes[0]
    made, _ = first.batch_of(3)
    claims = first.claim()

    def ending(steps: SqlSteps, claim: Any) -> Callable[[], None]:
        def end() -> None:
            for _ in range(50):
                try:
                    with steps.store.begin() as connection:
                        steps.store.complete([steps.completion(claim)], now=steps.now, within=connection)
                    return
                except Exception as error:
                    if not is_of_store(error) and type(error).__name__ != "Conflict":
                        raise
            raise AssertionError("50 conflicts")

        return end

    finishes = nodes.at_once(
        *((steps, ending(steps, claim)) for steps, claim in zip(nodes, claims, strict=True))
    )
    record = first.store.batch(made.batch_id)
    assert record is not None
    first.end_all(first.claim())
    raised = [repr(one.error) for one in finishes if one.error is not None]
    return None if record.completed == 3 and not raised else f"{record.completed} of 3 are counted: {raised}"


# --- what may be taken --------------------------------------------------------------------------


def limit(nodes: Nodes) -> str | None:
    """Three nodes claim different jobs behind a limit of two: two get a permit."""
    return _claimed_behind_limit(nodes, "resource")


def concurrency_key(nodes: Nodes) -> str | None:
    """The same for a concurrency key."""
    return _claimed_behind_limit(nodes, "limit_key")


def _claimed_behind_limit(nodes: Nodes, gate: str) -> str | None:
    first, name = nodes[0], f"press-{gate}"
    if not any(one.name == name for one in first.store.limits()):
        first.store.set_limit(name, concurrent=2, now=first.now)
    queues = "abc"
    first.insert([first.spec(queue=queue, **{gate: name}) for queue in queues for _ in range(3)])
    acts = [
        (steps, lambda steps=steps, queue=queue: steps.claim(2, queues=frozenset(queue)))
        for steps, queue in zip(nodes, queues, strict=True)
    ]
    finishes = nodes.at_once(*acts)
    claims = [claim for one in finishes for claim in one.value or ()]
    held = sum(one.held for one in first.store.limits() if one.name == name)
    first.end_all(claims)
    while rest := first.claim():
        first.end_all(rest)
    if len(claims) <= 2 and held <= 2:
        return None
    return f"{len(claims)} jobs were claimed, {held} permits given out"


def rate(nodes: Nodes) -> str | None:
    """Three nodes claim different jobs behind a rate of two: two may start at once."""
    first, name = nodes[0], f"mail-{new_id()}"
    first.store.set_limit(name, rate=2, period=timedelta(hours=1), now=first.now)
    queues = "abc"
    first.insert([first.spec(queue=queue, resource=name) for queue in queues for _ in range(3)])
    acts = [
        (steps, lambda steps=steps, queue=queue: steps.claim(2, queues=frozenset(queue)))
        for steps, queue in zip(nodes, queues, strict=True)
    ]
    claims = [claim for one in nodes.at_once(*acts) for claim in one.value or ()]
    first.store.remove_limit(name, now=first.now)
    first.end_all([*claims, *first.claim()])
    return None if len(claims) <= 2 else f"{len(claims)} jobs were claimed"


def claims(nodes: Nodes) -> str | None:
    """Three nodes claim from one queue: each job is claimed, and by one of them only."""
    first = nodes[0]
    ids = set(first.submit_many(6))
    finishes = nodes.at_once(*((steps, lambda steps=steps: steps.claim(2)) for steps in nodes))
    taken = [claim for one in finishes for claim in one.value or ()]
    answers = [one.won for one in first.end_all(taken)]
    first.end_all(first.claim())
    found = {claim.job_id for claim in taken}
    if len(found) == len(taken) and found <= ids and all(answers):
        return None
    return f"{len(taken)} claims of {len(found)} jobs, {answers.count(False)} of them refused"


def keys(nodes: Nodes) -> str | None:
    """Jobs of one business key and one idempotency key are submitted through three nodes: there is one job."""
    first = nodes[0]
    business, idempotency = str(new_id()), str(new_id())
    specs = {
        steps: [
            steps.spec(business_key=business, busy=Busy.RETURN),
            steps.spec(idempotency_key=idempotency),
        ]
        for steps in nodes
    }
    finishes = nodes.at_once(
        *((steps, lambda steps=steps: steps.store.insert(specs[steps], now=steps.now)) for steps in nodes)
    )
    answers = [tuple(one.job_id for one in finish.value or ()) for finish in finishes]
    first.end_all(first.claim())
    return None if len(set(answers)) == 1 else f"the answers differ: {answers}"


def fires(nodes: Nodes) -> str | None:
    """A schedule is fired by three nodes: one of them records it."""
    first, name = nodes[0], f"nightly-{new_id()}"
    first.store.upsert_schedule(first.schedule_spec(name), now=first.now)
    finishes = nodes.at_once(
        *(
            (
                steps,
                lambda steps=steps: steps.store.advance(
                    name,
                    expected=steps.now,
                    fires=[steps.fire(name)],
                    next_fire_at=steps.after(days=1),
                    now=steps.now,
                ),
            )
            for steps in nodes
        )
    )
    first.end_all(first.claim())
    first.store.remove_schedule(name)
    fired = sum(one.value is not None for one in finishes if one.error is None)
    return None if fired == 1 else f"{fired} nodes fired"


# --- what a caller was told ---------------------------------------------------------------------


def reads(nodes: Nodes) -> str | None:
    """What was acknowledged through one node is found through the others, and can have dependants there."""
    first, second, third = nodes
    job_id = first.submit()
    if third.store.get(job_id) is None:
        return "a job that was acknowledged is not found"
    parent = second.submit()
    child = third.child()
    third.insert([child], [third.edge(parent, child)])
    if len(first.store.cancel(parent, reason="enough", now=first.now)) != 2:
        return "a job and its dependant that were acknowledged are not canceled"
    first.end_all(first.claim())
    return None


def migrations(nodes: Nodes) -> str | None:
    """The schema of an empty database is made through three nodes at once: each succeeds, each script is applied once."""
    name = f"migrated_{new_id().hex}"
    with closing(connect(nodes.urls[0])) as connection:
        ask(connection, f"CREATE DATABASE {name}")
        stores = [open_store(f"{url.rpartition('/')[0]}/{name}") for url in nodes.urls]
        finishes = race([store.migrate for store in stores])
        applied = sorted(script for one in finishes for script in one.value or ())
        known = [script for script, _ in stores[0].migrator.status()]
        for store in stores:
            store.close()
        ask(connection, f"DROP DATABASE {name}")
    raised = [repr(one.error) for one in finishes if one.error is not None]
    return None if applied == known and not raised else f"applied were {applied}: {raised}"


def _ending(steps: SqlSteps, claim: Any) -> Callable[[], Any]:
    return lambda: steps.end(claim)


ROUNDS: Mapping[str, Round] = {
    act.__name__: act
    for act in (
        join,
        late_dependant,
        signal_and_parent,
        signal_and_waiter,
        batch,
        batch_in_transactions,
        limit,
        concurrency_key,
        rate,
        claims,
        keys,
        fires,
        reads,
        migrations,
    )
}


def play(nodes: Nodes, name: str, count: int) -> tuple[int, list[str]]:
    """Play so many rounds; how many were violated, and what was said of the first of them."""
    said = [wrong for _ in range(count) if (wrong := ROUNDS[name](nodes)) is not None]
    return len(said), said[:3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stores.mysql.galera_rounds")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", help="names, separated by commas")
    chosen = parser.parse_args()
    names = chosen.only.split(",") if chosen.only else list(ROUNDS)
    violated = 0
    with GaleraCluster() as cluster, Nodes.on(cluster.create_database()) as nodes:
        for name in names:
            begun = time.monotonic()
            nodes.errors.clear()
            wrong, said = play(nodes, name, chosen.rounds)
            violated += wrong
            line = {
                "invariant": name,
                "rounds": chosen.rounds,
                "violated": wrong,
                "said": said,
                "raised": dict(nodes.errors),
                "seconds": round(time.monotonic() - begun, 1),
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
