"""Nodes share looks out: together they look as often as one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ratchet.engine.rota import Rota

NOW = datetime(2026, 7, 1, 12, 0, 3, 500_000, tzinfo=UTC)
EVERY = 10.0


def of(members: list[str], me: str) -> Rota:
    return Rota(lambda: members, lambda: me)


def test_a_node_that_is_alone_looks_every_time() -> None:
    """Whenever it asks, it is its turn; and it rests as long as it would without others. So does one that has not looked yet."""
    for members in ([], ["a"]):
        assert of(members, "a").is_turn(EVERY, NOW)
        assert of(members, "a").rest(EVERY, NOW) == EVERY
    assert of(["b", "c"], "a").is_turn(EVERY, NOW)


def test_each_slot_belongs_to_one_node() -> None:
    """Of three nodes exactly one has its turn at any time, and each in its order."""
    members = ["c", "a", "b"]
    turns = [
        [me for me in members if of(members, me).is_turn(EVERY, NOW + timedelta(seconds=EVERY * slot))]
        for slot in range(6)
    ]
    assert all(len(turn) == 1 for turn in turns)
    order = [turn[0] for turn in turns]
    assert order[:3] == order[3:]
    assert set(order) == set(members)


def test_rests_end_where_the_own_slot_begins() -> None:
    """A node that rests as it is told looks in each of its slots, and in no other."""
    members = [f"node {number}" for number in range(20)]
    for me in members:
        rota, at = of(members, me), NOW
        for _ in range(3):
            rest = rota.rest(EVERY, at)
            assert 0 < rest <= EVERY * len(members)
            at += timedelta(seconds=rest + 0.001)
            assert rota.is_turn(EVERY, at)
            assert at.timestamp() % EVERY < 0.01
