"""Chains, workflows, joins and signals through the public API, the same on every store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    RESULTS,
    Condition,
    InvalidJob,
    JobContext,
    JobHandle,
    JobResult,
    JobStatus,
    Join,
    ManualClock,
    Options,
    StoreUnavailable,
    TargetNotAllowed,
)
from ratchet.api.submission import require_shallow
from ratchet.model.composition import Edge
from ratchet.model.identifiers import new_id
from ratchet.spi.store import JobStore
from ratchet.testing import ManualScheduler
from tests.integration import outsiders
from tests.integration.conftest import Stores

HERE = "tests.integration.test_composition"
ran: list[Any] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    broken.clear()
    outsiders.asked.clear()


def step(name: str, given: Any = None) -> str:
    """Returns its name, unless it is broken."""
    ran.append(name if given is None else (name, given))
    if name in broken:
        raise ValueError(f"{name} is broken")
    return name


def collect(results: list[Any]) -> list[Any]:
    ran.append(results)
    return results


def number(value: int) -> int:
    return value


def is_high(result: int) -> bool:
    return result > 10


def is_odd(result: int) -> bool:
    return result % 2 == 1


def ended_badly(ended: JobResult) -> bool:
    return not ended.succeeded and ended.error_type is not None


def raises(ended: Any) -> bool:
    raise LookupError("no such customer")


def signaled(name: str) -> Any:
    signal = JobContext.current().signal
    assert signal is not None
    ran.append((name, signal.key, signal.payload, signal.approved, signal.reason))
    return signal.payload


def statuses(handle: JobHandle[Any]) -> list[str]:
    """The states of all steps, in the order they were named, with the reason of a cancel."""
    jobs = [each.job() for each in handle.steps]
    return [f"{job.status}{f' {job.canceled_reason}' if job.canceled_reason else ''}" for job in jobs]


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
            .when(_succeeded, step, "well")
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


def _succeeded(ended: JobResult) -> bool:
    return ended.succeeded


class TestJoins:
    def test_all(self, scheduler: ManualScheduler) -> None:
        """Handles and builders; RESULTS lists what they returned in the order they were named."""
        first = scheduler.enqueue_now(step, "a")
        join = scheduler.join([first, scheduler.enqueue(step, "b"), scheduler.enqueue(step, "c")])
        handle = join.then(collect, RESULTS).submit()
        scheduler.drain()
        assert handle.result() == ["a", "b", "c"]

    def test_of_jobs_that_have_ended(self, scheduler: ManualScheduler) -> None:
        """A join of what is there already runs at once, or is canceled at once."""
        broken.add("b")
        good, bad = scheduler.enqueue_now(step, "a"), scheduler.enqueue_now(step, "b")
        scheduler.drain()
        one = scheduler.join([good, bad], Join.at_least(1)).then(step, "one").submit()
        both = scheduler.join([good, bad], Join.ALL).then(step, "both").submit()
        scheduler.drain()
        assert (one.status(), both.status()) == (JobStatus.SUCCEEDED, JobStatus.CANCELED)

    @pytest.mark.parametrize(
        ("needs", "expected"), [(1, "SUCCEEDED"), (2, "SUCCEEDED"), (3, "CANCELED parent_failed")]
    )
    def test_at_least(self, scheduler: ManualScheduler, needs: int, expected: str) -> None:
        """Of three jobs one fails."""
        broken.add("b")
        jobs = [scheduler.enqueue(step, name) for name in "abc"]
        handle = scheduler.join(jobs, Join.at_least(needs)).then(step, "joined").submit()
        scheduler.drain()
        assert statuses(handle)[-1] == expected
        assert ran.count("joined") == (expected == "SUCCEEDED")

    @pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
    def test_two_failed_parents_are_retried_one_after_the_other(
        self, scheduler: ManualScheduler, order: tuple[str, str]
    ) -> None:
        """Whichever retry comes last makes the join reachable again."""
        broken.update("ab")
        parents = {name: scheduler.enqueue_now(step, name) for name in "ab"}
        handle = scheduler.join(parents.values()).then(step, "joined").submit()
        scheduler.drain()
        assert handle.status() is JobStatus.CANCELED
        broken.clear()
        for name in order:
            parents[name].retry()
            scheduler.drain()
        assert handle.status() is JobStatus.SUCCEEDED

    def test_a_parent_that_could_be_done_without_counts_again_after_its_retry(
        self, scheduler: ManualScheduler
    ) -> None:
        """Two of three: the first fails and is retried while the join still waits for the others."""
        broken.add("a")
        first = scheduler.enqueue_now(step, "a")
        later = [scheduler.enqueue(step, name).with_delay(60).submit() for name in "bc"]
        handle = scheduler.join([first, *later], Join.at_least(2)).then(step, "joined").submit()
        scheduler.drain()
        assert (first.status(), handle.status()) == (JobStatus.FAILED, JobStatus.WAITING)
        broken.clear()
        first.retry()
        scheduler.drain()
        later[0].cancel()
        assert handle.status() is JobStatus.WAITING
        scheduler.clock.advance(61)  # type: ignore[attr-defined]  # a manual clock
        scheduler.drain()
        assert handle.status() is JobStatus.SUCCEEDED


class TestGraph:
    def test_text_and_mermaid(self, scheduler: ManualScheduler) -> None:
        """A tree for people, a flowchart for documents, each with states and conditions."""
        broken.add("b")
        handle = (
            scheduler.enqueue(step, "a")
            .then(step, "b")
            .then_on_failure(collect, [])
            .when_result(is_high, number, 1, description="a high one")
            .submit()
        )
        scheduler.drain()
        graph = handle.graph()
        assert str(graph).replace(f"{HERE}:", "").splitlines() == [
            "step SUCCEEDED",
            "  step FAILED",
            "    on failure: collect SUCCEEDED",
            "    if a high one: number CANCELED (not_taken)",
        ]
        assert graph.mermaid().replace(f"{HERE}:", "").splitlines() == [
            "flowchart TD",
            '    j0["step<br>SUCCEEDED"]',
            '    j1["step<br>FAILED"]',
            '    j2["collect<br>SUCCEEDED"]',
            '    j3["number<br>CANCELED"]',
            "    j0 --> j1",
            "    j1 -->|on failure| j2",
            "    j1 -->|if a high one| j3",
        ]
        assert len(handle.steps[3].graph()) == 4


class TestSignals:
    def test_a_waiting_job_is_released(self, scheduler: ManualScheduler) -> None:
        """With the payload; the steps behind it follow."""
        handle = scheduler.enqueue(signaled, "ship").await_signal("order:1").then(step, "b", RESULT).submit()
        scheduler.drain()
        assert (statuses(handle), ran) == (["WAITING", "WAITING"], [])
        assert scheduler.signal("order:1", {"by": "ann"}) == 1
        scheduler.drain()
        assert ran == [("ship", "order:1", {"by": "ann"}, True, None), ("b", {"by": "ann"})]

    def test_before_its_job(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Kept for an hour, and consumed by the first that waits; the next one waits in vain."""
        assert scheduler.signal("k", 1) == 0
        clock.advance(timedelta(minutes=59))
        first = scheduler.enqueue(signaled, "first").await_signal("k").submit()
        second = scheduler.enqueue(signaled, "second").await_signal("k").submit()
        scheduler.drain()
        assert (first.status(), second.status()) == (JobStatus.SUCCEEDED, JobStatus.WAITING)

    def test_too_long_before(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """After an hour it is forgotten."""
        scheduler.signal("k")
        clock.advance(timedelta(hours=1, seconds=1))
        handle = scheduler.enqueue(signaled, "late").await_signal("k").submit()
        scheduler.drain()
        assert handle.status() is JobStatus.WAITING

    def test_two_for_one_waiter(self, scheduler: ManualScheduler) -> None:
        """The first is its signal; the second changes nothing for it and is kept for the next waiter."""
        handle = scheduler.enqueue(signaled, "one").await_signal("k").submit()
        assert (scheduler.signal("k", 1), scheduler.signal("k", 2)) == (1, 0)
        scheduler.drain()
        assert handle.result() == 1
        later = scheduler.enqueue(signaled, "two").await_signal("k").submit()
        scheduler.drain()
        assert later.result() == 2

    def test_one_for_two_waiters(self, scheduler: ManualScheduler) -> None:
        """All who wait are released; with ``job_id`` only that one."""
        jobs = [scheduler.enqueue(signaled, name).await_signal("k").submit() for name in "abc"]
        assert scheduler.signal("k", "for b", job_id=jobs[1].id) == 1
        assert scheduler.signal("k", "for all") == 2
        scheduler.drain()
        assert [job.result() for job in jobs] == ["for all", "for b", "for all"]

    def test_a_rejection_runs_the_job(self, scheduler: ManualScheduler) -> None:
        """It sees the no, and the reason."""
        scheduler.enqueue(signaled, "ship").await_signal("k").submit()
        scheduler.signal("k", rejected="too expensive")
        scheduler.drain()
        assert ran == [("ship", "k", None, False, "too expensive")]

    def test_a_timeout_is_a_failure_that_is_not_retried(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A dead letter, whatever its retries; failure branches fire, and a late signal is kept."""
        handle = (
            scheduler.enqueue(signaled, "ship")
            .with_max_retries(5)
            .await_signal("k", timeout=timedelta(hours=24))
            .then_on_failure(step, "alarm")
            .submit()
        )
        clock.advance(timedelta(hours=23, minutes=59))
        scheduler.drain()
        assert handle.status() is JobStatus.WAITING
        clock.advance(timedelta(minutes=2))
        scheduler.drain()
        job = handle.job()
        assert (job.status, job.error_type, job.attempts) == (JobStatus.FAILED, "SignalTimeout", 0)
        assert [letter.reason for letter in scheduler.dead_letters.find()] == ["signal timeout"]
        assert ran == ["alarm"]
        assert scheduler.signal("k") == 0


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
