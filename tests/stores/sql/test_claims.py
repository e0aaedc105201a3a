"""The claim: exactly the order of a full sort, whatever is closed or limited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratchet.model.claim import ClaimRequest
from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.stores.levels import Level
from ratchet.stores.sql.claiming.gates import choose
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.postgresql import claims as postgresql_claims
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, Waiting, claim, in_order, insert, request, spread
from tests.stores.sql_stores import SqlSteps

KEYS = (
    StreamKey(),
    StreamKey(queue="emails"),
    StreamKey(resource="gateway"),
    StreamKey(resource="gateway", limit_key="ann"),
    StreamKey(limit_key="ann"),
)

BOOSTS = (None, timedelta(minutes=15), timedelta(minutes=1), timedelta(microseconds=3))


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mysql"])
def store(request: Any) -> Iterator[SqlStore]:
    if request.param == "sqlite":
        store = open_store("sqlite:///:memory:")
    else:
        server = request.getfixturevalue(
            "postgresql_server" if request.param == "postgresql" else "mariadb_server"
        )
        url = server.create_database()
        store = open_store(url)
    store.migrate()
    yield store
    store.close()
    if request.param != "sqlite":
        server.drop_database(url)


@pytest.fixture
def postgresql(postgresql_url: str) -> Iterator[SqlStore]:
    """A store in a database of its own."""
    store = open_store(postgresql_url)
    store.migrate()
    yield store
    store.close()


def empty(store: SqlStore) -> None:
    tables = ("scheduler_job_queue", "scheduler_job", "scheduler_resource_limit", "scheduler_resource_permit")
    store.database.run(lambda session: [session.execute(f"DELETE FROM {table}") for table in tables])


def waiting(keys: tuple[StreamKey, ...]) -> st.SearchStrategy[list[Waiting]]:
    # few distinct times, some of them a whole number of intervals away: ties and edges, not a smooth spread
    ago = st.one_of(
        st.sampled_from([0, 1, 2, 3, 59_999_999, 60_000_000, 60_000_001, 900_000_000, 2_700_000_000, -1]),
        st.integers(0, 4_000_000_000),
    )
    due_at = ago.map(lambda micros: NOW - timedelta(microseconds=micros))
    return st.lists(st.tuples(st.integers(0, 4), due_at, st.sampled_from(keys)), max_size=40)


class TestOrder:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        jobs=waiting(KEYS),
        limits=st.lists(st.integers(1, 12), min_size=1),
        boost=st.sampled_from(BOOSTS),
        data=st.data(),
    )
    def test_exactly_that_of_a_full_sort(
        self, store: SqlStore, jobs: list[Waiting], limits: list[int], boost: timedelta | None, data: Any
    ) -> None:
        """Whatever waits, claimed in portions of any size, it comes out as a full sort would have it."""
        empty(store)
        ids = insert(store, jobs)
        expected = in_order(list(zip(ids, jobs, strict=True)), boost)
        claimed: list[UUID] = []
        while batch := claim(store, limits[len(claimed) % len(limits)], boost_interval=boost):
            claimed += [found.job_id for found in batch]
        assert claimed == expected

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        jobs=waiting(KEYS),
        gateway=st.none() | st.integers(0, 6),
        ann=st.none() | st.integers(0, 6),
        limit=st.integers(1, 50),
        boost=st.sampled_from(BOOSTS),
    )
    def test_limits_are_spent_in_that_order(
        self,
        store: SqlStore,
        jobs: list[Waiting],
        gateway: int | None,
        ann: int | None,
        limit: int,
        boost: timedelta | None,
    ) -> None:
        """A job is taken exactly if, coming to it in order, every limit that it has is not used up yet."""
        empty(store)
        left = {"gateway": gateway, "ann": ann}
        for name, most in left.items():
            if most is not None:
                store.set_limit(name, concurrent=most, now=NOW)
        ids = insert(store, jobs)
        streams = {job_id: key for job_id, (_, _, key) in zip(ids, jobs, strict=True)}
        expected: list[UUID] = []
        for job_id in in_order(list(zip(ids, jobs, strict=True)), boost):
            names = {streams[job_id].resource, streams[job_id].limit_key} - {None}
            if len(expected) < limit and all(left[name] is None or left[name] > 0 for name in names):
                expected.append(job_id)
                for name in names:
                    left[name] = None if left[name] is None else left[name] - 1
        claimed = [found.job_id for found in claim(store, limit, boost_interval=boost)]
        assert claimed == expected
        held = {record.name: record.held for record in store.limits()}
        assert held == {
            name: most - left[name] for name, most in (("gateway", gateway), ("ann", ann)) if most is not None
        }

    def test_many_streams_and_large_claims(self, store: SqlStore) -> None:
        """Also where the first look into each level is far from enough: 3,000 jobs, 30 streams, claims of 500."""
        empty(store)
        jobs = spread(3000, queues=30)
        ids = insert(store, jobs)
        claimed: list[UUID] = []
        while batch := claim(store, 500):
            claimed += [found.job_id for found in batch]
        assert claimed == in_order(list(zip(ids, jobs, strict=True)), timedelta(minutes=15))


@given(
    ranks=st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=8),
    gated=st.lists(st.booleans(), min_size=8, max_size=8),
    limit=st.integers(1, 60),
    allowance=st.integers(0, 10),
)
def test_choosing_reads_no_more_than_it_needs(
    ranks: list[list[int]], gated: list[bool], limit: int, allowance: int
) -> None:
    """The choice is that of a full merge, and of no level much more is read than the largest possible share."""
    sorted_ranks = [
        [(rank, number, (number, i)) for number, rank in enumerate(sorted(level))]
        for i, level in enumerate(ranks)
    ]
    candidates = [
        Level(i, 0, ("gate",), allowance) if gated[i] else Level(i, 0) for i in range(len(sorted_ranks))
    ]
    reads = 0

    def read(wanted: Any) -> None:
        nonlocal reads
        for level, count in wanted:
            position = len(level.ranks)
            fresh = sorted_ranks[level.stream_id][position : position + count]
            level.ranks += fresh
            level.ended = len(fresh) < count
            reads += len(fresh)

    expected, left = [], allowance
    for rank in sorted(rank for level in sorted_ranks for rank in level):
        behind_gate = gated[rank[2][1]]
        if len(expected) < limit and (left > 0 or not behind_gate):
            expected.append(rank)
            left -= behind_gate
    chosen = choose(candidates, limit, {"gate": allowance}, read)
    assert chosen == expected
    assert reads <= len(candidates) * max(4, 4 * limit)


class TestGates:
    def test_concurrency_counts_what_runs(self, store: SqlStore) -> None:
        """With two permits two jobs run; when one is freed the next one may."""
        empty(store)
        store.set_limit("gateway", concurrent=2, now=NOW)
        ids = insert(
            store, [(2, NOW - timedelta(seconds=9 - i), StreamKey(resource="gateway")) for i in range(4)]
        )
        first = claim(store)
        assert [found.job_id for found in first] == ids[:2]
        assert claim(store) == []
        assert store.release_permits(first[:1]) == 1
        assert [found.job_id for found in claim(store)] == ids[2:3]

    def test_a_closed_gate_hides_its_jobs_only(self, store: SqlStore) -> None:
        """Jobs behind a limit that is used up do not keep the others from running."""
        empty(store)
        store.set_limit("gateway", concurrent=0, now=NOW)
        insert(store, [(4, NOW, StreamKey(resource="gateway"))] * 5)
        (free,) = insert(store, [(0, NOW, StreamKey())])
        assert [found.job_id for found in claim(store)] == [free]
        assert store.next_due_at(request(), now=NOW) is None

    def test_rate(self, store: SqlStore) -> None:
        """Ten a minute: ten start at once, and no more within the minute; the poller is told when."""
        empty(store)
        store.set_limit("gateway", rate=10, period=timedelta(minutes=1), now=NOW)
        insert(store, [(2, NOW, StreamKey(resource="gateway"))] * 15)
        assert len(claim(store, 50)) == 10
        assert claim(store, 50) == []
        assert store.next_due_at(request(), now=NOW) == NOW + timedelta(minutes=1)
        later = NOW + timedelta(minutes=1)
        assert store.claim_next_batch_optimized(request(50), now=later - timedelta(microseconds=1)) == []
        assert len(store.claim_next_batch_optimized(request(1), now=later)) == 1
        assert len(store.claim_next_batch_optimized(request(50), now=later + timedelta(seconds=12))) == 4

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(jobs=waiting(KEYS), gateway=st.none() | st.integers(0, 4), rate=st.none() | st.integers(1, 3))
    def test_explain_is_empty_exactly_for_what_a_claim_returns(
        self, store: SqlStore, jobs: list[Waiting], gateway: int | None, rate: int | None
    ) -> None:
        """The reasons come from the claim's own predicates, down to whose turn it is behind a limit."""
        empty(store)
        if gateway is not None:
            store.set_limit("gateway", concurrent=gateway, now=NOW)
        if rate is not None:
            store.set_limit("ann", rate=rate, period=timedelta(minutes=1), now=NOW)
        ids = insert(store, jobs)
        without_reason = {job_id for job_id in ids if not store.explain(job_id, now=NOW)}
        assert without_reason == {found.job_id for found in claim(store, 1000)}

    def test_a_busy_limit_closes_and_does_not_block(self, postgresql: SqlStore, postgresql_url: str) -> None:
        """While another node counts a limit, a claim goes around it instead of waiting."""
        store = postgresql
        store.set_limit("gateway", concurrent=5, now=NOW)
        insert(store, [(4, NOW, StreamKey(resource="gateway"))])
        (free,) = insert(store, [(0, NOW, StreamKey())])
        with psycopg.connect(postgresql_url) as other:
            other.execute("SELECT 1 FROM scheduler_resource_limit FOR UPDATE")
            assert [found.job_id for found in claim(store)] == [free]
        assert len(claim(store)) == 1


