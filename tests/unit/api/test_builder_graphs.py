"""Builders of several jobs: chains, branches and joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ratchet import RESULT, RESULTS, Condition, InvalidJob, JobStatus, JobType, Join, ManualClock, Options
from ratchet.model.composition import EdgeKind
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.unit.api.builder_samples import alert, charge, edges, is_high, is_slow, pay, record, report, ship
from tests.unit.api.test_declarations import failing


class TestChainsAndWorkflows:
    def test_with_configures_the_step_named_last(self, scheduler: ManualScheduler) -> None:
        """Options go to the step before them, the defaults stay with the others."""
        handle = (
            scheduler.enqueue(charge, 1)
            .with_max_retries(1)
            .then(ship, RESULT)
            .with_max_retries(2)
            .with_queue("shipping")
            .then_on_failure(ship, "lost")
            .with_max_retries(3)
            .submit()
        )
        jobs = [step.job() for step in handle.steps]
        assert [job.max_retries for job in jobs] == [1, 2, 3]
        assert [job.queue for job in jobs] == ["default", "shipping", "default"]

    def test_a_chain_waits_step_by_step(self, scheduler: ManualScheduler) -> None:
        """Each step waits for the one before it, is known by its type, and gets its result."""
        handle = scheduler.enqueue(charge, 1).then(ship, RESULT).then(ship, [RESULT]).submit()
        assert [s.status() for s in handle.steps] == [
            JobStatus.PENDING,
            JobStatus.WAITING,
            JobStatus.WAITING,
        ]
        assert {s.job().type for s in handle.steps} == {JobType.CHAIN_STEP}
        assert [s.job().parent_id for s in handle.steps[1:]] == [s.id for s in handle.steps[:2]]
        scheduler.drain()
        assert handle.last.result() == ["1 EUR"]
        assert handle.last == handle.steps[-1]

    def test_branches_hang_on_the_last_then(self, scheduler: ManualScheduler) -> None:
        """Conditions, order and definition order are stored on edges from the trunk's last step."""
        handle = (
            scheduler.enqueue(charge, 1)
            .then_on_failure(alert, 1, 2)
            .then(ship, RESULT)
            .when_result(is_high, record, 1)
            .when(is_slow, report, [], order=-1, description="slow")
            .then_on_success(charge, 3)
            .branch(Condition.custom(is_slow), pay, 1)
            .submit()
        )
        assert edges(scheduler, handle.id) == [
            ("charge", "alert", EdgeKind.FAILURE, 0),
            ("charge", "ship", EdgeKind.SUCCESS, 1),
            ("ship", "record", EdgeKind.CONDITION, 0),
            ("ship", "report", EdgeKind.CONDITION, 1),
            ("ship", "charge", EdgeKind.SUCCESS, 2),
            ("ship", "pay", EdgeKind.CONDITION, 3),
        ]
        conditions = scheduler.store.conditions_of(handle.last.id)
        assert [(c.condition.kind, c.condition.order) for c in conditions if c.condition] == [
            ("job_result", -1),
            ("result", 0),
            ("job_result", 0),
        ]
        assert handle.last.job().target.endswith(":ship")

    def test_the_graph_is_readable(self, scheduler: ManualScheduler) -> None:
        """A graph prints as a tree, and as Mermaid."""
        handle = scheduler.enqueue(charge, 1).then(ship, RESULT).then_on_failure(record, 1).submit()
        lines = str(handle.graph()).splitlines()
        assert [line.split(":")[-1] for line in lines] == [
            "charge PENDING",
            "ship WAITING",
            "record WAITING",
        ]
        assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4]
        assert "j1 -->|on failure| j2" in handle.graph().mermaid()

    def test_a_chain_that_is_too_deep(self) -> None:
        """The depth of a chain has a limit, and the refusal says what to do."""
        scheduler = manual_scheduler(options=Options(chain_depth_limit=3))
        builder = scheduler.enqueue(charge, 1).then(ship, 1).then(ship, 1)
        with pytest.raises(InvalidJob, match="last step submit the next chain"):
            builder.then(ship, 1)

    def test_a_signal_makes_the_whole_wait(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A job that awaits a signal is WAITING and knows what for."""
        handle = scheduler.enqueue(charge, 1).await_signal("approved", timeout=60).submit()
        assert handle.status() is JobStatus.WAITING
        assert [reason.code for reason in handle.explain()] == ["waiting_signal"]
        assert scheduler.signal("approved", {"by": "ann"}) == 1
        assert handle.status() is JobStatus.PENDING


class TestJoins:
    def test_a_join_waits_for_handles_and_builders(self, scheduler: ManualScheduler) -> None:
        """Joined builders are stored with the join; RESULTS keeps the order of the list."""
        first = scheduler.enqueue_now(charge, 1)
        second = scheduler.enqueue(charge, 2).then(ship, [RESULT])
        joined = scheduler.join([second, first], Join.ALL).then(report, RESULTS).submit()
        assert joined.status() is JobStatus.WAITING
        assert joined.job().type is JobType.WORKFLOW_JOIN
        scheduler.drain()
        assert joined.result() == [["2 EUR"], "1 EUR"]
        with pytest.raises(InvalidJob, match="already submitted"):
            second.submit()

    def test_at_least(self, scheduler: ManualScheduler) -> None:
        """``Join.at_least(1)`` goes on with the first success, though another job failed."""
        lost = scheduler.enqueue_now(failing, 1)
        won = scheduler.enqueue_now(charge, 1)
        joined = scheduler.join([lost, won], Join.at_least(1)).then(ship, "go").submit()
        scheduler.drain()
        assert joined.result() == "go"

    @pytest.mark.parametrize(
        ("join", "says"),
        [
            (lambda s, h: s.join([]), "at least one"),
            (lambda s, h: s.join([h, h]), "each job once"),
            (lambda s, h: s.join([h], Join.at_least(2)), "only 1 jobs"),
            (lambda s, h: s.join(["job"]), "handles, ids and builders"),
            (lambda s, h: s.join([h], "ALL"), "Join.ALL"),
            (
                lambda s, h: s.join([s.enqueue(charge, 1).with_idempotency_key("k").immediate()]),
                "submit it and join its handle",
            ),
        ],
    )
    @pytest.mark.filterwarnings("ignore::ratchet.UnsubmittedJobWarning")
    def test_a_join_that_makes_no_sense(
        self, scheduler: ManualScheduler, join: Callable[[Any, Any], object], says: str
    ) -> None:
        """Joins that could never be fulfilled, or whose parents are not certain, are refused."""
        handle = scheduler.enqueue_now(charge, 1)
        with pytest.raises(InvalidJob, match=says):
            join(scheduler, handle)
