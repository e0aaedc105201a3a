"""Callbacks, progress reports and predicates that were given arguments, the same on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    RESULTS,
    BatchContext,
    Condition,
    InvalidJob,
    JobContext,
    JobError,
    JobFilter,
    JobResult,
    JobStatus,
    JobType,
    ManualClock,
    Options,
    PayloadTooLarge,
    TargetNotAllowed,
    call,
)
from ratchet.api.targets.names import STORED
from ratchet.engine.poller import PARKED_INTERVAL
from ratchet.model.callbacks import WITH_ARGUMENTS
from ratchet.testing import ManualScheduler
from tests.integration import outsiders
from tests.integration.conftest import Stores

told: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    told.clear()
    yield
    told.clear()


def work(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return value * 2


def record(ctx: JobContext, *given: Any, **named: Any) -> None:
    told.append(("record", ctx.parent_id, given, named, dict(ctx.params)))


def alert(ctx: JobContext, error: JobError, order_id: int, wait: timedelta = timedelta(0)) -> None:
    told.append(("alert", error.type, order_id, wait))


def plain_alert(ctx: JobContext, error: JobError) -> None:
    told.append(("plain", error.type))


def report(batch: BatchContext, channel: str, *, level: int) -> None:
    told.append((batch.completed_items, channel, level))


def is_above(result: int, limit: int) -> bool:
    return result > limit


def took(ended: JobResult, *, at_least: int) -> bool:
    return ended.attempts >= at_least


def many_done(batch: BatchContext, share: float) -> bool:
    return batch.success_rate >= share


def follow(name: str) -> None:
    told.append(name)


class TestCallbacks:
    def test_a_failure_callback_gets_what_it_was_given(self, scheduler: ManualScheduler) -> None:
        """``call(alert, 7)`` is called as alert(ctx, error, 7), with values of their own types."""
        scheduler.enqueue(work, -1).on_failure(call(alert, 7, wait=timedelta(minutes=3))).submit()
        scheduler.drain()
        assert told == [("alert", "ValueError", 7, timedelta(minutes=3))]

    def test_a_success_callback_gets_what_it_was_given(self, scheduler: ManualScheduler) -> None:
        """``call(record, 7)`` is called as record(ctx, 7); RESULT is the job's own result."""
        handle = scheduler.enqueue(work, 4).on_success(call(record, 7, RESULT, by="ann")).submit()
        scheduler.drain()
        assert told == [("record", handle.id, (7, 8), {"by": "ann"}, {})]

    def test_a_lambda_that_is_one_call(self, scheduler: ManualScheduler) -> None:
        """Its variables are read at submit, and nothing of it is called before the job has ended."""
        order_id = 7
        builder = scheduler.enqueue(work, -1).on_failure(lambda: alert(order_id))  # type: ignore[arg-type,call-arg]
        order_id = 8
        builder.submit()
        order_id = 9
        assert told == []
        scheduler.drain()
        assert told == [("alert", "ValueError", 8, timedelta(0))]

    def test_params_stay_the_users(self, scheduler: ManualScheduler) -> None:
        """Neither the job, its callback nor a search shows where the arguments are kept; the names are taken."""
        builder = scheduler.enqueue(work, 4).with_param("region", "eu").with_param("$", 1)
        handle = builder.on_success(call(record, 7)).submit()
        scheduler.drain()
        params = {"region": "eu", "$": 1}
        assert told == [("record", handle.id, (7,), {}, params)]
        assert handle.job().params == params
        (callback,) = scheduler.jobs.find(JobFilter(types=[JobType.CALLBACK]))
        assert callback.params == params
        with pytest.raises(InvalidJob, match="reserved"):
            scheduler.enqueue(work, 4).with_param("ratchet:on_success", 1)

    def test_a_failure_that_no_worker_saw(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A signal that does not come is the store's failure; the callback has its arguments all the same."""
        builder = scheduler.enqueue(work, 1).await_signal("go", timeout=60)
        builder.on_failure(call(alert, 7)).submit()
        clock.advance(120)
        scheduler.drain()
        assert [(one[0], one[2]) for one in told] == [("alert", 7)]

    def test_many_jobs_and_the_items_of_a_batch(self, scheduler: ManualScheduler) -> None:
        """Bulk submissions and batches keep the arguments with each of their jobs."""
        scheduler.submit_all([scheduler.enqueue(work, n).on_failure(call(alert, n)) for n in (-1, -2)])
        scheduler.enqueue_batch("import").for_each([-3], work).on_failure(call(alert, -3)).submit()
        scheduler.drain()
        assert sorted(one[2] for one in told) == [-3, -2, -1]

    def test_a_plain_callback_is_stored_as_before(self, scheduler: ManualScheduler) -> None:
        """Without arguments nothing is marked: older nodes run these callbacks."""
        scheduler.enqueue(work, -1).on_failure(plain_alert).submit()
        scheduler.enqueue(work, -1).on_failure(call(plain_alert)).submit()  # type: ignore[call-arg]
        scheduler.drain()
        assert told == [("plain", "ValueError")] * 2
        targets = {job.target for job in scheduler.jobs.find(JobFilter(types=[JobType.CALLBACK]))}
        assert targets == {f"{__name__}:plain_alert"}

    def test_a_node_of_0_1_0_leaves_it_alone(self, scheduler: ManualScheduler) -> None:
        """Its target is no name that such a node could import: it parks the callback instead of calling it wrong."""
        scheduler.enqueue(work, -1).on_failure(call(alert, 7)).submit()
        scheduler.drain()
        (callback,) = scheduler.jobs.find(JobFilter(types=[JobType.CALLBACK]))
        assert callback.target == f"{__name__}:alert{WITH_ARGUMENTS}"
        assert STORED.fullmatch(callback.target) is None
        assert callback.status is JobStatus.SUCCEEDED

    def test_a_parked_callback_runs_where_it_can(self, stores: Stores, clock: ManualClock) -> None:
        """What a node without the function has parked flows to one that has it, with its arguments."""
        able = ManualScheduler(store=stores.open(), clock=clock)
        unable = ManualScheduler(store=stores.open(), clock=clock, allow=[outsiders.__name__])
        able.enqueue(work, -1).on_failure(call(alert, 7)).submit()
        able.drain(limit=1)
        assert unable.drain() == 1
        (callback,) = able.jobs.find(JobFilter(types=[JobType.CALLBACK]))
        assert [reason.code for reason in able.explain(callback.id)] == ["parked"]
        clock.advance(PARKED_INTERVAL)
        able.drain()
        assert told == [("alert", "ValueError", 7, timedelta(0))]
        able.close()
        unable.close()


class TestRefusals:
    def test_arguments_that_do_not_fit(self, scheduler: ManualScheduler) -> None:
        """Too many, too few or unknown: refused at submit, by the callback's own signature."""
        for wrong in (call(alert), call(alert, 1, wait=2, x=3), call(plain_alert, 1)):  # type: ignore[call-arg]
            with pytest.raises(InvalidJob, match="do not fit"):
                scheduler.enqueue(work, 1).on_failure(wrong).submit()
        assert not scheduler.enqueued()

    def test_placeholders_that_mean_nothing(self, scheduler: ManualScheduler) -> None:
        """A failure has no result, and a callback has no joined jobs."""
        with pytest.raises(InvalidJob, match="RESULT"):
            scheduler.enqueue(work, 1).on_failure(call(alert, RESULT)).submit()
        with pytest.raises(InvalidJob, match="RESULTS"):
            scheduler.enqueue(work, 1).on_success(call(record, RESULTS)).submit()
        assert not scheduler.enqueued()

    def test_too_large(self, stores: Stores, clock: ManualClock) -> None:
        """They obey the limit of arguments, alone and together with the params."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, options=Options(payload_limit=2_000))
        with pytest.raises(PayloadTooLarge):
            scheduler.enqueue(work, 1).on_success(call(record, "x" * 3_000)).submit()
        builder = scheduler.enqueue(work, 1).with_param("a", "x" * 1_500)
        with pytest.raises(PayloadTooLarge, match="params"):
            builder.on_success(call(record, "x" * 1_500)).submit()
        assert not scheduler.enqueued()
        scheduler.close()

    def test_the_target_policy_holds(self, stores: Stores, clock: ManualClock) -> None:
        """A call's function is a target like any other."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, allow=[__name__])
        with pytest.raises(TargetNotAllowed):
            scheduler.enqueue(work, 1).on_success(call(outsiders.is_welcome)).submit()
        assert not scheduler.enqueued()
        scheduler.close()


class TestReportsAndPredicates:
    def test_progress(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """``on_progress(call(report, "ops", level=2))`` is called as report(batch, "ops", level=2)."""
        batch = scheduler.enqueue_batch("import").for_each([1, 2], work)
        batch.on_progress(call(report, "ops", level=2)).submit()
        scheduler.drain()
        clock.advance(2)
        scheduler.drain()
        assert told[-1] == (2, "ops", 2)

    def test_predicates(self, scheduler: ManualScheduler) -> None:
        """A branch asks its predicate with what it was given; of two limits only one is passed."""
        builder = scheduler.enqueue(work, 4)
        builder.when_result(call(is_above, 7), follow, "above 7")
        builder.when_result(call(is_above, 8), follow, "above 8")
        builder.when(call(took, at_least=1), follow, "one attempt")
        builder.branch(Condition.custom(call(took, at_least=2)), follow, "two attempts").submit()
        batch = scheduler.enqueue_batch("import").for_each([1, -1], work)
        batch.then_when_batch(call(many_done, 0.5), follow, "half")
        batch.then_when_batch(call(many_done, 0.6), follow, "more").submit()
        scheduler.drain()
        assert sorted(told) == ["above 7", "half", "one attempt"]

    def test_branch_targets(self, scheduler: ManualScheduler) -> None:
        """Branches take calls and lambdas, too."""
        builder = scheduler.enqueue(work, 4).then_on_success(call(follow, "call"))
        builder.then_on_success(lambda: follow("lambda")).then_on_failure(call(follow, "never")).submit()
        scheduler.drain()
        assert sorted(told) == ["call", "lambda"]