class TestNothingToDo:
    @pytest.mark.parametrize("gated", [False, True])
    def test_an_idle_claim_writes_nothing(self, postgresql: SqlStore, gated: bool) -> None:
        """Not even a transaction id is used up by a claim that finds nothing, with limits or without."""
        store = postgresql
        key = StreamKey(resource="gateway") if gated else StreamKey()
        insert(store, [(2, NOW + timedelta(hours=1), key)] * 100)
        if gated:
            store.set_limit("gateway", concurrent=0, now=NOW)
            insert(store, [(2, NOW, key)])
        plan = postgresql_claims.PostgresqlClaimPlan()

        def work(session: Session) -> tuple[list[Any], bool]:
            found = plan._claim(session, request(), NOW)
            return found, session.value("SELECT pg_current_xact_id_if_assigned() IS NULL AS is_clean")

        assert store.database.run(work) == ([], True)

    def test_an_idle_claim_takes_no_write_lock(self, tmp_path: Path) -> None:
        """On SQLite it succeeds while somebody else is in the middle of a long write."""
        store = open_store(f"sqlite:///{tmp_path / 'x.db'}")
        other = open_store(f"sqlite:///{tmp_path / 'x.db'}")
        insert(store, [(2, NOW + timedelta(hours=1), StreamKey())] * 100)
        with closing(store), closing(other), other.begin():
            assert claim(store) == []
            assert store.next_due_at(request(), now=NOW) == NOW + timedelta(hours=1)


