"""Joins and graphs through the public API, the same on every store."""

from __future__ import annotations

import pytest

from ratchet import RESULTS, JobStatus, Join
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import (
    HERE,
    broken,
    collect,
    forget,
    is_high,
    number,
    ran,
    statuses,
    step,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget()


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
