"""Jobs as spans of OpenTelemetry: in each lane, and for each way in which an attempt can end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from ratchet import (
    InvalidJob,
    JobContext,
    JobFilter,
    JobInterrupted,
    JobStatus,
    ManualClock,
    Options,
    RetryLater,
    Scheduler,
)
from ratchet.contrib import opentelemetry
from ratchet.engine.task import JobTask
from ratchet.engine.tracing import TracedTask
from ratchet.model.callbacks import given_params
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.payload import decode_value, encode_value
from ratchet.model.traces import Trace, trace_of, with_trace
from ratchet.scheduler.core import Core
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.support import traced_jobs
from tests.support.spans import Spans, is_child, is_linked, trace_id
from tests.support.traced_jobs import current_ids, fail_in_process, look_in_process
from tests.support.waiting import until

HERE = __name__
SEEN: list[Any] = []


def look(number: int = 0) -> tuple[str, str]:
    """What the code of a job sees as the current span."""
    return current_ids()


async def look_async() -> tuple[str, str]:
    await asyncio.sleep(0)
    return await asyncio.to_thread(current_ids)


def fail() -> None:
    raise ValueError("password=hunter2")


def fail_once() -> None:
    if JobContext.current().attempt == 1:
        raise ValueError("not yet")


def come_later() -> None:
    if not JobContext.current().state.setdefault("came", False):
        JobContext.current().state["came"] = True
        raise RetryLater(60, count=False)


def come_later_counted() -> None:
    if JobContext.current().attempt == 1:
        raise RetryLater(60, count=True)


def give_up() -> None:
    raise JobInterrupted("enough")


def never_ending() -> None:
    while True:
        JobContext.current().check_canceled()


def show_params() -> None:
    SEEN.append(dict(JobContext.current().params))


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manual(spans: Spans, clock: ManualClock) -> Iterator[ManualScheduler]:
    """A scheduler by hand whose jobs are followed."""
    scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
    opentelemetry.instrument(scheduler, spans.provider)
    yield scheduler
    scheduler.close()


@pytest.fixture
def scheduler(spans: Spans) -> Iterator[Scheduler]:
    """A node with threads whose jobs are followed."""
    made = Scheduler(
        store=MemoryStore(), allow=[HERE, traced_jobs.__name__], options=Options(process_concurrency=1)
    )
    opentelemetry.instrument(made, spans.provider)
    made.job(lane="process")(look_in_process)
    made.job(lane="process")(fail_in_process)
    yield made
    made.close()


class TestLanes:
    @pytest.mark.parametrize("target", [look, look_async, look_in_process])
    def test_the_code_of_a_job_sees_its_span(self, scheduler: Scheduler, spans: Spans, target: Any) -> None:
        """In a thread, on the event loop and in another process: the consumer span, which is a child of the producer."""
        name = target.__name__
        with scheduler, spans.tracer.start_as_current_span("request"):
            seen = scheduler.enqueue_now(target).result(timeout=60)
        produced, consumed = spans.named(name)
        assert is_child(produced, spans.one("request"))
        assert is_child(consumed, produced)
        assert consumed.context is not None
        assert tuple(seen) == (trace_id(consumed), f"{consumed.context.span_id:016x}")

    def test_nothing_is_left_behind(self, scheduler: Scheduler, spans: Spans) -> None:
        """A thread that has run a followed job has no current span for the next one."""
        with scheduler:
            first = scheduler.enqueue_now(look).result(timeout=60)
            second = scheduler.enqueue_now(look).result(timeout=60)
            until(lambda: len(spans.named(f"process {HERE}:look")) == 2)
            assert not scheduler._core.node._assembly.task._followed  # type: ignore[union-attr]
        assert first[0] != second[0]

    def test_a_failure_in_a_process(self, scheduler: Scheduler, spans: Spans) -> None:
        """Marks the span, without the secret."""
        with scheduler:
            assert scheduler.enqueue_now(fail_in_process).wait(timeout=60) is JobStatus.FAILED
        _, failed = spans.named("fail_in_process")
        assert failed.status.status_code is StatusCode.ERROR
        assert "abcdef0123456789" not in failed.to_json()

    def test_a_timeout(self, scheduler: Scheduler, spans: Spans) -> None:
        """Is an error of the attempt, and the interruption harms no tracer."""
        with scheduler:
            handle = scheduler.enqueue(never_ending).with_timeout(0.2).submit()
            assert handle.wait(timeout=60) is JobStatus.FAILED
            until(lambda: spans.named("never_ending")[1:])
        failed = spans.one(f"process {HERE}:never_ending")
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.attributes is not None
        assert failed.attributes["error.type"] == "JobTimeout"

    def test_awaited_submissions(
        self, scheduler: Scheduler, spans: Spans, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The producer span is below the span around the caller. A thread stores the job, also where the loop could send it."""
        monkeypatch.setattr(Core, "sending", property(lambda core: NeverSent()))

        async def request() -> Any:
            with spans.tracer.start_as_current_span("request"):
                return await scheduler.aio.enqueue_now(look)

        handle = asyncio.run(request())
        assert is_child(spans.one(f"send {HERE}:look"), spans.one("request"))
        assert scheduler.jobs.get(handle.id).trace_id == trace_id(spans.one("request"))


