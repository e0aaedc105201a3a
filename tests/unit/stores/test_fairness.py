"""Fairness: how a claim is shared out between the parties that have work."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.stores.fairness import in_cycle, in_turns, take_turns
from ratchet.stores.levels import Level
from ratchet.stores.sql.claiming.gates import choose

parties = st.sampled_from(["", "ann", "bob", "carl"])


class TestInCycle:
    @pytest.mark.parametrize(
        ("after", "order"),
        [
            (None, ["", "ann", "bob"]),
            ("", ["ann", "bob", ""]),
            ("aaa", ["ann", "bob", ""]),
            ("ann", ["bob", "", "ann"]),
            ("bob", ["", "ann", "bob"]),
            ("zoe", ["", "ann", "bob"]),
        ],
    )
    def test_it_begins_behind_the_one_served_last(self, after: str | None, order: list[str]) -> None:
        """Whether that one still has work or not."""
        assert in_cycle(["bob", "", "ann", "bob"], after) == order


class TestTakeTurns:
    @pytest.mark.parametrize(
        ("offers", "limit", "shares"),
        [
            ({"ann": 9}, 5, {"ann": 5}),
            ({"ann": 9, "bob": 9}, 6, {"ann": 3, "bob": 3}),
            ({"ann": 9, "bob": 9, "carl": 9}, 8, {"ann": 3, "bob": 3, "carl": 2}),
            ({"ann": 9, "bob": 1, "carl": 9}, 8, {"ann": 4, "bob": 1, "carl": 3}),
            ({"ann": 1, "bob": 2, "carl": 3}, 99, {"ann": 1, "bob": 2, "carl": 3}),
            ({"ann": 0, "bob": 4}, 3, {"bob": 3}),
            ({"ann": 5, "bob": 5, "carl": 5}, 2, {"ann": 1, "bob": 1}),
            ({"ann": 5, "bob": 5}, 0, {}),
            ({}, 5, {}),
        ],
    )
    def test_an_even_split(self, offers: dict[str, int], limit: int, shares: dict[str, int]) -> None:
        """As even as what they have allows, and what does not divide goes to those whose turn is next."""
        taken, _ = take_turns({party: range(count) for party, count in offers.items()}, limit, None)
        assert Counter(party for party, _ in taken) == shares

    def test_round_after_round(self) -> None:
        """One of each, then the next of each; who has none left is passed by."""
        taken, dry = take_turns({"ann": [1, 2, 3], "bob": [1], "carl": [1, 2]}, None, "ann")
        assert [f"{party}{job}" for party, job in taken] == ["bob1", "carl1", "ann1", "carl2", "ann2", "ann3"]
        assert dry == {"ann", "bob", "carl"}

    def test_who_was_not_asked_has_not_run_out(self) -> None:
        """Nothing is known of a party whose turn did not come."""
        assert take_turns({"ann": [1], "bob": []}, 1, None) == ([("ann", 1)], set())

    @given(jobs=st.lists(st.tuples(parties, st.integers())), after=st.none() | parties)
    def test_nothing_is_lost_and_each_party_keeps_its_order(
        self, jobs: list[tuple[str, int]], after: str | None
    ) -> None:
        """Turns only mix the parties; between two jobs of one party no other has two more than it."""
        ordered = in_turns(jobs, lambda job: job[0], after)
        for party in {party for party, _ in jobs}:
            assert [job for job in ordered if job[0] == party] == [job for job in jobs if job[0] == party]
        sizes = Counter(party for party, _ in jobs)
        seen: Counter[str] = Counter()
        for party, _ in ordered:
            seen[party] += 1
            assert all(seen[other] >= min(seen[party] - 1, sizes[other]) for other in sizes)


@given(
    ranks=st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=8),
    owner=st.lists(parties, min_size=8, max_size=8),
    gated=st.lists(st.booleans(), min_size=8, max_size=8),
    limit=st.integers(1, 60),
    allowance=st.integers(0, 10),
    after=st.none() | parties,
)
def test_choosing_reads_no_more_than_it_needs(
    ranks: list[list[int]],
    owner: list[str],
    gated: list[bool],
    limit: int,
    allowance: int,
    after: str | None,
) -> None:
    """The choice is that of rounds over everything there is, whatever was read of it, and little more is read."""
    stored = [
        [(rank, number, (number, i)) for number, rank in enumerate(sorted(level))]
        for i, level in enumerate(ranks)
    ]
    candidates = [
        Level(i, 0, ("gate",), allowance, owner[i]) if gated[i] else Level(i, 0, party=owner[i])
        for i in range(len(stored))
    ]
    reads = 0

    def read(wanted: Any) -> None:
        nonlocal reads
        for level, count in wanted:
            position = len(level.ranks)
            fresh = stored[level.stream_id][position : position + count]
            level.ranks += fresh
            level.ended = len(fresh) < count
            reads += len(fresh)

    left = allowance
    lines = {
        party: sorted(r for i, b in enumerate(stored) if owner[i] == party for r in b) for party in owner
    }
    order = sorted(lines, key=lambda party: (after is not None and party <= after, party))
    expected: list[Any] = []
    while any(lines.values()) and len(expected) < limit:
        for party in order:
            while lines[party]:
                rank = lines[party].pop(0)
                behind = gated[rank[2][1]]
                if left > 0 or not behind:
                    left -= behind
                    expected.append(rank)
                    break
    chosen = choose(candidates, limit, {"gate": allowance}, read, after)
    assert chosen == expected[:limit]
    assert reads <= len(candidates) * max(4, 4 * limit)
