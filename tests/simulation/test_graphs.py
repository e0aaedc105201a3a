"""
Graphs and batches under crashes: every job ends as the pure evaluation says, for every seed.

A failing seed is named in the message; ``RATCHET_SIMULATION_SEED=<seed>`` replays it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from ratchet.engine.batches import BatchRecovery
from ratchet.model.composition import EdgeKind
from ratchet.model.decision import Completion, CompletionAnswer
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.stores import open_store
from ratchet.stores.memory import MemoryStore
from tests.simulation.evaluation import Link, Plan, Step, evaluate, follows
from tests.simulation.graphs import GraphWorld
from tests.simulation.test_simulation import seeds
from tests.simulation.world import Violation
from tests.support.store_urls import KINDS, fresh_url


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of simulated deaths are not worth a log line each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class TestGraphs:
    @pytest.mark.parametrize("chunk", seeds(), ids=lambda chunk: f"{chunk.start}-{chunk.stop - 1}")
    def test_every_job_ends_as_predicted(self, chunk: range) -> None:
        """Graphs end as evaluated, no step counts twice, batches complete once with exact counts."""
        for seed in chunk:
            GraphWorld(seed).run()

    def test_so_they_do_on_sql(self) -> None:
        """The same worlds on SQL: statements that settle many jobs at once say the same."""
        for seed in range(12):
            _run_on("sqlite:///:memory:", seed)

    @pytest.mark.parametrize("kind", KINDS)
    def test_so_they_do_on_every_store(
        self, kind: str, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        """One world on each kind of store, with its own locks and transactions."""
        _run_on(fresh_url(kind, request, tmp_path), 3)


def _run_on(url: str, seed: int) -> None:
    store = open_store(url, Options())
    store.migrate()
    try:
        GraphWorld(seed, store_class=lambda *_, **__: store).run()
    finally:
        store.close()


class TestReference:
    """The evaluation is only worth something if it is right where the answer is plain."""

    @staticmethod
    def _plan(*steps: Step, links: Sequence[tuple[int, int, EdgeKind]], needs: dict[int, int]) -> Plan:
        return Plan(
            steps={step.job_id: step for step in steps},
            links=[Link(UUID(int=a), UUID(int=b), kind) for a, b, kind in links],
            needs={UUID(int=key): value for key, value in needs.items()},
        )

    def test_a_failed_step_cancels_what_follows_and_fires_the_failure_branch(self) -> None:
        """1 fails; 2 and 3 behind it are canceled, 4 runs."""
        plan = self._plan(
            Step(UUID(int=1), fails=1),
            *(Step(UUID(int=n)) for n in (2, 3, 4)),
            links=[(1, 2, EdgeKind.SUCCESS), (2, 3, EdgeKind.SUCCESS), (1, 4, EdgeKind.FAILURE)],
            needs={2: 1, 3: 1, 4: 1},
        )
        found = evaluate(plan)
        assert [str(state) for state in found.states.values()] == [
            "FAILED",
            "CANCELED",
            "CANCELED",
            "SUCCEEDED",
        ]
        mended = evaluate(plan, mended=[UUID(int=1)], before=found)
        assert set(mended.states.values()) == {JobStatus.SUCCEEDED}

    @pytest.mark.parametrize(
        ("needs", "state"), [(1, JobStatus.SUCCEEDED), (2, JobStatus.SUCCEEDED), (3, JobStatus.CANCELED)]
    )
    def test_a_join_counts(self, needs: int, state: JobStatus) -> None:
        """Of three parents one fails: two are enough where two are needed."""
        plan = self._plan(
            Step(UUID(int=1), fails=1),
            *(Step(UUID(int=n)) for n in (2, 3, 4)),
            links=[(n, 4, EdgeKind.SUCCESS) for n in (1, 2, 3)],
            needs={4: needs},
        )
        assert evaluate(plan).states[UUID(int=4)] is state

    def test_followers_of_a_batch(self) -> None:
        """Half of four items succeeded, two failed."""
        assert [
            follows(test, 4, 2, 2)
            for test in ("batch_success", "batch_failure", "success_rate", "failure_count")
        ] == [False, True, True, True]


class WithoutVerdicts(MemoryStore):
    """Planted: what conditions said is lost on the way to the store."""

    def complete(self, completions: Sequence[Completion], **more: Any) -> list[CompletionAnswer]:
        return super().complete([msgspec.structs.replace(each, verdicts=()) for each in completions], **more)


class SealsEarly(MemoryStore):
    """Planted: a streaming batch completes with the items that it has so far."""

    def insert(self, *args: Any, batch: Any = None, **more: Any) -> Any:
        sealed = None if batch is None else msgspec.structs.replace(batch, sealed=True)
        return super().insert(*args, batch=sealed, **more)


def seeds_until_found(store_class: Callable[..., Any] = MemoryStore) -> int:
    for seed in range(100):
        try:
            GraphWorld(seed, store_class=store_class).run()
        except Violation:
            return seed + 1
    pytest.fail("the planted bug was not found in 100 seeds")


class TestPlantedBugs:
    """The simulator is worth something only if it finds what it is for."""

    def test_lost_verdicts_are_found(self) -> None:
        """A branch that should be taken and is not is noticed."""
        assert seeds_until_found(WithoutVerdicts) <= 10

    def test_a_batch_that_completes_early_is_found(self) -> None:
        """Followers that run before the last item was read are noticed."""
        assert seeds_until_found(SealsEarly) <= 10

    def test_a_forgotten_batch_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A batch that waits for ever for a dead submitter is noticed."""
        monkeypatch.setattr(BatchRecovery, "_cancel_abandoned", lambda *_: False)
        assert seeds_until_found() <= 20
