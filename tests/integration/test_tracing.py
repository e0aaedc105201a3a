"""A trace goes with a job through every way of submitting it, and finds it again; on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    RESULT,
    RESULTS,
    JobContext,
    JobFilter,
    JobStatus,
    Join,
    ManualClock,
    Scheduler,
    SortBy,
    call,
)
from ratchet.contrib import opentelemetry
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.support.spans import Spans, is_child, is_linked, trace_id
from tests.support.store_urls import KINDS, fresh_url

HERE = __name__


def first(number: int = 1) -> int:
    return number


def second(number: int = 1) -> int:
    return number


def total(numbers: list[int]) -> int:
    return sum(numbers)


def refuse() -> None:
    raise ValueError("no")


def fail_once() -> None:
    if JobContext.current().attempt == 1:
        raise ValueError("not yet")


def told(ctx: JobContext) -> None:
    """A callback."""


def told_more(ctx: JobContext, error: Any, number: int) -> None:
    """A callback with arguments of its own."""


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def traced(scheduler: ManualScheduler, spans: Spans) -> ManualScheduler:
    """The scheduler of this store, whose jobs are followed."""
    opentelemetry.instrument(scheduler, spans.provider)
    return scheduler


def processed(spans: Spans, function: Any) -> list[Any]:
    return spans.named(f"process {HERE}:{function.__name__}")


def found(scheduler: Scheduler, trace: str, **more: Any) -> set[Any]:
    return {job.id for job in scheduler.jobs.find(JobFilter(trace_id=trace, **more))}


class TestSubmitted:
    def test_a_chain_with_a_callback(self, traced: ManualScheduler, spans: Spans) -> None:
        """All of it is one trace: each first attempt is below the one producer span."""
        with spans.tracer.start_as_current_span("request"):
            handle = traced.enqueue(first, 1).on_success(told).then(second, RESULT).submit()
        traced.drain()
        produced = spans.one(f"send {HERE}:first")
        assert is_child(produced, spans.one("request"))
        for function in (first, second, told):
            (consumed,) = processed(spans, function)
            assert is_child(consumed, produced), function
        assert len(found(traced, trace_id(produced))) == 3
        assert traced.jobs.get(handle.id).trace_id == trace_id(produced)

    def test_a_failure_with_a_callback_and_a_branch(self, traced: ManualScheduler, spans: Spans) -> None:
        """The same after a failure; the name of a callback with arguments is that of its function."""
        traced.enqueue(refuse).on_failure(call(told_more, 7)).then_on_failure(first, 2).submit()
        traced.drain()
        produced = spans.one(f"send {HERE}:refuse")
        for function in (refuse, told_more, first):
            (consumed,) = processed(spans, function)
            assert is_child(consumed, produced), function

    def test_a_retry(self, traced: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """The second attempt is a trace of its own, and what follows the job is in the first one."""
        traced.enqueue(fail_once).with_max_retries(1).then(first, 1).submit()
        traced.drain()
        clock.advance(timedelta(hours=1))
        traced.drain()
        produced = spans.one(f"send {HERE}:fail_once")
        one, two = processed(spans, fail_once)
        (step,) = processed(spans, first)
        assert is_child(one, produced)
        assert is_linked(two, produced)
        assert is_child(step, produced)

    def test_a_join(self, traced: ManualScheduler, spans: Spans) -> None:
        """Of jobs that are submitted with it, and of jobs that were stored before."""
        stored = traced.enqueue(second, 2).submit()
        with spans.tracer.start_as_current_span("request"):
            traced.join([stored, traced.enqueue(first, 1)], Join.ALL).then(total, RESULTS).submit()
        traced.drain()
        (joined,) = processed(spans, total)
        produced = next(one for one in spans.all() if is_child(one, spans.one("request")))
        assert is_child(joined, produced)
        assert is_child(processed(spans, first)[0], produced)
        assert is_child(processed(spans, second)[0], spans.one(f"send {HERE}:second"))

    def test_delayed(self, traced: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """A job that is due later is a trace of its own, with a link; so are the steps after it."""
        traced.enqueue(first, 1).with_delay(60).then(second, 2).submit()
        clock.advance(timedelta(minutes=2))
        traced.drain()
        produced = spans.one(f"send {HERE}:first")
        assert is_linked(processed(spans, first)[0], produced)
        assert is_linked(processed(spans, second)[0], produced)

    def test_a_signal(self, traced: ManualScheduler, spans: Spans) -> None:
        """Nobody knows when it comes: linked."""
        traced.enqueue(first, 1).await_signal("go").submit()
        traced.signal("go")
        traced.drain()
        assert is_linked(processed(spans, first)[0], spans.one(f"send {HERE}:first"))

    def test_a_batch(self, traced: ManualScheduler, spans: Spans) -> None:
        """One producer span; items and followers are linked to it."""
        builder = traced.enqueue_batch("import").for_each([1, 2, 3], first)
        builder.then_on_batch_success(second, 9).submit()
        traced.drain()
        (produced,) = [span for span in spans.all() if span.name.startswith("send ")]
        assert [is_linked(span, produced) for span in processed(spans, first)] == [True] * 3
        assert is_linked(processed(spans, second)[0], produced)
        assert len(found(traced, trace_id(produced))) == 5  # its parent too

    def test_a_streaming_batch(self, traced: ManualScheduler, spans: Spans) -> None:
        """One producer span, though it is stored in several transactions."""
        builder = traced.streaming_batch("migrate").from_iterable(range(5)).process(first)
        builder.with_chunk_size(2).start()
        traced.drain()
        (produced,) = [span for span in spans.all() if span.name.startswith("send ")]
        assert [is_linked(span, produced) for span in processed(spans, first)] == [True] * 5

    @pytest.mark.parametrize("way", ["enqueue_many", "submit_all"])
    def test_a_bulk(self, traced: ManualScheduler, spans: Spans, way: str) -> None:
        """One producer span that says how many, and each job is linked to it."""
        if way == "enqueue_many":
            traced.enqueue_many(first, [(number,) for number in range(4)])
        else:
            traced.submit_all([traced.enqueue(first, number) for number in range(4)])
        traced.drain()
        produced = spans.one(f"send {HERE}:first")
        assert produced.attributes is not None
        assert produced.attributes["messaging.batch.message_count"] == 4
        assert [is_linked(span, produced) for span in processed(spans, first)] == [True] * 4
        assert len(found(traced, trace_id(produced))) == 4

    def test_a_schedule(self, traced: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """Each run is a trace of its own, linked to where the schedule was made, or to who triggered it."""
        schedule = traced.schedule_recurring("0 * * * *", first, 1, name="hourly")
        clock.advance(timedelta(hours=1))
        traced.drain()
        made = spans.one(f"send {HERE}:first")
        assert made.attributes is not None
        assert made.attributes["ratchet.schedule"] == "hourly"
        clock.advance(timedelta(minutes=1))
        schedule.trigger()
        traced.drain()
        _, triggered = spans.named(f"send {HERE}:first")
        fired, by_hand = processed(spans, first)
        assert is_linked(fired, made)
        assert is_linked(by_hand, triggered)

    def test_replaced(self, traced: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """The job that takes the place of another belongs to the trace of whoever replaced it."""
        handle = traced.enqueue(first, 1).with_delay(600).submit()
        with spans.tracer.start_as_current_span("change"):
            assert traced.replace(handle.id, second, 2) is not None
        traced.drain()
        produced = spans.one(f"send {HERE}:second")
        assert is_child(produced, spans.one("change"))
        assert is_child(processed(spans, second)[0], produced)

    def test_awaited(self, stores: Stores, spans: Spans) -> None:
        """The producer spans of the await face are below the span around the caller, and their jobs are found by it."""
        scheduler = Scheduler(store=stores.open(), allow=[HERE])
        opentelemetry.instrument(scheduler, spans.provider)
        scheduler.enqueue_now(second, 1)  # opens the store

        async def request() -> list[Any]:
            with spans.tracer.start_as_current_span("request"):
                return [
                    await scheduler.aio.enqueue_now(first, 1),
                    await scheduler.aio.enqueue(first, 2).submit(),
                ]

        handles = asyncio.run(request())
        produced = spans.named(f"send {HERE}:first")
        assert [is_child(one, spans.one("request")) for one in produced] == [True, True]
        assert found(scheduler, trace_id(spans.one("request"))) == {handle.id for handle in handles}
        scheduler.close()

    def test_declared_schedules(self, traced: ManualScheduler, spans: Spans, clock: ManualClock) -> None:
        """Are stored at every start as they are, in no trace."""
        traced.recurring("0 * * * *", name="declared")(first)
        traced.drain()
        template = traced.schedules.get("declared").record().spec.template
        assert "traceparent" not in template
        assert not spans.all()
        clock.advance(timedelta(hours=1))
        traced.drain()
        (fired,) = spans.all()
        assert not fired.links


class TestFound:
    def test_by_their_trace(self, traced: ManualScheduler, spans: Spans) -> None:
        """Exactly the jobs of it: in pages, counted, sorted, with other criteria, and by verbs for many."""
        with spans.tracer.start_as_current_span("request") as request:
            handles = [
                traced.enqueue(first, n).with_tags("odd" if n % 2 else "even").submit() for n in range(5)
            ]
        traced.enqueue(first, 9).submit()
        trace = f"{request.get_span_context().trace_id:032x}"
        ids = {handle.id for handle in handles}
        assert found(traced, trace) == ids
        where = JobFilter(trace_id=trace)
        assert traced.jobs.count(where) == 5
        assert {job.id for job in traced.jobs.find(where, sort=SortBy.SCHEDULED)} == ids
        pages, cursor = [], None
        while True:
            page = traced.jobs.find(where, limit=2, cursor=cursor)
            pages += [job.id for job in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(pages) == sorted(ids)
        assert found(traced, trace, tags=["odd"]) == {handles[1].id, handles[3].id}
        assert found(traced, trace, args={"0": 4}) == {handles[4].id}
        assert traced.cancel_jobs(where, limit=2) == 2
        assert traced.jobs.count(JobFilter(trace_id=trace, statuses=[JobStatus.CANCELED])) == 2
        assert traced.jobs.count(JobFilter(trace_id="0" * 31 + "1")) == 0

    def test_in_the_archive(
        self, traced: ManualScheduler, spans: Spans, stores: Stores, clock: ManualClock
    ) -> None:
        """A job keeps its trace there."""
        handle = traced.enqueue(first, 1).submit()
        traced.drain()
        trace = traced.jobs.get(handle.id).trace_id
        assert trace is not None
        clock.advance(timedelta(days=400))
        assert traced.store.archive(before=clock.now(), limit=10, now=clock.now()) == 1
        assert found(traced, trace) == set()
        assert found(traced, trace, include_archived=True) == {handle.id}

    def test_within(self, traced: ManualScheduler, spans: Spans) -> None:
        """A followed job joins the caller's transaction: it is there, with its trace, if that commits."""
        for commits in (True, False):
            try:
                with traced.store.begin() as transaction:
                    traced.enqueue(first, 1).then(second, 2).submit(within=transaction)
                    traced.enqueue_many(first, [(1,), (2,)], within=transaction)
                    if not commits:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        assert traced.jobs.count() == 4
        one, bulk, *_ = spans.named(f"send {HERE}:first")
        assert len(found(traced, trace_id(one))) == 2
        assert len(found(traced, trace_id(bulk))) == 2


