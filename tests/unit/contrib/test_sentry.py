"""What Sentry is told about jobs; its envelopes end in memory."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from ratchet import (
    JobContext,
    JobFilter,
    JobInterrupted,
    JobStatus,
    JobType,
    ManualClock,
    Options,
    RetryLater,
    Scheduler,
)
from ratchet.contrib import sentry
from ratchet.contrib.sentry import SentryAttempt, SentryTracer
from ratchet.model.composition import ScheduleSpec
from ratchet.model.traces import trace_of
from ratchet.spi.tracer import Attempt
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.support import traced_jobs

HERE = __name__


class Outbox(Transport):
    """Keeps what would be sent."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        self.items: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json is not None]

    @property
    def errors(self) -> list[Any]:
        return [item for item in self.items if "exception" in item or item.get("logger")]

    @property
    def transactions(self) -> list[Any]:
        return [item for item in self.items if item.get("type") == "transaction"]

    @property
    def check_ins(self) -> list[Any]:
        return [item for item in self.items if "check_in_id" in item]


def succeed(number: int = 0) -> None:
    sentry_sdk.set_tag("own", str(number))


async def fail_async() -> None:
    raise ValueError("async")


def fail(card: str = "") -> None:
    sentry_sdk.set_tag("own", "seen")
    raise ValueError("password=hunter2")


def fail_twice() -> None:
    if JobContext.current().attempt < 3:
        raise ValueError("not yet")


def fail_because() -> None:
    try:
        fail("4111")
    except ValueError as error:
        raise RuntimeError("wrapped") from error


def come_later() -> None:
    raise RetryLater(60, count=False)


def come_later_counted() -> None:
    raise RetryLater(60, count=True)


def give_up() -> None:
    raise JobInterrupted("enough")


def own_report() -> None:
    sentry_sdk.capture_message("from the job")


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    """A client that sends nothing anywhere."""
    transport = Outbox()
    sentry_sdk.init(
        dsn="http://key@sentry.invalid/1",
        transport=transport,
        traces_sample_rate=1.0,
        auto_enabling_integrations=False,
        default_integrations=True,
    )
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manual(outbox: Outbox, clock: ManualClock) -> Iterator[ManualScheduler]:
    """A scheduler by hand that reports to Sentry."""
    scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
    sentry.instrument(scheduler)
    yield scheduler
    scheduler.close()


