"""
Crashes and lost connections between any two store calls: the promises hold, for every seed.

A failing seed is named in the message; ``RATCHET_SIMULATION_SEED=<seed>`` replays it alone.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest

from ratchet.engine.completer import Completer
from ratchet.model.cluster import Rescue
from ratchet.model.decision import Completion, CompletionAnswer
from ratchet.model.status import JobStatus
from ratchet.stores.memory import MemoryStore
from ratchet.stores.memory.tables import Table
from tests.simulation.world import Violation, World

SEEDS = int(os.environ.get("RATCHET_SIMULATION_SEEDS", "500"))
CHUNK = 50


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of simulated deaths are not worth a log line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seeds() -> list[range]:
    alone = os.environ.get("RATCHET_SIMULATION_SEED")
    if alone is not None:
        return [range(int(alone), int(alone) + 1)]
    return [range(start, min(start + CHUNK, SEEDS)) for start in range(0, SEEDS, CHUNK)]


class TestPromises:
    @pytest.mark.parametrize("chunk", seeds(), ids=lambda chunk: f"{chunk.start}-{chunk.stop - 1}")
    def test_nothing_is_lost_counted_twice_or_leaked(self, chunk: range) -> None:
        """No acknowledged job is lost, at most one attempt counts, no key or permit stays taken."""
        for seed in chunk:
            World(seed).run()

    def test_deaths_of_every_kind_are_charged(self) -> None:
        """The worlds hold deaths that a supervisor saw and others, of runs that had begun, had not, and of some in doubt."""
        kinds: Counter[str] = Counter()
        for seed in range(20):
            world = World(seed)
            world.run()
            kinds += world.charges
        assert set(kinds) == {"seen", "by its claim", "not started", "in doubt"}

    def test_a_seed_replays_the_same_history(self) -> None:
        """Two runs of one seed end with the same jobs in the same states after the same runs."""

        def history(seed: int) -> list[tuple[str, str, int, int]]:
            world = World(seed)
            world.run()
            records = [world.store.get(job_id) for job_id in world.acknowledged]
            return [(str(r.job_id), r.status, r.attempts, r.crashes) for r in records if r is not None]

        assert history(11) == history(11)
        assert history(11) != history(12)


class WithoutFence(MemoryStore):
    """Planted: a completion finishes whatever run of the job there is now."""

    def complete(self, completions: Sequence[Completion], **more: Any) -> list[CompletionAnswer]:
        return super().complete([self._unfenced(each) for each in completions], **more)

    def _unfenced(self, completion: Completion) -> Completion:
        record = self.get(completion.claim.job_id)
        if record is None or record.status is not JobStatus.RUNNING or record.claim_id is None:
            return completion
        claim = msgspec.structs.replace(completion.claim, claim_id=record.claim_id)
        return msgspec.structs.replace(completion, claim=claim)


class KeepsKeys(MemoryStore):
    """Planted: a key is not released when its job ends."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._state.reservations.__class__ = _Sticky


class ChargesWhatWaited(MemoryStore):
    """Planted: nobody tells a rescue what ran."""

    def rescue(self, node_id: str, **known: Any) -> Rescue | None:
        known.pop("ran", None)
        return super().rescue(node_id, **known)


class _Sticky(Table[Any, Any]):
    def remove(self, key: Any) -> Any:
        return self.get(key)


def seeds_until_found(store_class: type[MemoryStore] = MemoryStore, limit: int = 300) -> int:
    """How many seeds the simulator needs to notice the planted bug."""
    for seed in range(limit):
        try:
            World(seed, store_class=store_class).run()
        except Violation:
            return seed + 1
    pytest.fail(f"the planted bug was not found in {limit} seeds")


class TestPlantedBugs:
    """The simulator is worth something only if it finds what it is for."""

    def test_a_dropped_fence_is_found(self) -> None:
        """A stale worker that finishes a newer run is noticed."""
        assert seeds_until_found(WithoutFence) <= 100

    def test_a_forgotten_key_release_is_found(self) -> None:
        """A key that stays taken is noticed."""
        assert seeds_until_found(KeepsKeys) <= 5

    def test_a_charge_for_what_had_not_started_is_found(self) -> None:
        """A rescue that does not ask what ran charges a job that had not started, which the rule notices."""
        assert seeds_until_found(ChargesWhatWaited) <= 20

    def test_a_claim_ahead_that_is_charged_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store that does not look at the token of a claim ahead charges what it does not know to have run."""
        monkeypatch.setattr("ratchet.stores.memory.cluster.is_ahead", lambda token: False)
        assert seeds_until_found() <= 20

    def test_success_reported_before_the_commit_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An event for something that was not committed is noticed."""
        honest = Completer.run_once

        def hasty(self: Completer, now: datetime) -> int:
            self._take()
            for end in self._kept:
                if end.completion is not None:
                    end.answer = CompletionAnswer(job_id=end.run.job_id, won=True)
                    self._on_answer(end)
            return honest(self, now)

        monkeypatch.setattr(Completer, "run_once", hasty)
        assert seeds_until_found() <= 20