class TestOthers:
    def test_a_node_that_follows_nothing(
        self, traced: ManualScheduler, spans: Spans, stores: Stores, clock: ManualClock
    ) -> None:
        """Runs the job, hands the trace on to the callback, and shows it to nobody."""
        seen: list[Any] = []
        handle = traced.enqueue(first, 1).with_param("region", "eu").on_success(told).submit()
        other = ManualScheduler(store=stores.open(), clock=clock)

        @other.around
        def look(ctx: JobContext) -> Iterator[None]:
            seen.append(dict(ctx.params))
            yield

        other.drain()
        assert seen == [{"region": "eu"}, {"region": "eu"}]
        trace = traced.jobs.get(handle.id).trace_id
        assert trace is not None
        assert len(found(other, trace)) == 2
        other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_node(kind: str, request: pytest.FixtureRequest, tmp_path: Path, spans: Spans) -> None:
    """With threads and the time of the database: the first attempt and the step after it are children, the second attempt is linked."""
    scheduler = Scheduler(fresh_url(kind, request, tmp_path), allow=[HERE])
    opentelemetry.instrument(scheduler, spans.provider)
    with scheduler:
        handle = scheduler.enqueue(fail_once).with_max_retries(1).then(first, 1).submit()
        assert handle.last.result(timeout=60) == 1
    scheduler.close()
    produced = spans.one(f"send {HERE}:fail_once")
    one, two = processed(spans, fail_once)
    (step,) = processed(spans, first)
    assert is_child(one, produced)
    assert is_linked(two, produced)
    assert is_child(step, produced)