class NeverSent:
    """A store that an event loop must not send jobs to: they would have no trace."""

    def send_insert(self, spec: JobSpec, *, now: datetime) -> None:
        raise AssertionError("sent without its trace")


class TestAttributes:
    def test_by_the_conventions(self, manual: ManualScheduler, spans: Spans) -> None:
        """Kinds, names and attributes are those of messaging."""
        handle = manual.enqueue(look).with_queue("mail").submit()
        manual.drain()
        produced, consumed = spans.all()
        assert (produced.name, produced.kind) == (f"send {HERE}:look", SpanKind.PRODUCER)
        assert (consumed.name, consumed.kind) == (f"process {HERE}:look", SpanKind.CONSUMER)
        assert produced.attributes == {
            "messaging.system": "ratchet",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "mail",
            "messaging.message.id": str(handle.id),
            "ratchet.job.target": f"{HERE}:look",
        }
        assert consumed.attributes == {
            "messaging.system": "ratchet",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "mail",
            "messaging.message.id": str(handle.id),
            "messaging.message.conversation_id": str(handle.id),
            "messaging.client.id": manual._core.manual.assembly.identity.node_id,  # type: ignore[attr-defined]
            "ratchet.job.target": f"{HERE}:look",
            "ratchet.job.attempt": 1,
            "ratchet.job.max_retries": 0,
            "ratchet.job.type": "SINGLE",
            "ratchet.job.outcome": "succeeded",
        }

    def test_a_failure(self, manual: ManualScheduler, spans: Spans) -> None:
        """Status, event and attribute say what went wrong, sanitized."""
        manual.enqueue_now(fail)
        manual.drain()
        failed = spans.one(f"process {HERE}:fail")
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.status.description == "ValueError: password=[REDACTED]"
        (event,) = failed.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "ValueError"
        assert "in fail" in str(event.attributes["exception.stacktrace"])
        assert "hunter2" not in failed.to_json()

    def test_a_submission_that_is_refused(self, manual: ManualScheduler, spans: Spans) -> None:
        """The producer span has failed."""
        manual.enqueue(look).with_business_key("order-1").submit()
        with pytest.raises(Exception, match="order-1"):
            manual.enqueue(look).with_business_key("order-1").submit()
        good, bad = spans.named("look")
        assert good.status.status_code is StatusCode.UNSET
        assert bad.status.status_code is StatusCode.ERROR
        assert bad.attributes is not None
        assert bad.attributes["error.type"] == "BusinessKeyBusy"

    @pytest.mark.parametrize(
        ("target", "outcomes"),
        [
            (come_later, ["rescheduled", "succeeded"]),
            (come_later_counted, ["retried", "succeeded"]),
            (give_up, ["handed_back"]),
        ],
    )
    def test_no_error(
        self, manual: ManualScheduler, spans: Spans, clock: ManualClock, target: Any, outcomes: list[str]
    ) -> None:
        """To come back later, or to be interrupted, is no failure of an attempt."""
        manual.enqueue(target).with_max_retries(1).submit()
        manual.drain(1)
        clock.advance(timedelta(minutes=5))
        manual.drain(1)
        found = spans.named(f"process {HERE}:{target.__name__}")
        assert [span.attributes["ratchet.job.outcome"] for span in found if span.attributes][
            : len(outcomes)
        ] == outcomes
        assert all(span.status.status_code is StatusCode.UNSET and not span.events for span in found)

    def test_what_cannot_even_be_called(
        self, manual: ManualScheduler, spans: Spans, clock: ManualClock
    ) -> None:
        """An attempt whose arguments cannot be read has failed, and has a span."""
        broken = JobSpec(job_id=new_id(), target=f"{HERE}:look", payload="{broken", scheduled_at=clock.now())
        manual.store.insert([broken], now=clock.now())
        manual.drain()
        assert manual.jobs.get(broken.job_id).status is JobStatus.FAILED
        assert spans.one(f"process {HERE}:look").status.status_code is StatusCode.ERROR