class TestErrors:
    def test_the_last_failure(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """Is reported once, with what the job is and what it told Sentry, but without arguments and secrets."""
        handle = manual.enqueue(fail, "4111-1111").with_queue("mail").submit()
        manual.drain()
        (error,) = outbox.errors
        assert error["tags"] == {
            "ratchet.job_id": str(handle.id),
            "ratchet.target": f"{HERE}:fail",
            "ratchet.queue": "mail",
            "ratchet.attempt": "1",
            "own": "seen",
        }
        assert error["contexts"]["ratchet"]["job_id"] == str(handle.id)
        assert error["transaction"] == f"{HERE}:fail"
        (value,) = error["exception"]["values"]
        assert (value["type"], value["value"]) == ("ValueError", "password=[REDACTED]")
        assert value["mechanism"]["handled"] is False
        assert "4111" not in str(outbox.items)
        assert "hunter2" not in str(error["exception"]["values"][0]["value"])

    def test_no_variables_of_any_frame(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """Also not of what caused it."""
        manual.enqueue_now(fail_because)
        manual.drain()
        (error,) = outbox.errors
        assert [value["type"] for value in error["exception"]["values"]] == ["ValueError", "RuntimeError"]
        frames = [frame for value in error["exception"]["values"] for frame in value["stacktrace"]["frames"]]
        assert frames
        assert not any("vars" in frame for frame in frames)

    def test_failures_that_are_retried(
        self, manual: ManualScheduler, outbox: Outbox, clock: ManualClock
    ) -> None:
        """Are no errors; each attempt is a transaction that says how it went."""
        manual.enqueue(fail_twice).with_max_retries(2).submit()
        for _ in range(3):
            manual.drain()
            clock.advance(timedelta(hours=1))
        assert not outbox.errors
        statuses = [one["contexts"]["trace"]["status"] for one in outbox.transactions]
        assert statuses == ["internal_error", "internal_error", "ok"]

    def test_when_no_attempt_is_left(
        self, manual: ManualScheduler, outbox: Outbox, clock: ManualClock
    ) -> None:
        """The last one is reported, and names itself."""
        manual.enqueue(fail).with_max_retries(2).submit()
        for _ in range(3):
            manual.drain()
            clock.advance(timedelta(hours=1))
        (error,) = outbox.errors
        assert error["tags"]["ratchet.attempt"] == "3"

    @pytest.mark.parametrize("target", [come_later, come_later_counted, give_up])
    def test_what_is_no_failure(
        self, manual: ManualScheduler, outbox: Outbox, target: Any, clock: ManualClock
    ) -> None:
        """To come back later, or to be interrupted, is not reported, even where it ends the job."""
        manual.enqueue(target).submit()
        manual.drain(1)
        clock.advance(timedelta(hours=1))
        manual.drain(1)
        assert not [one for one in outbox.errors if "exception" in one]
        assert {one["contexts"]["trace"]["status"] for one in outbox.transactions} <= {
            "aborted",
            "internal_error",
        }

    def test_its_log_line_is_no_second_report(
        self, manual: ManualScheduler, outbox: Outbox, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The node logs a dead letter as an ERROR, which Sentry's logging integration would send too; other errors it sends."""
        manual.enqueue_now(fail)
        with caplog.at_level(logging.ERROR):
            manual.drain()
        assert "is a dead letter" in caplog.text
        assert len(outbox.errors) == 1
        logging.getLogger("ratchet.engine").error("something else is wrong")
        assert len(outbox.errors) == 2

    def test_in_the_lanes(self, outbox: Outbox) -> None:
        """A failure on the event loop and one in another process are reported like one in a thread."""
        scheduler = Scheduler(
            store=MemoryStore(), allow=[HERE, traced_jobs.__name__], options=Options(process_concurrency=1)
        )
        sentry.instrument(scheduler)
        scheduler.job(lane="process")(traced_jobs.fail_in_process)
        with scheduler:
            for target in (fail, fail_async, traced_jobs.fail_in_process):
                assert scheduler.enqueue_now(target).wait(timeout=60) is JobStatus.FAILED
        scheduler.close()
        reported = {error["tags"]["ratchet.target"].rpartition(":")[2] for error in outbox.errors}
        assert reported == {"fail", "fail_async", "fail_in_process"}
        assert "abcdef0123456789" not in str([error["exception"]["values"] for error in outbox.errors])


class TestScopes:
    def test_of_one_run(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """What one job tells Sentry is not seen in the next one, nor outside."""
        manual.enqueue_now(succeed, 1)
        manual.enqueue_now(own_report)
        manual.drain()
        (message,) = [item for item in outbox.items if item.get("message") == "from the job"]
        assert "own" not in message["tags"]
        assert message["tags"]["ratchet.target"] == f"{HERE}:own_report"
        sentry_sdk.capture_message("outside")
        assert "tags" not in outbox.items[-1] or "ratchet.target" not in outbox.items[-1]["tags"]

    def test_in_another_process(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """What surrounds the code there has the job's tags and its trace, and ends with it."""
        attempt = SentryAttempt(first_attempt(), SentryTracer(manual.backend))
        (scope,) = attempt.remote()
        function = getattr(sys.modules[scope.module], scope.name)
        with function(scope.facts):
            sentry_sdk.capture_message("inside")
        sentry_sdk.capture_message("outside")
        inside, outside = outbox.items[-2:]
        assert inside["tags"]["ratchet.target"] == "shop:charge"
        assert inside["contexts"]["trace"]["trace_id"] == TRACE
        assert "ratchet.target" not in outside.get("tags", {})
        assert outside["contexts"]["trace"]["trace_id"] != TRACE


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def first_attempt() -> Attempt:
    now = datetime.now(UTC)
    return Attempt(
        job_id=uuid4(),
        target="shop:charge",
        queue="default",
        type=JobType.SINGLE,
        attempt=1,
        max_retries=0,
        node_id="n",
        created_at=now,
        scheduled_at=now,
        root_id=uuid4(),
        carrier={"sentry-trace": f"{TRACE}-00f067aa0ba902b7-1"},
        linked=False,
    )


class TestTraces:
    def test_from_submit_to_run(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """One trace: the transaction of the request, in it the submission, and below that the run."""
        with sentry_sdk.start_transaction(op="http.server", name="checkout") as request:
            handle = manual.enqueue_now(succeed, 7)
        manual.drain()
        submitted, ran = outbox.transactions
        (span,) = submitted["spans"]
        assert (span["op"], span["description"]) == ("queue.publish", f"{HERE}:succeed")
        assert ran["contexts"]["trace"]["op"] == "queue.process"
        assert ran["contexts"]["trace"]["trace_id"] == request.trace_id
        assert ran["contexts"]["trace"]["parent_span_id"] == span["span_id"]
        assert manual.jobs.get(handle.id).trace_id == request.trace_id
        assert [job.id for job in manual.jobs.find(JobFilter(trace_id=request.trace_id))] == [handle.id]

    def test_no_baggage_is_stored(self, manual: ManualScheduler) -> None:
        """Only the field that names the trace."""
        record = manual.store.get(manual.enqueue_now(succeed).id)
        kept = None if record is None else trace_of(record.params)
        assert kept is not None
        assert set(kept.carrier) == {"sentry-trace"}

    def test_errors_belong_to_it(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """An error names the trace in which its job was submitted."""
        with sentry_sdk.start_transaction(name="checkout") as request:
            manual.enqueue_now(fail)
        manual.drain()
        assert outbox.errors[0]["contexts"]["trace"]["trace_id"] == request.trace_id

    def test_without_sentry(self, clock: ManualClock) -> None:
        """Where it is not initialized nothing is stored, and jobs run."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        sentry.instrument(scheduler)
        handle = scheduler.enqueue_now(succeed)
        scheduler.drain()
        record = scheduler.store.get(handle.id)
        assert record is not None
        assert record.params is None
        assert record.status is JobStatus.SUCCEEDED


class TestMonitors:
    def test_a_run_that_succeeds(self, manual: ManualScheduler, outbox: Outbox, clock: ManualClock) -> None:
        """One check-in, which begins and ends; it says when the next one is to be expected."""
        manual.schedule_recurring("0 2 * * *", succeed, name="nightly", zone="Europe/Berlin")
        clock.advance(timedelta(days=1))
        manual.drain()
        begun, ended = outbox.check_ins
        (run,) = manual.schedules.get("nightly").runs()
        assert begun["check_in_id"] == ended["check_in_id"] == run.id.hex
        assert (begun["status"], ended["status"]) == ("in_progress", "ok")
        assert begun["monitor_slug"] == "nightly"
        assert begun["monitor_config"] == {
            "schedule": {"type": "crontab", "value": "0 2 * * *"},
            "timezone": "Europe/Berlin",
        }
        assert ended["duration"] >= 0

    def test_a_run_that_fails(self, manual: ManualScheduler, outbox: Outbox, clock: ManualClock) -> None:
        """It is in progress while there are attempts left, and an error after the last one."""
        manual.schedule_recurring("0 2 * * *", fail, name="nightly", max_retries=1)
        clock.advance(timedelta(days=1))
        manual.drain()
        assert [one["status"] for one in outbox.check_ins] == ["in_progress", "in_progress", "error"]
        assert len({one["check_in_id"] for one in outbox.check_ins}) == 1

    def test_other_jobs(self, manual: ManualScheduler, outbox: Outbox) -> None:
        """Are no runs of a schedule."""
        manual.enqueue_now(succeed)
        manual.drain()
        assert not outbox.check_ins

    def test_switched_off(self, outbox: Outbox, clock: ManualClock) -> None:
        """Monitors cost money: they can be left out."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        sentry.instrument(scheduler, monitors=False)
        scheduler.schedule_recurring("0 2 * * *", succeed, name="nightly")
        clock.advance(timedelta(days=1))
        scheduler.drain()
        assert outbox.transactions
        assert not outbox.check_ins

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("*/5 * * * *", {"type": "crontab", "value": "*/5 * * * *"}),
            ("0 9 * JUL WED", {"type": "crontab", "value": "0 9 * JUL WED"}),
            ("@daily", {"type": "crontab", "value": "@daily"}),
            ("every 5m", {"type": "interval", "value": 5, "unit": "minute"}),
            ("every 90m", {"type": "interval", "value": 90, "unit": "minute"}),
            ("every 1d", {"type": "interval", "value": 1, "unit": "day"}),
            ("every 30s", None),
            ("*/10 * * * * *", None),
            ("0 9 L * *", None),
            ("0 9 15W * *", None),
            ("0 9 * * 5#2", None),
            ("0 9 * * 5L", None),
            ("0 9 ? * MON", None),
        ],
    )
    def test_timetables(self, expression: str, expected: Any) -> None:
        """In Sentry's words, or left out where it has none."""
        spec = ScheduleSpec(name="n", expression=expression, zone="UTC", target="t", template="{}")
        config = sentry.monitor_config(spec)
        assert (None if config is None else config["schedule"]) == expected

    def test_names(self) -> None:
        """Any name of a schedule becomes one that Sentry takes, and different ones stay different."""
        assert sentry.slug_of("nightly-sync_2") == "nightly-sync_2"
        names = ["Nightly", "nightly", "shop.jobs:sync", "shop.jobs-sync", "ü", "x" * 200, "x" * 201]
        slugs = [sentry.slug_of(name) for name in names]
        assert len(set(slugs)) == len(names)
        assert all(
            len(slug) <= 50 and set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_") for slug in slugs
        )
