"""Builders: what they store, what they refuse, and that nothing happens before ``submit()``."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    BackoffPolicy,
    Busy,
    InvalidJob,
    InvalidTarget,
    JobBuilder,
    JobStatus,
    JobType,
    ManualClock,
    PayloadTooLarge,
    Priority,
    TargetNotAllowed,
    UnstorableValue,
    UnsubmittedJobWarning,
    call,
)
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.unit.api.builder_samples import (
    Orders,
    alert,
    charge,
    declared,
    dropped,
    is_slow,
    orders,
    other,
    pay,
    record,
    ship,
    stored,
)


class TestSubmit:
    def test_nothing_is_stored_before_submit(self, scheduler: ManualScheduler) -> None:
        """A builder touches the store with ``submit()`` and not earlier."""
        builder = scheduler.enqueue(charge, 42).with_priority(Priority.HIGH).then(ship, RESULT)
        assert stored(scheduler) == 0
        builder.submit()
        assert stored(scheduler) == 2

    def test_everything_that_was_said_is_stored(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The long chain of the API page ends up, word for word, in the job."""
        handle = (
            scheduler.enqueue(charge, 42, currency="USD")
            .with_priority(Priority.HIGH)
            .with_idempotency_key("request-1")
            .with_business_key("invoice-42", busy=Busy.RAISE)
            .with_max_retries(3)
            .with_backoff(BackoffPolicy.EXPONENTIAL, timedelta(seconds=30), jitter=0.1)
            .with_timeout(timedelta(minutes=5))
            .with_delay(timedelta(hours=1))
            .with_expiry(timedelta(days=1))
            .with_tags("billing", "eu")
            .with_param("region", "eu")
            .with_resource("gateway")
            .with_queue("emails")
            .on_success(record)
            .on_failure(alert)
            .submit()
        )
        job = handle.job()
        assert (job.args, job.kwargs, job.status, job.type) == (
            (42,),
            {"currency": "USD"},
            JobStatus.PENDING,
            JobType.SINGLE,
        )
        assert (job.priority, job.max_retries, job.timeout) == (Priority.HIGH, 3, timedelta(minutes=5))
        assert (job.idempotency_key, job.business_key) == ("request-1", "invoice-42")
        assert job.scheduled_at == clock.now() + timedelta(hours=1)
        assert job.expires_at == clock.now() + timedelta(days=1)
        assert (set(job.tags), job.params, job.resource, job.queue) == (
            {"billing", "eu"},
            {"region": "eu"},
            "gateway",
            "emails",
        )
        stored_record = scheduler.store.get(handle.id)
        assert stored_record is not None
        assert (stored_record.backoff, stored_record.backoff_base) == (
            BackoffPolicy.EXPONENTIAL,
            timedelta(seconds=30),
        )
        assert stored_record.jitter == pytest.approx(0.1)

    def test_durations_are_timedelta_or_seconds(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A plain number counts seconds, wherever a duration is taken."""
        job = scheduler.enqueue(charge, 1).with_delay(90).with_timeout(1.5).with_expiry(3600).submit().job()
        assert job.scheduled_at == clock.now() + timedelta(seconds=90)
        assert job.timeout == timedelta(seconds=1.5)
        assert job.expires_at == clock.now() + timedelta(hours=1)

    def test_a_past_time_is_kept(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A due time that has passed stays what it is: the job has been waiting since then."""
        past = clock.now() - timedelta(days=3)
        assert scheduler.enqueue(charge, 1).at(past).submit().job().scheduled_at == past
        assert scheduler.schedule(past, charge, 1).submit().job().scheduled_at == past

    def test_immediate_takes_a_delay_back(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The last word about the due time counts."""
        job = scheduler.schedule(3600, charge, 1).immediate().submit().job()
        assert job.scheduled_at == clock.now()

    def test_a_builder_is_used_once(self, scheduler: ManualScheduler) -> None:
        """After ``submit()`` neither a second one nor a change is accepted, and one job is stored."""
        builder = scheduler.enqueue(charge, 1)
        builder.submit()
        with pytest.raises(InvalidJob, match="already submitted"):
            builder.submit()
        with pytest.raises(InvalidJob, match="already submitted"):
            builder.with_tags("late")
        assert stored(scheduler) == 1

    def test_a_lambda_is_taken_apart_at_submit(self, scheduler: ManualScheduler) -> None:
        """Target and arguments are those at the time of ``submit()``, not of ``enqueue``."""
        number = 1
        builder = scheduler.enqueue(lambda: charge(number))
        number = 2
        job = builder.submit().job()
        assert job.target.endswith(":charge")
        assert job.args == (2,)

    def test_a_lambda_of_a_declared_function_has_its_defaults(self) -> None:
        """What ``@scheduler.job`` says holds for a lambda's target too."""
        scheduler = manual_scheduler()
        scheduler.job(name="builders.declared", max_retries=7)(declared)
        assert scheduler.enqueue(lambda: declared(1)).submit().job().max_retries == 7

    def test_call_carries_arguments(self, scheduler: ManualScheduler) -> None:
        """``call(f, ...)`` is a target with its arguments, and takes no more of them."""
        assert scheduler.enqueue(call(charge, 7, currency="CHF")).submit().job().kwargs == {"currency": "CHF"}
        with pytest.raises(InvalidJob, match="own arguments"):
            scheduler.enqueue(call(charge, 7), 8)  # type: ignore[call-overload]

    def test_a_method_is_stored_by_class_and_name(self, scheduler: ManualScheduler) -> None:
        """An unbound method, a bound one and a lambda name the same target."""
        targets = {
            scheduler.enqueue(Orders.process, 1).submit().job().target,
            scheduler.enqueue(orders.process, 1).submit().job().target,
            scheduler.enqueue(lambda: orders.process(1)).submit().job().target,
        }
        assert {target.partition(":")[2] for target in targets} == {"Orders.process"}

    def test_a_breaker_becomes_part_of_the_stream(self, scheduler: ManualScheduler) -> None:
        """A job of a function under ``@circuit_breaker`` waits behind that breaker."""
        handle = scheduler.enqueue(pay, 1).submit()
        stored_record = scheduler.store.get(handle.id)
        assert stored_record is not None
        assert stored_record.stream.breaker == "gateway"

    def test_a_declaration_that_changes_counts_from_then_on(self, scheduler: ManualScheduler) -> None:
        """What was settled for the old one, or for another job of the same name, is not used for the new one."""

        def later(number: int) -> int:
            return number

        for retries, queue, tags in ((1, "a", ["x"]), (2, "b", ["y", "y"]), (3, None, [])):
            job = scheduler.job(later, name="later", max_retries=retries, queue=queue, tags=tags)
            for _ in range(2):
                found = scheduler.enqueue_now(job, 1).job()
                assert (found.max_retries, found.queue) == (retries, queue or "default")
                assert found.tags == tuple(dict.fromkeys(tags))

    def test_what_one_job_is_told_is_not_told_to_the_next(self, scheduler: ManualScheduler) -> None:
        """Options of a builder stay with its job."""
        scheduler.enqueue(charge, 1).with_max_retries(9).with_queue("q").with_tags("t").submit()
        found = scheduler.enqueue(charge, 1).submit().job()
        assert (found.max_retries, found.queue, found.tags) == (0, "default", ())

    def test_enqueue_now_is_enqueue_and_submit(self, scheduler: ManualScheduler) -> None:
        """The same job, the same handle, the same refusals."""
        now, built = scheduler.enqueue_now(charge, 7), scheduler.enqueue(charge, 7).submit()
        first, second = now.job(), built.job()
        for name in (
            "target",
            "args",
            "kwargs",
            "status",
            "type",
            "priority",
            "queue",
            "scheduled_at",
            "caller",
        ):
            assert getattr(first, name) == getattr(second, name)
        assert [step.id for step in now.steps] == [now.id]
        assert scheduler.enqueue_now(lambda: charge(8)).job().args == (8,)
        for bad in ((RESULT,), (1, 2, 3, 4), (object(),)):
            with pytest.raises(InvalidJob):
                scheduler.enqueue_now(charge, *bad)  # type: ignore[call-overload]
        assert scheduler.jobs.count() == 3


class TestDroppedBuilders:
    def test_a_dropped_builder_warns_where_it_was_made(self, scheduler: ManualScheduler) -> None:
        """Forgetting ``submit()`` is told, with the line that made the builder."""
        with pytest.warns(UnsubmittedJobWarning, match="charge was dropped without submit") as caught:
            dropped(lambda: scheduler.enqueue(charge, 1).with_tags("forgotten"))
        assert caught[0].filename == __file__

    @pytest.mark.parametrize(
        "make",
        [
            lambda s: s.enqueue_batch("b").for_each([1], ship),
            lambda s: s.streaming_batch("b").from_iterable([1]).process(ship),
            lambda s: s.join([s.enqueue_now(charge, 1)]),
        ],
        ids=["batch", "streaming batch", "join"],
    )
    def test_the_other_builders_warn_too(
        self, scheduler: ManualScheduler, make: Callable[[ManualScheduler], object]
    ) -> None:
        """Every builder that is dropped without its last verb says so."""
        with pytest.warns(UnsubmittedJobWarning):
            dropped(lambda: make(scheduler))

    def test_a_submitted_one_is_silent(self, scheduler: ManualScheduler) -> None:
        """No warning after ``submit()``."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler.enqueue(charge, 1).submit()
            gc.collect()

    @pytest.mark.parametrize(
        "refused",
        [
            lambda s: s.enqueue(charge, 1).with_max_retries(-1),
            lambda s: s.enqueue(charge, 1).then(ship, RESULT).with_delay(1),
            lambda s: s.enqueue(charge).submit(),
            lambda s: s.enqueue(charge, 1).branch("slow", ship, 1),
        ],
        ids=["option", "whole", "submit", "branch"],
    )
    def test_a_refused_one_is_silent(
        self, scheduler: ManualScheduler, refused: Callable[[ManualScheduler], object]
    ) -> None:
        """Whoever got an error does not get a warning on top."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InvalidJob):
                refused(scheduler)
            gc.collect()


NAIVE = datetime(2026, 1, 1)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda b: b.with_max_retries(-1), "max_retries must be at least 0"),
            (lambda b: b.with_max_retries(True), "whole number"),
            (lambda b: b.with_max_retries(1.5), "whole number"),
            (lambda b: b.with_priority(5), "LOWEST, LOW, NORMAL, HIGH, CRITICAL"),
            (lambda b: b.with_priority("HIGH"), "priority is one of"),
            (lambda b: b.with_backoff("SLOWLY", 1), "NONE, FIXED, EXPONENTIAL"),
            (lambda b: b.with_backoff(BackoffPolicy.EXPONENTIAL), "base longer than zero"),
            (lambda b: b.with_backoff(BackoffPolicy.FIXED, 1, jitter=2), "from 0 to 1"),
            (lambda b: b.with_timeout(0), "longer than zero"),
            (lambda b: b.with_timeout(-1), "negative"),
            (lambda b: b.with_timeout("5m"), "timedelta or a number of seconds"),
            (lambda b: b.with_delay(float("nan")), "finite"),
            (lambda b: b.with_delay(-1), "negative"),
            (lambda b: b.with_expiry(0), "longer than zero"),
            (lambda b: b.at(NAIVE), "without a time zone"),
            (lambda b: b.at("tomorrow"), "datetime with a time zone"),
            (lambda b: b.with_idempotency_key("k" * 256), "255"),
            (lambda b: b.with_idempotency_key(""), "must not be empty"),
            (lambda b: b.with_business_key("k" * 300), "255"),
            (lambda b: b.with_business_key("a\0b"), r"U\+0000"),
            (lambda b: b.with_business_key("k", busy="WAIT"), "RAISE, RETURN, REPLACE"),
            (lambda b: b.with_tags(""), "tag must not be empty"),
            (lambda b: b.with_tags("x" * 256), "255"),
            (lambda b: b.with_tags(7), "tag must be text"),
            (lambda b: b.with_queue(" "), "queue must not be empty"),
            (lambda b: b.with_queue("a,b"), "has no comma"),
            (lambda b: b.with_queue("a "), "no space at its ends"),
            (lambda b: b.with_resource("breaker:bank"), "circuit breakers' own"),
            (lambda b: b.with_concurrency_key("breaker:bank", limit=1), "circuit breakers' own"),
            (lambda b: b.with_resource(7), "resource must be text"),
            (lambda b: b.with_param("", 1), "param must not be empty"),
            (lambda b: b.with_concurrency_key("k", limit=0), "at least 1"),
            (lambda b: b.with_no_retry_for(int), "exception classes"),
            (lambda b: b.await_signal("k" * 300), "255"),
            (lambda b: b.await_signal("k", timeout=0), "longer than zero"),
            (lambda b: b.when(is_slow, ship, 1, order="first"), "whole number"),
        ],
    )
    def test_an_option_that_makes_no_sense(
        self, scheduler: ManualScheduler, change: Callable[[Any], object], says: str
    ) -> None:
        """Every bad option is `InvalidJob`, says what would do, and nothing is stored."""
        with pytest.raises(InvalidJob, match=says):
            change(scheduler.enqueue(charge, 1))
        assert stored(scheduler) == 0

    @pytest.mark.parametrize(
        ("builder", "error", "says"),
        [
            (lambda s: s.enqueue(charge), InvalidJob, "missing a required argument: 'invoice'"),
            (lambda s: s.enqueue(charge, 1, 2), InvalidJob, "too many positional arguments"),
            (lambda s: s.enqueue(charge, 1, money=1), InvalidJob, "unexpected keyword argument 'money'"),
            (lambda s: s.enqueue(charge, object()), UnstorableValue, r"args\[0\]"),
            (lambda s: s.enqueue(charge, "x" * 200_000), PayloadTooLarge, "store the data"),
            (lambda s: s.enqueue(charge, "a\0b"), UnstorableValue, "0000"),
            (lambda s: s.enqueue(charge, RESULT), InvalidJob, "follows none"),
            (lambda s: s.enqueue(charge, 1).with_param("p", object()), UnstorableValue, "params"),
            (lambda s: s.enqueue(lambda: charge(1) or 2), InvalidTarget, "lambda"),
            (lambda s: s.enqueue(charge, 1).on_success(lambda ctx: None), InvalidTarget, "lambda"),
            (lambda s: s.enqueue(charge, 1).on_failure(record), InvalidJob, "arguments do not fit"),
            (lambda s: s.enqueue(charge, 1).when(lambda r: True, ship, 1), InvalidTarget, "lambda"),
            (lambda s: s.enqueue(charge, 1).then(ship), InvalidJob, "missing a required argument"),
            (lambda s: s.enqueue(charge, 1).with_delay(timedelta.max), InvalidJob, "year 9999"),
            (lambda s: s.enqueue(len, [1, 2, 3]).then(ship, 1).then(Orders, 1), InvalidTarget, "is a class"),
        ],
    )
    def test_a_job_that_cannot_run(
        self,
        scheduler: ManualScheduler,
        builder: Callable[[ManualScheduler], JobBuilder[Any]],
        error: type[Exception],
        says: str,
    ) -> None:
        """What would fail on the worker is refused at submit, and nothing of the whole is stored."""
        with pytest.raises(error, match=says):
            builder(scheduler).submit()
        assert stored(scheduler) == 0

    def test_a_target_outside_the_policy(self) -> None:
        """A function that is not allowed is refused with the words to add; a declared one is not."""
        scheduler = manual_scheduler(allow=["shop"])
        with pytest.raises(TargetNotAllowed, match=rf"add '{charge.__module__}' to allow"):
            scheduler.enqueue_now(charge, 1)
        with pytest.raises(TargetNotAllowed):
            scheduler.enqueue(other, 1).then(charge, 1).submit()
        scheduler.job(name="builders.other")(other)
        scheduler.enqueue_now(other, 1)
        assert stored(scheduler) == 1

    @pytest.mark.parametrize(
        "whole",
        [
            lambda b: b.with_idempotency_key("k"),
            lambda b: b.with_business_key("k"),
            lambda b: b.with_delay(1),
            lambda b: b.at(datetime(2026, 1, 1, tzinfo=UTC)),
            lambda b: b.immediate(),
            lambda b: b.await_signal("k"),
        ],
    )
    @pytest.mark.parametrize(
        "follow", [lambda b: b.then(ship, 1), lambda b: b.then_on_failure(ship, 1)], ids=["then", "branch"]
    )
    def test_what_belongs_to_the_whole_comes_first(
        self, scheduler: ManualScheduler, whole: Callable[[Any], object], follow: Callable[[Any], Any]
    ) -> None:
        """Keys, due time and signal are refused once a further step was named."""
        with pytest.raises(InvalidJob, match="belongs to the whole"):
            whole(follow(scheduler.enqueue(charge, 1)))
