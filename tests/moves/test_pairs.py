"""Everything in a store arrives in another one, between any two products."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from ratchet import ManualClock, Options
from ratchet.contrib.encryption import Keyring
from ratchet.model.errors import StoreMoved
from ratchet.model.moves import RowKind
from ratchet.model.payload.envelope import is_sealed
from ratchet.moving import move
from ratchet.stores import open_store
from ratchet.stores.sealed import sealed
from tests.moves import samples
from tests.moves.conftest import MakeUrl

#: Each of the twelve ordered pairs is in one of these rows, side by side.
CHAINS = (
    ("sqlite", "postgresql", "mongodb", "mysql"),
    ("postgresql", "mysql", "sqlite", "mongodb"),
    ("mysql", "mongodb", "postgresql", "sqlite"),
    ("mongodb", "sqlite", "mysql", "postgresql"),
)


def test_each_pair_is_there() -> None:
    """Four chains of three moves make all twelve pairs."""
    pairs = {pair for chain in CHAINS for pair in pairwise(chain)}
    assert len(pairs) == 12


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(chain))
def test_everything_arrives(chain: tuple[str, ...], make_url: MakeUrl, clock: ManualClock) -> None:
    """
    After each of three moves the next store holds the same rows of each kind, and answers the same to everybody; the one before
    takes no writes any more. What waited runs in the last one.
    """
    url = make_url(chain[0])
    store = open_store(url, Options())
    store.migrate()
    samples.fill(store, clock)
    rows, others = samples.rows_of(store), samples.seen_by_others(store, clock)
    assert not [kind for kind in RowKind if not rows[kind]], "the store has rows of every kind"
    for kind in chain[1:]:
        target = make_url(kind)
        report = move(url, target)
        assert {one: tally.count for one, tally in report.tallies.items()} == {
            one: len(found) for one, found in rows.items()
        } | {RowKind.AUDIT: report.tallies[RowKind.AUDIT].count}
        with pytest.raises(StoreMoved, match="moved to"):
            samples.scheduler_on(store, clock).enqueue_now(samples.fine, 1)
        store.close()
        url, store = target, open_store(target, Options())
        found = samples.rows_of(store)
        for one in RowKind:
            arrived = {key: row for key, row in found[one].items() if key in rows[one]}
            assert arrived == rows[one], one
            assert len(found[one]) == len(rows[one]) or one is RowKind.AUDIT
        assert samples.seen_by_others(store, clock) == others
    samples.ran.clear()
    clock.advance(timedelta(hours=6))
    scheduler = samples.scheduler_on(store, clock)
    scheduler.drain()
    assert len(samples.ran) == len(set(samples.ran)) > 10
    scheduler.close()
    store.close()


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "-".join(chain))
def test_what_is_encrypted_arrives_encrypted(
    chain: tuple[str, ...], make_url: MakeUrl, clock: ManualClock
) -> None:
    """
    Values that are bound to their job and field by their encryption are opened by the same keys after each of three moves, and mean
    the same; the move itself has no key. Keys that are stored as hashes are found, and what waited runs in the last store.
    """
    keyring = Keyring(active="now", keys={"now": b"k" * 32}, hash_keys=b"h" * 32)
    url = make_url(chain[0])
    store = open_store(url, Options())
    store.migrate()
    samples.fill(store, clock, keyring)
    rows, others = samples.rows_of(store), samples.seen_by_others(sealed(store, keyring), clock)
    closed = [
        value for found in rows.values() for row in found.values() for value in row.values()
        if isinstance(value, str) and is_sealed(value)
    ]  # fmt: skip
    assert len(closed) > 50
    for kind in chain[1:]:
        target = make_url(kind)
        move(url, target)
        store.close()
        url, store = target, open_store(target, Options())
        found = samples.rows_of(store)
        for one in RowKind:
            assert {key: row for key, row in found[one].items() if key in rows[one]} == rows[one], one
        assert samples.seen_by_others(sealed(store, keyring), clock) == others
    samples.ran.clear()
    clock.advance(timedelta(hours=6))
    scheduler = samples.scheduler_on(store, clock, keyring)
    again = scheduler.enqueue(samples.fine, "key").with_idempotency_key("i-1").submit()
    assert again.duplicate
    scheduler.drain()
    assert len(samples.ran) == len(set(samples.ran)) > 10
    scheduler.close()
    store.close()
