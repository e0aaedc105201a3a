"""Where claims start to look on PostgreSQL: behind the jobs that are gone, and never behind one that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.decision import HandBack, Reschedule
from ratchet.model.job import StreamKey
from ratchet.model.status import Lane, Priority
from ratchet.stores.sql.dialects.postgresql import scan_start
from ratchet.stores.sql.dialects.postgresql.scan_start import BEGINNING, ScanStarts
from ratchet.stores.sql.store import SqlStore
from ratchet.tck.steps import OTHER_NODE
from tests.services.postgresql import PostgreSQL
from tests.stores import backlog
from tests.stores.sql_claim_plans import explain
from tests.stores.sql_stores import SqlSteps

LIMITED = [pytest.param({}, id="free"), pytest.param({"resource": "gateway"}, id="limited")]


class Shop(SqlSteps):
    """A store whose claims do not sweep, and another node beside it."""

    now = datetime(
        2026, 6, 1, 12, tzinfo=UTC
    )  # in the past of the server's clock, which no start ever passes

    def __init__(self, url: str) -> None:
        super().__init__(url)
        for table in ("job_queue", "job", "stream", "node", "resource_permit"):
            self.write(f"DELETE FROM scheduler_{table}")
        self.store.set_limit("gateway", concurrent=1000, now=self.now)
        self.other = self.another()

    def old(self, **changes: Any) -> UUID:
        """A job that has been due for longer than all others."""
        return self.submit(scheduled_at=self.after(hours=-2), **changes)

    def waits(self, **changes: Any) -> list[UUID]:
        """Jobs that have been due for an hour."""
        return self.submit_many(12, scheduled_at=self.after(hours=-1), **changes)

    def next_of_other(self, **changes: Any) -> UUID:
        """What the other node claims next."""
        (found,) = self.claim(1, store=self.other, node_id=OTHER_NODE, **changes)
        return found.job_id

    def starts_of_other(self, **changes: Any) -> int:
        """In how many levels the other node does not start at the beginning."""
        found = starts(self.other).of(self.request(**changes))
        return sum(start[3] > BEGINNING[0] for start in found)


@pytest.fixture(scope="module")
def url(postgresql_server: PostgreSQL) -> Iterator[str]:
    """A database for all tests here; each of them empties it."""
    url = postgresql_server.create_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(scan_start, "SWEEPING", 1e-12)
    monkeypatch.setattr(scan_start, "LONGEST_WITHOUT_SWEEP", float("inf"))
    with closing(Shop(url)) as shop:
        yield shop


def starts(store: SqlStore) -> ScanStarts:
    plan: Any = store.database.dialect.claim_plan
    found: ScanStarts = plan.starts
    return found


# --- ways back into the queue ---------------------------------------------------------------------


def handed_back(shop: Shop, claim: JobClaim) -> None:
    assert shop.store.hand_back([claim], now=shop.now) == 1


def answer_lost(shop: Shop, claim: JobClaim) -> None:
    assert shop.store.hand_back_unknown(claim.node_id, (), now=shop.now) == [claim.job_id]


def rescued(shop: Shop, claim: JobClaim) -> None:
    shop.register(claim.node_id)
    assert shop.rescue(claim.node_id) is not None


def said_goodbye(shop: Shop, claim: JobClaim) -> None:
    shop.register(claim.node_id)
    assert shop.store.deregister(claim.node_id, now=shop.now) == 1


def decided_back(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, HandBack())


def tried_again_in_the_past(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, shop.another_try(shop.after(hours=-2)))


def rescheduled_by_its_run(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, Reschedule(at=shop.after(hours=-2)))


def paused_and_resumed(shop: Shop, claim: JobClaim) -> None:
    handed_back(shop, claim)
    assert shop.store.pause(claim.job_id, now=shop.now)
    shop.next_of_other()
    assert shop.store.resume(claim.job_id, now=shop.now)


def rescheduled_by_hand(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, Reschedule(at=shop.after(hours=1)))
    shop.next_of_other()
    assert shop.store.reschedule(claim.job_id, shop.after(hours=-2), now=shop.now)


def given_another_priority(shop: Shop, claim: JobClaim) -> None:
    handed_back(shop, claim)
    assert shop.store.set_priority(claim.job_id, Priority.LOWEST, now=shop.now)
    assert shop.next_of_other(boost_interval=None) != claim.job_id
    assert shop.store.set_priority(claim.job_id, Priority.NORMAL, now=shop.now)


def held_back_and_settled(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, Reschedule(at=shop.after(hours=-2)), still_running=True)
    shop.next_of_other()
    shop.store.settle([claim], now=shop.now)


def held_back_and_lost(shop: Shop, claim: JobClaim) -> None:
    shop.end(claim, Reschedule(at=shop.after(hours=-2)), still_running=True)
    shop.next_of_other()
    shop.store.hand_back_unknown(claim.node_id, (), now=shop.now)


BACK: list[Callable[[Shop, JobClaim], None]] = [
    handed_back, answer_lost, rescued, said_goodbye, decided_back, tried_again_in_the_past, rescheduled_by_its_run,
    paused_and_resumed, rescheduled_by_hand, given_another_priority, held_back_and_settled, held_back_and_lost,
]  # fmt: skip


class TestBackdatedJobs:
    @pytest.mark.parametrize("stream", LIMITED)
    @pytest.mark.parametrize("back", BACK)
    def test_one_that_comes_back_is_next(
        self, shop: Shop, back: Callable[[Shop, JobClaim], None], stream: dict[str, str]
    ) -> None:
        """Whatever puts a job back before those that another node has seen: that node claims it next."""
        old = shop.old(**stream)
        shop.waits(**stream)
        (claim,) = shop.claim(1)
        assert claim.job_id == old
        assert shop.next_of_other() != old
        assert shop.starts_of_other() > 0
        back(shop, claim)
        assert shop.starts_of_other() > 0
        assert shop.next_of_other() == old

    @pytest.mark.parametrize("stream", LIMITED)
    @pytest.mark.parametrize("count", [1, 3, 100], ids=["one", "some", "bulk"])
    def test_new_ones_that_were_due_long_ago_are_next(
        self, shop: Shop, count: int, stream: dict[str, str]
    ) -> None:
        """Jobs submitted for a time in the past come before those that another node has seen."""
        shop.waits(**stream)
        shop.next_of_other()
        assert shop.starts_of_other() > 0
        late = shop.submit_many(count, scheduled_at=shop.after(hours=-2), **stream)
        assert shop.next_of_other() == late[0]

    def test_a_parked_one_is_seen_by_those_who_can_run_it(self, shop: Shop) -> None:
        """A job that is parked comes before what a node has seen in the stream of that target."""
        parked = {"parked_targets": frozenset({"shop:missing"})}
        shop.waits(parked_target="shop:missing")
        old = shop.old()
        (claim,) = shop.claim(1)
        assert claim.job_id == old
        assert shop.next_of_other(**parked) != old
        assert shop.store.park(claim, "shop:missing", now=shop.now)
        assert shop.next_of_other(**parked) == old

    def test_next_due_at_sees_them_too(self, shop: Shop) -> None:
        """The time of the earliest waiting job is that of one that came back."""
        shop.old()
        shop.waits()
        (claim,) = shop.claim(1)
        shop.next_of_other()
        assert shop.other.next_due_at(shop.request(), now=shop.now) == shop.after(hours=-1)
        handed_back(shop, claim)
        assert shop.other.next_due_at(shop.request(), now=shop.now) == shop.after(hours=-2)


class TestNewJobs:
    def test_they_touch_no_stream(self, shop: Shop) -> None:
        """Submissions that are due now do not wait for each other: none changes the row of its stream."""
        before = {stream.stream_id: stream.epoch for stream in shop.store.streams()}
        shop.submit()
        shop.submit_many(3)
        shop.submit_many(100)
        after = {stream.stream_id: stream.epoch for stream in shop.store.streams()}
        assert set(after.values()) == {0}
        assert before.items() <= after.items()

    @pytest.mark.parametrize("stream", LIMITED)
    def test_one_that_becomes_visible_late_is_seen(self, shop: Shop, stream: dict[str, str]) -> None:
        """A job that was due a second before a claim, and was committed after it, is claimed by the next one."""
        shop.submit(**stream)
        shop.next_of_other()
        assert shop.claim(1, store=shop.other) == []
        assert shop.starts_of_other() > 0
        late = shop.submit(scheduled_at=shop.after(seconds=-1), **stream)
        assert shop.next_of_other() == late


class TestSweep:
    def test_it_finds_what_is_before_a_start(self, shop: Shop) -> None:
        """A job that came in unannounced, before a start, waits for the next sweep and no longer."""
        shop.waits()
        hidden = shop.submit(scheduled_at=shop.after(hours=1))
        shop.next_of_other()
        shop.write(
            "UPDATE scheduler_job_queue SET scheduled_time = :at WHERE job_id = :id",
            at=shop.after(hours=-2),
            id=hidden,
        )
        assert shop.next_of_other() != hidden
        starts(shop.other)._sweep_at.clear()
        assert shop.next_of_other() == hidden

    def test_a_look_finds_it_too(self, shop: Shop) -> None:
        """An idle node looks and does not claim: its look sweeps, and what it finds before a start is claimed next."""
        hidden = shop.submit(scheduled_at=shop.after(hours=1))
        for _ in shop.waits():
            shop.next_of_other()
        assert shop.claim(1, store=shop.other) == []
        shop.write(
            "UPDATE scheduler_job_queue SET scheduled_time = :at WHERE job_id = :id",
            at=shop.after(hours=-2),
            id=hidden,
        )
        known = starts(shop.other)
        assert shop.other.next_due_at(shop.request(), now=shop.now) is None
        known._sweep_at.clear()
        assert shop.other.next_due_at(shop.request(), now=shop.now) == shop.after(hours=-2)
        assert shop.next_of_other() == hidden

    def test_a_look_that_swept_is_not_repeated(self, shop: Shop) -> None:
        """The looks after it start where claims start, as after a claim that swept."""
        shop.waits()
        shop.next_of_other()
        known = starts(shop.other)
        known._sweep_at.clear()
        shop.other.next_due_at(shop.request(), now=shop.now)
        assert shop.starts_of_other() > 0
        assert known.of_look([shop.request()])[1] == []

    @pytest.mark.parametrize("by", ["claim", "look"])
    def test_it_takes_a_fiftieth_of_the_time(self, by: str) -> None:
        """After a sweep of 80 ms, by a claim or a look, the next one is four seconds later."""
        at = 100.0
        asked = backlog.request()
        known = ScanStarts(lambda: at)
        start = (1, 2, 0, *BEGINNING)
        assert known.of(asked) == ()
        at = 100.08
        known.learn(asked, [start], swept_since=100.0 if by == "claim" else None)
        if by == "look":
            assert known.of_look([asked]) == ([], [(asked.lane, asked.suspects)])
            known.looked([(asked.lane, asked.suspects)], {(1, 2): BEGINNING[0]}, since=100.0)
        assert known.of(asked) == [start]
        at = 104.07
        known.learn(asked, [start], swept_since=None)
        assert known.of(asked) == [start]
        assert known.of_look([asked]) == ([start], [])
        at = 104.09
        assert known.of(asked) == ()
        assert known.known(asked) == [start]

    @pytest.mark.parametrize("took", [0.5, 5.0, 30.0, 3600.0])
    def test_however_long_it_takes_the_next_one_comes_in_seconds(self, took: float) -> None:
        """A sweep that waits for a server that stands still, or has a million entries to read over, puts off none."""
        at = 100.0
        asked = backlog.request()
        known = ScanStarts(lambda: at)
        for _ in range(3):
            assert known.of(asked) == ()
            begun, at = at, at + took
            known.learn(asked, [(1, 2, 0, *BEGINNING)], swept_since=begun)
            assert known.of(asked) != ()
            at += scan_start.LONGEST_WITHOUT_SWEEP
        assert scan_start.LONGEST_WITHOUT_SWEEP <= 5

    @pytest.mark.parametrize("stall", [5.0, 30.0])
    def test_what_waited_is_no_work(self, stall: float) -> None:
        """Between two sweeps of a millisecond, one that waited counts as they do."""
        at = 100.0
        asked = backlog.request()
        known = ScanStarts(lambda: at)
        for took in (0.001, stall, 0.001, stall):
            assert known.of(asked) == ()
            begun, at = at, at + took
            known.learn(asked, [(1, 2, 0, *BEGINNING)], swept_since=begun)
            assert known.of(asked) != ()
            at += 0.051


class TestStall:
    def test_what_is_committed_late_after_one_is_found_in_seconds(self, url: str) -> None:
        """A claim waits for two seconds; then a transaction commits a job that has been due for three."""
        with closing(Shop(url)) as shop:
            shop.now = datetime.now(UTC)
            shop.submit_many(12, scheduled_at=shop.after(minutes=-1))
            with psycopg.connect(url) as admin:
                admin.execute("LOCK TABLE scheduler_stream IN ACCESS EXCLUSIVE MODE")
                release = threading.Timer(2.0, admin.commit)
                release.start()
                begun = time.monotonic()
                assert len(shop.claim(1)) == 1
                assert time.monotonic() - begun > 1.5
                release.join()
            with psycopg.connect(url) as caller:
                shop.now = datetime.now(UTC)
                late = shop.store.insert([shop.spec()], now=shop.now, within=caller)[0].job_id
                time.sleep(3)
                shop.now = datetime.now(UTC)
                assert [len(shop.claim()) for _ in range(2)] == [
                    11,
                    0,
                ]  # now claims start after the job that is not visible
                caller.commit()
            until = time.monotonic() + 7
            found: list[UUID] = []
            while late not in found and time.monotonic() < until:
                shop.now = datetime.now(UTC)
                found += [claim.job_id for claim in shop.claim()]
                time.sleep(0.05)
            assert late in found


class TestDeadEntries:
    def test_a_claim_does_not_read_over_them(self, shop: Shop, url: str) -> None:
        """
        20,000 entries that a held snapshot keeps in the index: a claim from the beginning reads the pages of them all, the
        one after it hardly any.
        """
        jobs = [(2, backlog.NOW - timedelta(hours=1), StreamKey())] * 20_500
        ids = backlog.insert(shop.store, jobs)
        with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as admin:
            admin.execute("ANALYZE scheduler_job_queue")
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM scheduler_job_queue")
            admin.execute("DELETE FROM scheduler_job_queue WHERE job_id = ANY(%s)", (ids[:20_000],))
            from_beginning = explain(shop.store, 50).looks
            assert [one.job_id for one in backlog.claim(shop.store, 10)] == ids[20_000:20_010]
            behind = explain(shop.store, 50, starts=starts(shop.store)).looks
        assert from_beginning > 250
        assert behind < 50

    def test_a_look_at_keys_does_not_read_over_them(self, shop: Shop) -> None:
        """Claims of fairness keys tell looks where to start, as all others do."""
        for minutes in (-30, -20, -10):
            due_at = shop.after(minutes=minutes)
            for key in ("acme", "globex"):
                shop.submit_many(3, fairness_key=key, scheduled_at=due_at)
            assert len(shop.take(6)) == 6
        found, swept = starts(shop.store).of_look([shop.request()])
        assert len({start[0] for start in found}) == 2
        assert min(start[3] for start in found) == due_at
        assert swept == []

    def test_a_look_for_others_and_suspects_does_not_read_over_them(self, shop: Shop) -> None:
        """It meets the jobs of a lane that is not asked for, and starts there where their last claim began."""
        shop.submit()
        assert shop.take(1)
        known = starts(shop.store)
        asked, others = shop.request(), shop.request(lane=Lane.ASYNC)
        assert known.known(asked)
        assert known.of_look([others, shop.request(suspects=True)])[0] == known.known(asked)
        assert known.of_look([others])[0] == []
