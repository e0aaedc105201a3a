"""The one statement that claims fairness keys on PostgreSQL: exactly the turns that a slow count gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from ratchet.model.claim import party_of
from ratchet.model.job import StreamKey
from ratchet.stores.sql.dialects.postgresql_claims import PostgresqlClaimPlan
from ratchet.stores.sql.store import SqlStore, open_store
from ratchet.stores.turns import take_turns
from tests.unit.stores.backlog import NOW, Waiting, claim, in_order, insert, request

KEYS = [
    StreamKey(),
    *(StreamKey(fairness_key=key) for key in ("ann", "Bob", "zoé", "日本")),
    StreamKey(fairness_key="ann", queue="mail"),
]
BOOSTS = (timedelta(minutes=15), timedelta(minutes=1), None)


@pytest.fixture
def store(postgresql_url: str) -> Iterator[SqlStore]:
    store = open_store(postgresql_url)
    store.migrate()
    yield store
    store.close()


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
        plan._turns.expect(request())
        expected = turns(list(waiting.items()), limit, after, boost)
        found = [job.job_id for job in claim(store, limit, after=after, boost_interval=boost)]
        assert found == expected, (number, limit, after, boost)
        for job_id in found:
            del waiting[job_id]
