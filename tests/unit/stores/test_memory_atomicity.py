"""A call to the in-memory store that fails leaves nothing behind, and no history breaks a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.model.claim import JobClaim
from ratchet.model.composition import EdgeKind, Fire, SignalSpec
from ratchet.model.decision import Completion, CountCrash, Decision, HandBack, Retry, Succeed
from ratchet.model.errors import BusinessKeyBusy, UnstorableData
from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.status import Busy
from ratchet.stores.memory import MemoryStore
from ratchet.stores.memory.rows import Reservation
from ratchet.stores.memory.tables import Table
from tests.unit.stores.memory_shop import FAILURE, MINUTE, NODE, NOW, Shop, content, edge, furnished


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.store.check_invariants()


class Broken(Exception):
    """The machine stopped here."""


Call = Callable[[Shop, dict[str, JobSpec], dict[str, JobClaim]], object]

CALLS: dict[str, Call] = {
    "success": lambda shop, jobs, claims: shop.end(claims["running"]),
    "failure": lambda shop, jobs, claims: shop.end(claims["running"], FAILURE),
    "failure, code still running": lambda shop, jobs, claims: shop.end(
        claims["running"], FAILURE, still_running=True
    ),
    "last child": lambda shop, jobs, claims: shop.end(claims["batch child"]),
    "last crash": lambda shop, jobs, claims: shop.end(
        claims["running"], CountCrash(detail="x", max_crashes=1)
    ),
    "cancel": lambda shop, jobs, claims: shop.store.cancel(jobs["running"].job_id, reason="r", now=NOW),
    "settle": lambda shop, jobs, claims: shop.store.settle([claims["canceled"]], now=NOW),
    "retry": lambda shop, jobs, claims: shop.store.retry(jobs["dead"].job_id, now=NOW),
    "expire": lambda shop, jobs, claims: shop.store.expire(now=NOW + 3 * MINUTE, limit=9),
    "rescue": lambda shop, jobs, claims: shop.store.rescue(NODE, seen_beat=0, by="x", max_crashes=1, now=NOW),
    "deregister": lambda shop, jobs, claims: shop.store.deregister(NODE, now=NOW),
    "delete": lambda shop, jobs, claims: shop.store.delete(jobs["dead"].job_id),
    "signal": lambda shop, jobs, claims: shop.store.send_signal(
        SignalSpec(signal_id=shop.id(), key="go"), now=NOW
    ),
    "cancel batch": lambda shop, jobs, claims: shop.store.cancel_batch(
        jobs["batch child"].batch_id or shop.id(), reason="r", now=NOW
    ),
    "replace": lambda shop, jobs, claims: shop.store.replace(
        jobs["later"].job_id, shop.spec(business_key="later"), now=NOW
    ),
    "insert": lambda shop, jobs, claims: shop.submit(
        shop.spec(idempotency_key="i"), shop.spec(business_key="later", busy=Busy.REPLACE)
    ),
    "claim": lambda shop, jobs, claims: shop.claim(now=NOW + MINUTE),
    "advance": lambda shop, jobs, claims: shop.store.advance(
        "n", expected=NOW, fires=[Fire(fire_at=NOW, spec=shop.spec())], next_fire_at=NOW + MINUTE, now=NOW
    ),
    "cancel many": lambda shop, jobs, claims: shop.store.cancel_matching(
        JobFilter(targets=["a:b"]), limit=99, reason="r", now=NOW
    ),
    "retry many": lambda shop, jobs, claims: shop.store.retry_matching(
        JobFilter(targets=["a:b"]), limit=99, now=NOW
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_raises_halfway_has_changed_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its writes fails, every table and index is as before, and the same call then works."""
    for survived in count():  # how many writes go through before one fails
        shop, jobs, claims = furnished()
        before = content(shop.store)
        with monkeypatch.context() as patch:
            patch.setattr(shop.store._state._journal, "note", _failing_after(survived, shop.store))
            try:
                CALLS[name](shop, jobs, claims)
                break  # it needs no more writes than that
            except Broken:
                pass
        assert content(shop.store) == before
        shop.store.check_invariants()
        CALLS[name](shop, jobs, claims)
        assert content(shop.store) != before
        shop.store.check_invariants()
    assert survived >= 2


def _failing_after(writes: int, store: MemoryStore) -> Callable[..., None]:
    """The journal's `note`, which every write calls first; it fails after so many."""
    note, made = store._state._journal.note, count()

    def counted(table: Table[object, object], key: object, old: object) -> None:
        if next(made) == writes:
            raise Broken
        note(table, key, old)

    return counted


