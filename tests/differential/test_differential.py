"""
The same operations on every store: the same answers, the same jobs in the same states, in the same order.

``RATCHET_DIFFERENTIAL_SEEDS=500`` plays more lives, ``RATCHET_DIFFERENTIAL_SEED=<seed>`` one alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ratchet.stores.memory import MemoryStore
from ratchet.stores.next_parties import NextParties
from ratchet.tck import Harness
from tests.differential import runs, submissions, verbs
from tests.differential.lives import Life, Operation
from tests.differential.plain import differences
from tests.differential.players import Player, same_callbacks
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.tck.memory import MemoryHarness
from tests.tck.mongodb import MongodbHarness
from tests.tck.mysql import MysqlHarness
from tests.tck.postgresql import PostgresqlHarness
from tests.tck.sqlite import SqliteMemoryHarness

SEEDS = int(os.environ.get("RATCHET_DIFFERENTIAL_SEEDS", "16"))
OPERATIONS = int(os.environ.get("RATCHET_DIFFERENTIAL_OPERATIONS", "60"))
CHUNK = 2

#: Answers are compared at once; after so many operations all jobs, and after so many everything that a store shows.
LOOK = 4
LOOK_CLOSELY = 20

Draw = Callable[[Life], Operation]

KINDS: list[tuple[Draw, int]] = [
    (submissions.submit, 14),
    (submissions.submit_again, 1),
    (submissions.submit_to_wait, 3),
    (submissions.submit_graph, 8),
    (submissions.submit_batch, 4),
    (submissions.append_children, 2),
    (submissions.submit_badly, 1),
    (submissions.replace, 2),
    (submissions.send_signal, 3),
    (submissions.upsert_schedule, 2),
    (submissions.advance, 4),
    (submissions.trigger, 1),
    (runs.claim, 22),
    (runs.complete, 22),
    (runs.settle, 3),
    (runs.hand_back, 2),
    (runs.hand_back_unknown, 1),
    (runs.park, 2),
    (runs.save, 2),
    (runs.release_permits, 1),
    (runs.rescue, 3),
    (runs.deregister, 1),
    (runs.beat, 1),
    (runs.set_node_state, 1),
    (runs.request_of_node, 1),
    (verbs.control, 9),
    (verbs.retry_failed, 4),
    (verbs.resume_paused, 2),
    (verbs.delete, 2),
    (verbs.bulk, 2),
    (verbs.limit, 3),
    (verbs.queue, 2),
    (verbs.breaker, 2),
    (verbs.expire, 3),
    (verbs.upkeep, 5),
    (verbs.batch, 4),
    (verbs.schedule, 2),
    (verbs.lock, 1),
    (verbs.pages, 4),
    (verbs.letters, 1),
    (verbs.ask, 3),
]


def draw(life: Life) -> Operation:
    """The next operation."""
    (make,) = life.dice.choices([make for make, _ in KINDS], [weight for _, weight in KINDS])
    life.pass_time()
    return make(life)


class Look:
    """What is compared after an operation besides its answer."""

    def __init__(self, number: int, *, last: int, closely: int) -> None:
        self.at_everything = number % closely == closely - 1 or number == last
        self.at_jobs = self.at_everything or number % LOOK == LOOK - 1


class Difference(AssertionError):
    """Two stores do not say the same."""


def play(seed: int, harnesses: dict[str, Harness], operations: int, *, closely: int) -> None:
    """Play one life on the in-memory store and on all *harnesses*; `Difference` at the first operation that differs."""
    with ExitStack() as stack:
        stack.enter_context(same_callbacks())
        players = {name: Player(name, harness) for name, harness in harnesses.items()}
        for player in players.values():
            stack.callback(player.close)
        memory = players.pop("memory")
        life = Life(seed, memory)
        played: list[Operation] = []
        beginning = [runs.register(life, node) for node in life.nodes]
        for number in range(operations):
            operation = beginning[number] if number < len(beginning) else draw(life)
            played.append(operation)
            look = Look(number, last=operations - 1, closely=closely)
            expected = _seen(memory, life, operation, look)
            for player in players.values():
                lines = differences(expected, _seen(player, life, operation, look))
                if lines:
                    raise Difference(_report(seed, player.name, played, lines))


def _seen(player: Player, life: Life, operation: Operation, look: Look) -> Any:
    seen: dict[str, Any] = {"answer": player.play(operation.call, life.names)}
    if look.at_jobs:
        seen["now"] = player.jobs(life.names)
    if look.at_everything:
        seen["besides"] = player.everything(life.names, operation.at)
    return seen


def _report(seed: int, name: str, played: list[Operation], lines: list[str]) -> str:
    steps = [f"{number:3} {one.at.time()} {one.text}" for number, one in enumerate(played, 1)]
    return "\n".join(
        [
            f"seed {seed}: {name} differs from memory after operation {len(played)}, {played[-1].text}",
            *(f"  {line}" for line in lines[:12]),
            "what was played:",
            *steps,
        ]
    )


def compare(seed: int, harnesses: dict[str, Harness], operations: int = OPERATIONS) -> None:
    """Play one life; where it differs, play it again and look closely after every operation, for the shortest prefix."""
    try:
        play(seed, harnesses, operations, closely=LOOK_CLOSELY)
    except Difference:
        play(seed, harnesses, operations, closely=1)
        raise


def chunks() -> list[range]:
    """Seeds in portions, so that tests can be spread over workers."""
    alone = os.environ.get("RATCHET_DIFFERENTIAL_SEED")
    if alone is not None:
        return [range(int(alone), int(alone) + 1)]
    return [range(start, min(start + CHUNK, SEEDS)) for start in range(0, SEEDS, CHUNK)]


@pytest.fixture(scope="module")
def harnesses(
    postgresql_server: PostgreSQL, mariadb_server: MariaDB, mongodb_server: MongoDB
) -> Iterator[dict[str, Harness]]:
    """Every store, the one that says what is right first."""
    with ExitStack() as stack:
        opened: dict[str, Harness] = {"memory": MemoryHarness(), "sqlite": SqliteMemoryHarness()}
        kinds: list[tuple[str, Any, Any]] = [
            ("postgresql", postgresql_server, PostgresqlHarness),
            ("mysql", mariadb_server, MysqlHarness),
            ("mongodb", mongodb_server, MongodbHarness),
        ]
        for name, server, harness_class in kinds:
            url = server.create_database()
            stack.callback(server.drop_database, url)
            opened[name] = harness_class(url)
        for harness in opened.values():
            stack.callback(harness.shutdown)
        yield opened


@pytest.mark.timeout(600)  # five stores, one after the other
class TestSameOperations:
    @pytest.mark.parametrize("chunk", chunks(), ids=lambda chunk: f"{chunk.start}-{chunk.stop - 1}")
    def test_every_store_says_the_same(self, chunk: range, harnesses: dict[str, Harness]) -> None:
        """Answers, errors, statuses, order of claims, counts, explanations and pages are the in-memory store's."""
        for seed in chunk:
            compare(seed, harnesses)

    @pytest.mark.parametrize("seed", [501, 502, 503])
    def test_also_by_the_parties_whose_turn_is_next(
        self, seed: int, harnesses: dict[str, Harness], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same, where each claim takes the way that is for thousands of fairness keys."""
        always = property(lambda _: Always(), lambda *_: None)
        monkeypatch.setattr(NextParties, "steps", always, raising=False)
        monkeypatch.setattr(NextParties, "are_many", lambda *_: True)
        compare(seed, harnesses)


class Always(dict[object, int]):
    """As if many parties had work, whatever is asked for."""

    def __bool__(self) -> bool:
        return True


class Forgetful(MemoryStore):
    """Planted: pausing says yes and does nothing."""

    def pause(self, *_: Any, **__: Any) -> bool:
        return True


class ForgetfulHarness(MemoryHarness):
    def open(self) -> Any:
        self.memory = Forgetful()
        return self.memory


class TestPlantedBug:
    def test_it_is_found_and_shown(self) -> None:
        """A store that differs is named with the seed, the operation, and the operations that led to it."""
        harnesses: dict[str, Harness] = {"memory": MemoryHarness(), "planted": ForgetfulHarness()}
        text = next(filter(None, (_difference(seed, harnesses) for seed in range(50))))
        assert "planted differs from memory after operation" in text
        assert text.splitlines()[0].split(", ")[-1].startswith("pause(")

    def test_a_life_is_the_same_every_time(self) -> None:
        """What is drawn depends on the seed alone."""
        assert _drawn(7) == _drawn(7)


def _difference(seed: int, harnesses: dict[str, Harness]) -> str | None:
    try:
        compare(seed, harnesses)
    except Difference as difference:
        return str(difference)
    return None


def _drawn(seed: int) -> list[str]:
    memory = Player("memory", MemoryHarness())
    life = Life(seed, memory)
    texts: list[str] = []
    with same_callbacks():
        for _ in range(OPERATIONS):
            operation = draw(life)
            memory.play(operation.call, life.names)
            texts.append(operation.text)
    return texts
