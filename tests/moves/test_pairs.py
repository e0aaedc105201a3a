"""Everything in a store arrives in another one, between any two products."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from ratchet import ManualClock, Options
from ratchet.model.errors import StoreMoved
from ratchet.model.moves import RowKind
from ratchet.moving import move
from ratchet.stores import open_store
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