def test_unstorable_data_is_refused_whole(shop: Shop) -> None:
    """One bad text among good completions: UnstorableData, nothing of the call is written."""
    shop.submit(*(shop.spec() for _ in range(3)))
    claims = shop.claim()
    before = content(shop.store)
    for result in ('"\x00"', '"\ud800"'):
        decisions = [Succeed(result="1"), Succeed(result=result), Succeed(result="3")]
        completions = [
            Completion(claim=claim, decision=decision)
            for claim, decision in zip(claims, decisions, strict=True)
        ]
        with pytest.raises(UnstorableData):
            shop.store.complete(completions, now=NOW)
        assert content(shop.store) == before


# --- random histories -----------------------------------------------------------------------------


def random_history(choices: list[tuple[int, int]]) -> MemoryStore:
    """Whatever the numbers say, in order: each names a call and a job."""
    shop, _, claims = furnished()
    store, now = shop.store, NOW
    for what, which in choices:
        now += timedelta(seconds=which % 50)
        ids = sorted(store._state.jobs.keys())
        job_id = ids[which % len(ids)]
        held = [c for c in claims.values() if store.claims_of(c.node_id).get(c.job_id) == c.claim_id]
        claim = held[which % len(held)] if held else None
        if what < len(ENDS) and claim is not None:
            completion = Completion(
                claim=claim,
                decision=ENDS[what],
                started_at=now,
                finished_at=now,
                still_running=which % 3 == 0,
            )
            store.complete([completion], now=now)
        elif what == 5:
            claims |= {str(shop.id()): claim for claim in shop.claim(1 + which % 4, now=now)}
        elif what == 6:
            store.cancel(job_id, reason="r", now=now)
        elif what == 7:
            store.pause(job_id, now=now)
        elif what == 8:
            store.resume(job_id, now=now)
        elif what == 9:
            try:
                store.retry(job_id, now=now)
            except BusinessKeyBusy:
                pass
        elif what == 10:
            store.settle(list(claims.values())[: which % 9], now=now)
        elif what == 11:
            parent = store._state.jobs[job_id].spec
            child = shop.step(business_key=f"k{which % 4}", busy=Busy.RETURN)
            store.insert([child], now=now, edges=[edge(parent, child, list(EdgeKind)[which % 4])])
        elif what == 12:
            store.rescue(NODE, seen_beat=0, by="x", max_crashes=2, now=now)
            shop.register()
        elif what == 13:
            store.delete(job_id)
        elif what == 14:
            store.expire(now=now, limit=2)
        elif what == 15:
            store.archive(before=now, limit=3, now=now)
            store.purge_archive(before=now - MINUTE, limit=1)
        elif what == 16:
            store.reschedule(job_id, now + timedelta(seconds=which - 10), now=now)
        elif what == 17:
            store.send_signal(SignalSpec(signal_id=shop.id(), key="go"), now=now)
        elif what == 18:
            try:
                store.insert([shop.spec(business_key=f"k{which % 4}", busy=Busy.REPLACE)], now=now)
            except BusinessKeyBusy:
                pass
        store.check_invariants()
    return store


ENDS: list[Decision] = [
    Succeed(result="1"),
    Retry(at=NOW, error=FAILURE.error),
    FAILURE,
    CountCrash(detail="x", max_crashes=2),
    HandBack(),
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 18), st.integers(0, 60)), min_size=5, max_size=40))
def test_no_history_breaks_an_invariant_and_each_repeats_exactly(choices: list[tuple[int, int]]) -> None:
    """After every call of a random history all rules hold; the same history again gives the same rows."""
    assert content(random_history(choices)) == content(random_history(choices))


class TestInvariants:
    def test_a_leaked_key_is_found(self) -> None:
        """A reservation without a holder is named."""
        shop = Shop()
        state = shop.store._state
        state.run(lambda: state.reservations.put("k", Reservation(job_id=shop.id(), reserved_at=NOW)))
        with pytest.raises(AssertionError, match="business key 'k'"):
            shop.store.check_invariants()

    @pytest.mark.parametrize(
        ("table", "rule"),
        [
            ("still_running", "ended"),
            ("batches", "waits for nothing"),
            ("reservations", "does not hold its business key"),
            ("edges", "waits for nothing"),
        ],
    )
    def test_whatever_is_lost_is_missed(self, table: str, rule: str) -> None:
        """A table that lost its rows breaks a rule."""
        shop, _, _ = furnished()
        rows: Table[object, object] = getattr(shop.store._state, table)
        shop.store._state.run(lambda: [rows.remove(key) for key in rows.keys()])  # noqa: SIM118 - not a dict
        with pytest.raises(AssertionError, match=rule):
            shop.store.check_invariants()
