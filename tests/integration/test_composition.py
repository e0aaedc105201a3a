"""Chains, workflows and their events through the public API, the same on every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ratchet import RESULT, Condition, InvalidJob, ManualClock, Options, StoreUnavailable, TargetNotAllowed
from ratchet.api.submit.sending import require_shallow
from ratchet.model.composition import Edge
from ratchet.model.identifiers import new_id
from ratchet.spi.store import JobStore
from ratchet.testing import ManualScheduler
from tests.integration import outsiders
from tests.integration.composition_samples import (
    HERE,
    broken,
    ended_badly,
    forget,
    is_high,
    is_odd,
    number,
    raises,
    ran,
    statuses,
    step,
    succeeded,
)
from tests.integration.conftest import Stores


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget()


class TestChains:
    def test_each_step_gets_what_the_one_before_returned(self, scheduler: ManualScheduler) -> None:
        """Steps run in order, once, and the result of the last is there."""
        handle = scheduler.enqueue(step, "a").then(step, "b", RESULT).then(step, "c", RESULT).submit()
        assert statuses(handle) == ["PENDING", "WAITING", "WAITING"]
        scheduler.drain()
        assert ran == ["a", ("b", "a"), ("c", "b")]
        assert handle.last.result() == "c"

    def test_a_failed_middle_step_is_retried(self, scheduler: ManualScheduler) -> None:
        """Its failure cancels all that follows; its retry brings them back, and what ran before does not run again."""
        broken.add("b")
        handle = scheduler.enqueue(step, "a").then(step, "b").then(step, "c").then(step, "d").submit()
        scheduler.drain()
        assert statuses(handle) == [
            "SUCCEEDED",
            "FAILED",
            "CANCELED parent_failed",
            "CANCELED parent_canceled",
        ]
        broken.clear()
        assert scheduler.retry_job(handle.steps[1].id)
        assert statuses(handle) == ["SUCCEEDED", "PENDING", "WAITING", "WAITING"]
        scheduler.drain()
        assert statuses(handle) == ["SUCCEEDED"] * 4
        assert ran == ["a", "b", "b", "c", "d"]

    def test_a_middle_step_is_canceled(self, scheduler: ManualScheduler) -> None:
        """What follows it is canceled with it; what comes before runs, and a retry has nothing to revive."""
        handle = scheduler.enqueue(step, "a").then(step, "b").then(step, "c").submit()
        assert handle.steps[1].cancel()
        scheduler.drain()
        assert statuses(handle) == ["SUCCEEDED", "CANCELED requested", "CANCELED parent_canceled"]
        assert not handle.steps[1].retry()
        assert not handle.steps[2].retry()
        assert ran == ["a"]

    def test_a_step_with_retries_holds_the_chain(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A step that will be tried again has not ended: what follows waits."""
        broken.add("a")
        handle = scheduler.enqueue(step, "a").with_max_retries(1).then(step, "b").submit()
        broken.add("b")
        scheduler.drain(limit=1)
        assert statuses(handle) == ["PENDING", "WAITING"]
        broken.clear()
        scheduler.drain()
        assert ran == ["a", "a", "b"]

    def test_too_deep_is_refused(self, stores: Stores, clock: ManualClock) -> None:
        """In a chain when the step is named, across joins at submit; nothing is stored."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, options=Options(chain_depth_limit=3))
        builder = scheduler.enqueue(step, "a").then(step, "b").then(step, "c")
        with pytest.raises(InvalidJob, match="chain_depth_limit"):
            builder.then(step, "d")
        chain = scheduler.enqueue(step, "a").then(step, "b")
        with pytest.raises(InvalidJob, match="4 jobs of the graph"):
            scheduler.join([chain]).then(step, "c").then(step, "d").submit()
        assert not scheduler.enqueued()
        scheduler.close()

    def test_a_cycle_is_refused(self) -> None:
        """Whoever waits for itself would wait for ever."""
        a, b, c = new_id(), new_id(), new_id()
        edges = [
            Edge(parent_id=a, child_id=b),
            Edge(parent_id=b, child_id=c),
            Edge(parent_id=c, child_id=b),
        ]
        require_shallow(edges[:2], 3)
        with pytest.raises(InvalidJob, match="cycle"):
            require_shallow(edges, 1000)


class TestWorkflows:
    @pytest.mark.parametrize(
        ("value", "taken"), [(4, set()), (7, {"odd"}), (12, {"high"}), (13, {"high", "odd"})]
    )
    def test_every_branch_that_matches_fires(
        self, scheduler: ManualScheduler, value: int, taken: set[str]
    ) -> None:
        """Lower order first; branches not taken are CANCELED as such."""
        handle = (
            scheduler.enqueue(number, value)
            .when_result(is_high, step, "high", order=2)
            .when_result(is_odd, step, "odd", order=1)
            .then_on_success(step, "done")
            .then_on_failure(step, "alarm")
            .submit()
        )
        scheduler.drain()
        assert sorted(ran) == sorted(taken | {"done"})
        names = ["high", "odd"]
        assert statuses(handle) == [
            "SUCCEEDED",
            *("SUCCEEDED" if name in taken else "CANCELED not_taken" for name in names),
            "SUCCEEDED",
            "CANCELED not_taken",
        ]

    def test_a_failure_takes_the_failure_branches(self, scheduler: ManualScheduler) -> None:
        """``then_on_failure`` and a predicate on the JobResult; a condition on the result is not asked."""
        broken.add("a")
        handle = (
            scheduler.enqueue(step, "a")
            .then_on_failure(step, "alarm")
            .branch(Condition.custom(ended_badly), step, "sorry", description="it failed")
            .when_result(raises, step, "never")
            .then_on_success(step, "done")
            .submit()
        )
        scheduler.drain()
        assert ran == ["a", "alarm", "sorry"]
        assert statuses(handle)[3:] == ["CANCELED not_taken", "CANCELED parent_failed"]

    def test_a_condition_that_raises_fails_its_branch(self, scheduler: ManualScheduler) -> None:
        """Not the parent, and not the other branches; the branch is a dead letter that can be retried."""
        handle = scheduler.enqueue(step, "a").when(raises, step, "bad").then_on_success(step, "good").submit()
        scheduler.drain()
        assert statuses(handle) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
        branch = handle.steps[1].job()
        assert branch.error_type == "ConditionFailed"
        assert "no such customer" in (branch.error or "")
        assert [letter.job_id for letter in scheduler.dead_letters.find()] == [branch.id]
        assert ran == ["a", "good"]
        assert handle.steps[1].retry()  # a person decides that it shall run
        scheduler.drain()
        assert ran == ["a", "good", "bad"]

    def test_a_condition_outside_the_policy(self, stores: Stores, clock: ManualClock) -> None:
        """Refused at submit; if it is stored all the same, the worker refuses it and fails the branch."""
        strict = ManualScheduler(store=stores.open(), clock=clock, allow=[HERE])
        with pytest.raises(TargetNotAllowed):
            strict.enqueue(step, "a").when_result(outsiders.is_welcome, step, "b").submit()
        lax = ManualScheduler(store=stores.open(), clock=clock, seed=1)
        handle = lax.enqueue(step, "a").when_result(outsiders.is_welcome, step, "b").submit()
        strict.drain()
        assert statuses(handle) == ["SUCCEEDED", "FAILED"]
        branch = handle.steps[1].job()
        assert branch.error_type == "ConditionFailed"
        assert "TargetNotAllowed" in (branch.error or "")
        assert (ran, outsiders.asked) == (["a"], [])
        strict.close()
        lax.close()

    def test_a_retry_asks_the_conditions_again(self, scheduler: ManualScheduler) -> None:
        """What the failure fired has run; what it did not take gets its chance."""
        broken.add("a")
        handle = (
            scheduler.enqueue(step, "a")
            .then_on_failure(step, "alarm")
            .when(succeeded, step, "well")
            .then_on_success(step, "done")
            .submit()
        )
        scheduler.drain()
        broken.clear()
        handle.retry()
        scheduler.drain()
        assert statuses(handle) == ["SUCCEEDED"] * 4
        assert ran == ["a", "alarm", "a", "well", "done"]


class LosesOnce:
    """A store whose connection is lost in the first call of each of these methods."""

    def __init__(self, store: JobStore, *methods: str) -> None:
        self._store = store
        self._methods = set(methods)

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            self._methods.remove(name)
            raise StoreUnavailable(f"lost before {name}")
        return getattr(self._store, name)


class TestLostConnections:
    @pytest.mark.parametrize("method", ["conditions_of", "batch", "parents_of", "results"])
    def test_they_cost_no_attempt_and_no_branch(
        self, stores: Stores, clock: ManualClock, method: str
    ) -> None:
        """Neither a condition nor an argument that cannot be read at once is a failure of anybody's."""
        broken_store: Any = LosesOnce(stores.open(), method)
        scheduler = ManualScheduler(store=broken_store, clock=clock)
        handle = scheduler.enqueue(number, 13).when_result(is_high, step, "high", RESULT).submit()
        batch = (
            scheduler.enqueue_batch("b").for_each([1], number).then_on_batch_success(step, "done").submit()
        )
        scheduler.drain()
        assert statuses(handle) == ["SUCCEEDED", "SUCCEEDED"]
        assert sorted(ran, key=str) == [("high", 13), "done"]
        jobs = [*handle.steps, *batch.parent.steps]
        assert [each.job().attempts for each in jobs] == [1] * 4
        scheduler.close()


class TestEvents:
    def test_what_a_cascade_cancels_is_told(self, scheduler: ManualScheduler) -> None:
        """Each canceled job has its event, with the reason, in the order of the cascade."""
        from ratchet import JobCanceled

        heard: list[tuple[str, str]] = []
        remember: Callable[[Any], None] = lambda event: heard.append((event.target[-4:], event.reason))  # noqa: E731
        scheduler.on(JobCanceled)(remember)
        broken.add("a")
        scheduler.enqueue(step, "a").then(step, "b").then(step, "c").submit()
        scheduler.drain()
        assert heard == [("step", "parent_failed"), ("step", "parent_canceled")]