class TestTraces:
    def test_later_attempts_are_linked(
        self, manual: ManualScheduler, spans: Spans, clock: ManualClock
    ) -> None:
        """A retry is a trace of its own, with a link to the submission."""
        manual.enqueue(fail_once).with_max_retries(1).submit()
        manual.drain()
        clock.advance(timedelta(minutes=5))
        manual.drain()
        produced, first, second = spans.all()
        assert is_child(first, produced)
        assert is_linked(second, produced)

    def test_put_off_by_the_job(self, manual: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """After RetryLater, which counts no attempt, the next run is linked."""
        manual.enqueue(come_later).submit()
        manual.drain()
        clock.advance(timedelta(minutes=5))
        manual.drain()
        produced, first, second = spans.all()
        assert is_child(first, produced)
        assert is_linked(second, produced)

    def test_retried_by_hand(self, manual: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """The attempts begin with 1 again, in a trace of its own."""
        handle = manual.enqueue_now(fail)
        manual.drain()
        clock.advance(timedelta(days=1))
        assert manual.retry_job(handle.id)
        manual.drain()
        produced, first, second = spans.all()
        assert is_child(first, produced)
        assert is_linked(second, produced)

    def test_without_a_trace(self, spans: Spans, clock: ManualClock) -> None:
        """A job that was submitted by a process that follows nothing: its attempts are traces of their own."""
        store = MemoryStore(clock.now)
        submitter = ManualScheduler(store=store, clock=clock)
        submitter.enqueue_now(look)
        manual = ManualScheduler(store=store, clock=clock)
        opentelemetry.instrument(manual, spans.provider)
        manual.drain()
        (consumed,) = spans.all()
        assert consumed.parent is None
        assert not consumed.links

    def test_baggage_is_not_stored(self, manual: ManualScheduler, spans: Spans) -> None:
        """Only W3C Trace Context travels with a job."""
        token = context.attach(baggage.set_baggage("customer", "ann"))
        try:
            handle = manual.enqueue(look).with_param("region", "eu").submit()
        finally:
            context.detach(token)
        record = manual.store.get(handle.id)
        assert record is not None
        kept = trace_of(record.params)
        assert kept is not None
        assert set(kept.carrier) == {"traceparent"}
        assert "ann" not in str(record)

    def test_params_are_the_users(self, manual: ManualScheduler) -> None:
        """Neither the job nor people see what is kept among them."""
        SEEN.clear()
        handle = manual.enqueue(show_params).with_param("region", "eu").with_param("$", "tag").submit()
        plain = manual.enqueue_now(show_params)
        manual.drain()
        assert SEEN == [{"region": "eu", "$": "tag"}, {}]
        assert manual.jobs.get(handle.id).params == {"region": "eu", "$": "tag"}
        assert manual.jobs.get(plain.id).params == {}
        assert manual.jobs.get(handle.id).trace_id is not None
        assert "ratchet:trace" not in str(manual.jobs.get(handle.id).to_dict())

    def test_the_context_of_the_caller(self, manual: ManualScheduler, spans: Spans) -> None:
        """A job that is submitted by a job is below the attempt that submitted it."""
        manual.job(submit_another)
        OUTER.set(manual)
        manual.enqueue_now(submit_another)
        manual.drain()
        assert is_child(spans.one(f"send {HERE}:look"), spans.one(f"process {HERE}:submit_another"))


OUTER: contextvars.ContextVar[Any] = contextvars.ContextVar("outer")


def submit_another() -> None:
    OUTER.get().enqueue_now(look)


class TestSearch:
    def test_a_trace_id_that_is_none(self, manual: ManualScheduler) -> None:
        """Is refused, with what one looks like."""
        for nonsense in ("abc", 42, "", "4bf92f3577b34da6a3ce929d0e0e47361", b"x"):
            with pytest.raises(InvalidJob, match="32 hexadecimal digits"):
                manual.jobs.find(JobFilter(trace_id=nonsense))  # type: ignore[arg-type]

    def test_a_traceparent_will_do(self, manual: ManualScheduler) -> None:
        """People paste what they have."""
        handle = manual.enqueue_now(look)
        known = manual.jobs.get(handle.id).trace_id
        assert known is not None
        parent = f"00-{known.upper()}-00f067aa0ba902b7-01"
        assert [job.id for job in manual.jobs.find(JobFilter(trace_id=parent))] == [handle.id]

    def test_dead_letters(self, manual: ManualScheduler) -> None:
        """Cannot be searched by trace: refused, not ignored."""
        where = JobFilter(trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
        with pytest.raises(InvalidJob, match=r"jobs\.find"):
            manual.dead_letters.find(where)
        with pytest.raises(InvalidJob, match="trace_id"):
            manual.dead_letters.summary(where)


class TestUnused:
    def test_a_node_without_tracer(self) -> None:
        """Runs its jobs with the plain task: nothing of this is asked."""
        plain = ManualScheduler()
        assert type(plain._core.manual.assembly.task) is JobTask  # type: ignore[attr-defined]
        assert plain.backend.tracer is None
        plain.enqueue_now(look)
        assert plain.jobs.find().items[0].trace_id is None
        assert plain.store.find(JobFilter()).items[0].params is None

    def test_a_node_with_one(self, manual: ManualScheduler) -> None:
        """Has a task that follows its attempts."""
        assert type(manual._core.manual.assembly.task) is TracedTask  # type: ignore[attr-defined]

    def test_without_a_provider(self, clock: ManualClock) -> None:
        """Where no SDK is set up, jobs are stored as they are."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        opentelemetry.instrument(scheduler, trace.NoOpTracerProvider())
        handle = scheduler.enqueue_now(look)
        scheduler.drain()
        assert scheduler.jobs.get(handle.id).status is JobStatus.SUCCEEDED
        assert scheduler.jobs.get(handle.id).trace_id is None

    def test_unsampled(self, clock: ManualClock) -> None:
        """The decision of the caller holds for the job: its flags travel."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        opentelemetry.instrument(scheduler, TracerProvider(sampler=ALWAYS_OFF))
        handle = scheduler.enqueue_now(look)
        record = scheduler.store.get(handle.id)
        kept = None if record is None else trace_of(record.params)
        assert kept is not None
        assert int(kept.carrier["traceparent"].rpartition("-")[2], 16) & 1 == 0


class TestKept:
    @pytest.mark.parametrize(
        "params",
        [None, {"a": 1.5}, {"$": 1, "b": [1, {"$": "x"}]}, {"text": "ratchet:trace"}, {"big": 2**70}],
    )
    def test_among_any_params(self, params: dict[str, Any] | None) -> None:
        """The trace is found again, also in place of another, and the params are as they were."""
        stored = None if params is None else encode_value(params)
        for number in (1, 2):
            trace = Trace({"traceparent": f"00-{number:032x}-{number:016x}-01"}, linked=number == 2)
            stored = with_trace(stored, trace)
            assert trace_of(stored) == trace
            assert given_params(decode_value(stored)) == (params or {})
            assert stored.count("traceparent") == 1

    @pytest.mark.parametrize(
        "text",
        ["", "null", "{broken", '{"ratchet:trace":7}', '["ratchet:trace"]', '{"$":"ratchet:trace","v":[7]}'],
    )
    def test_what_cannot_be_read(self, text: str) -> None:
        """Is no trace, and no error."""
        assert trace_of(text) is None