class TestWhoTakesWhat:
    def test_lanes_and_suspects(self, store: SqlStore) -> None:
        """The claim walks the streams of its own lane, and suspects only when asked for them."""
        empty(store)
        keys = [StreamKey(lane=lane, suspect=suspect) for lane in Lane for suspect in (False, True)]
        ids = dict(zip(keys, insert(store, [(2, NOW, key) for key in keys]), strict=True))
        for key in Random(3).sample(keys, len(keys)):
            assert [c.job_id for c in claim(store, lane=key.lane, suspects=key.suspect)] == [ids[key]]

    def test_a_claim_is_marked_with_its_token(self, store: SqlStore) -> None:
        """Both kinds of claim write node, token and time on the row; bodies follow the token."""
        empty(store)
        insert(store, [(2, NOW, StreamKey(queue="emails"))] * 2)
        asked: ClaimRequest = request(1)
        (first,) = store.claim_next_batch(asked, now=NOW)
        (second,) = claim(store)
        assert (first.claim.claim_id, first.claim.claimed_at, first.body.queue) == (
            asked.claim_id,
            NOW,
            "emails",
        )
        assert store.claims_of("n1") == {
            first.claim.job_id: asked.claim_id,
            second.job_id: second.claim_id,
        }
        assert set(store.bodies([first.claim, second])) == {first.claim.job_id, second.job_id}
        mixed = [type(second)(**{**_fields(second), "claim_id": asked.claim_id})]
        assert store.bodies(mixed) == {}


def _fields(claim: Any) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in claim.__struct_fields__}


class TestAnswer:
    @pytest.mark.parametrize("steps", ["file", "postgresql", "mysql"], indirect=True)
    def test_who_holds_jobs_is_not_told_that_nothing_happened(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The queue is new to this process, and the server is gone when it asks for it, after the claim: the outcome is unknown."""
        job_id = steps.submit(queue="new")
        other = steps.another()
        other.counts()

        taking = other.database.dialect.claim_plan.claim

        def gone(work: object) -> None:
            raise StoreUnavailable("the server is gone")

        def taken(*arguments: Any) -> list[Any]:
            found = taking(*arguments)
            monkeypatch.setattr(other.database, "read", gone)
            return found

        monkeypatch.setattr(other.database.dialect.claim_plan, "claim", taken)
        asked = steps.request(1)
        with pytest.raises(CommitUnknown, match="jobs were claimed, but could not be read"):
            other.claim_next_batch(asked, now=steps.now)
        assert steps.store.claims_of(asked.node_id) == {job_id: asked.claim_id}
