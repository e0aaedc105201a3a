"""The one statement that claims fairness keys on PostgreSQL: exactly the turns that a slow count gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from uuid import UUID

import psycopg
import pytest

from ratchet.model.claim import party_of
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import Priority
from ratchet.stores.fairness import take_turns
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.store import SqlStore
from tests.stores.backlog import NOW, Waiting, claim, in_order, insert, request

KEYS = [
    StreamKey(),
    *(StreamKey(fairness_key=key) for key in ("ann", "Bob", "zoé", "日本")),
    StreamKey(fairness_key="ann", queue="mail"),
]
BOOSTS = (timedelta(minutes=15), timedelta(minutes=1), None)


def backlog(dice: Random) -> list[Waiting]:
    """Jobs of a few keys, some with many and some with few, of all priorities, often due at the same time."""
    chosen = dice.choices(
        KEYS, weights=[dice.choice([0, 1, 10]) for _ in KEYS[1:]] + [1], k=dice.randrange(60)
    )
    return [
        (dice.randrange(5), NOW - timedelta(seconds=dice.choice([-1, 0, 0, 60, dice.randrange(3600)])), key)
        for key in chosen
    ]


def turns(
    jobs: list[tuple[UUID, Waiting]], limit: int, after: str | None, boost: timedelta | None
) -> list[UUID]:
    """What a claim should give, the slow way."""
    lines: dict[str, list[tuple[UUID, Waiting]]] = {}
    for job in jobs:
        lines.setdefault(party_of(job[1][2].fairness_key), []).append(job)
    ordered = {party: in_order(line, boost) for party, line in lines.items()}
    return [job_id for _, job_id in take_turns(ordered, limit, after)[0]]


def test_exactly_the_turns(store: SqlStore) -> None:
    """Whoever has how many jobs, whoever was served last, however large the claim: those jobs, in that order."""
    plan = store.database.dialect.claim_plan
    assert isinstance(plan, PostgresqlClaimPlan)
    dice = Random(11)
    waiting: dict[UUID, Waiting] = {}
    for number in range(40):
        more = backlog(dice)
        waiting |= dict(zip(insert(store, more), more, strict=True)) if more else {}
        after, boost = dice.choice([None, "", "Bob", "ann", "m", "日本"]), BOOSTS[number % 3]
        limit = dice.choice([1, 3, 7, 20, 50, 200])
        plan.fairness.expect(request())
        expected = turns(list(waiting.items()), limit, after, boost)
        found = [job.job_id for job in claim(store, limit, after=after, boost_interval=boost)]
        assert found == expected, (number, limit, after, boost)
        for job_id in found:
            del waiting[job_id]


@pytest.fixture
def busy(postgresql_url: str) -> Iterator[psycopg.Connection]:
    """Another claim in the middle of its transaction: what it locks, it keeps until the end of the test."""
    with psycopg.connect(postgresql_url) as connection:
        yield connection
        connection.rollback()


def lock(busy: psycopg.Connection, ids: list[UUID]) -> None:
    busy.execute("SELECT 1 FROM scheduler_job_queue WHERE job_id = ANY(%s) FOR UPDATE", (ids,))


def of_each(store: SqlStore, **counts: int) -> dict[str, list[UUID]]:
    """So many jobs of each key, in the order of their claims."""
    return {
        key: insert(store, [(2, NOW, StreamKey(fairness_key=key))] * count) for key, count in counts.items()
    }


class TestAnotherClaimAtTheSameMoment:
    def test_its_jobs_are_stepped_over(self, store: SqlStore, busy: psycopg.Connection) -> None:
        """The next ones of the same keys are taken instead, as many and in the same turns."""
        lines = of_each(store, ann=20, bob=20, carl=20)
        store.database.dialect.claim_plan.fairness.expect(request())  # type: ignore[attr-defined]
        lock(busy, [job_id for line in lines.values() for job_id in line[:4]])
        left = {key: line[4:] for key, line in lines.items()}
        expected = [job_id for _, job_id in take_turns(left, 12, "ann")[0]]
        assert [job.job_id for job in claim(store, 12, after="ann")] == expected

    @pytest.mark.parametrize("limit", [2, 3, 10])
    def test_the_others_have_the_turns_of_a_key_that_is_taken(
        self, store: SqlStore, busy: psycopg.Connection, limit: int
    ) -> None:
        """However large the claim, it comes back full: what another one is just taking is made up for."""
        lines = of_each(store, ann=6, bob=20, carl=20, dora=1)
        store.database.dialect.claim_plan.fairness.expect(request())  # type: ignore[attr-defined]
        lock(busy, lines.pop("ann"))
        expected = [job_id for _, job_id in take_turns(lines, limit, None)[0]]
        assert [job.job_id for job in claim(store, limit)] == expected

    def test_several_branches_of_a_key(self, store: SqlStore, busy: psycopg.Connection) -> None:
        """What is taken of one priority is not made up for twice: no job comes back that was not asked for."""
        urgent = insert(store, [(4, NOW, StreamKey(fairness_key="ann"))] * 3)
        other = insert(store, [(1, NOW, StreamKey(fairness_key="ann"))] * 3)
        bob = insert(store, [(2, NOW, StreamKey(fairness_key="bob"))] * 9)
        store.database.dialect.claim_plan.fairness.expect(request())  # type: ignore[attr-defined]
        lock(busy, urgent[:1])
        found = [job.job_id for job in claim(store, 8)]
        assert found == [urgent[1], bob[0], urgent[2], bob[1], other[0], *bob[2:5]]


def test_a_branch_that_was_empty_is_found_when_it_fills(store: SqlStore) -> None:
    """Where the last claim saw nothing: a job of another priority, of a new key, of a key that had none left."""
    of_each(store, ann=20, bob=1)
    found = [claim(store, 3) for _ in range(3)]
    assert [len(jobs) for jobs in found] == [3, 3, 3]

    def submit(key: str, priority: Priority) -> UUID:
        spec = JobSpec(
            job_id=new_id(),
            target="shop:work",
            payload="{}",
            scheduled_at=NOW,
            priority=priority,
            stream=StreamKey(fairness_key=key),
        )
        store.insert([spec], now=NOW)
        return spec.job_id

    urgent = submit("ann", Priority.CRITICAL)
    assert [job.job_id for job in claim(store, 1)] == [urgent]
    later = [submit(key, priority) for key, priority in (("bob", Priority.LOW), ("carl", Priority.LOWEST))]
    assert [job.job_id for job in claim(store, 3, after="ann")][:2] == later
