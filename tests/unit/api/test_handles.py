"""Handles, control verbs and facades: what they answer in every state of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import (
    EmptyFilter,
    InvalidJob,
    JobCanceled,
    JobCanceledError,
    JobContext,
    JobError,
    JobEvent,
    JobFailedError,
    JobFilter,
    JobNotFound,
    JobPaused,
    JobResumed,
    JobStatus,
    ManualClock,
    Priority,
    Reason,
    ResultTruncated,
    TruncatedResult,
    new_id,
)
from ratchet.testing import ManualScheduler, manual_scheduler

calls: list[Any] = []


@dataclass
class Receipt:
    number: int
    at: datetime


def charge(number: int) -> str:
    return f"charged {number}"


def issue(at: datetime) -> Receipt:
    return Receipt(7, at)


def failing(text: str = "no") -> None:
    raise ValueError(text)


def reporting() -> None:
    context = JobContext.current()
    context.logger.info("half way")
    context.progress(0.5, "half")


def large() -> list[int]:
    return list(range(100_000))


def record(ctx: JobContext) -> None:
    calls.append(("success", ctx.parent_id))


def alert(ctx: JobContext, error: JobError) -> None:
    calls.append(("failure", ctx.parent_id, error.job_id, error.type, str(error)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[ManualScheduler]:
    calls.clear()
    made = manual_scheduler(clock=clock)
    yield made
    made.close()


def raise_odd_class() -> None:
    raise type("password=hunter2", (Exception,), {})("no")


class TestResults:
    def test_a_result_comes_back_as_it_was_returned(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A dataclass with a time in it is restored by the target's annotation, also for a handle made from an id."""
        handle = scheduler.enqueue_now(issue, clock.now())
        scheduler.drain()
        assert handle.result() == Receipt(7, clock.now())
        assert scheduler.handle(str(handle.id)).result() == Receipt(7, clock.now())
        assert handle.wait() is JobStatus.SUCCEEDED

    def test_a_failure_raises_what_is_known(self, scheduler: ManualScheduler) -> None:
        """`JobFailedError` carries the sanitized message and the class; ``wait`` does not raise."""
        handle = scheduler.enqueue_now(failing, "kaput")
        scheduler.drain()
        with pytest.raises(JobFailedError, match="kaput") as failed:
            handle.result()
        assert (failed.value.job_id, failed.value.error_type) == (handle.id, "ValueError")
        assert handle.wait() is JobStatus.FAILED

    def test_no_secret_is_stored_as_a_reason_or_a_class_name(self, scheduler: ManualScheduler) -> None:
        """Reasons are typed by people and class names may be made by code; both pass the sanitizer, as messages do."""
        first, second = scheduler.enqueue(charge, 1).submit(), scheduler.enqueue(raise_odd_class).submit()
        first.cancel("leaked: password=hunter2")
        scheduler.drain()
        assert first.job().canceled_reason == "leaked: password=[REDACTED]"
        assert "hunter2" not in f"{second.job()}{scheduler.jobs.executions(second.id)}"
        assert second.job().error_type == "password=[REDACTED]"

    def test_a_canceled_job_has_no_result(self, scheduler: ManualScheduler) -> None:
        """`JobCanceledError` says why."""
        handle = scheduler.enqueue_now(charge, 1)
        assert handle.cancel("changed my mind")
        with pytest.raises(JobCanceledError, match="changed my mind"):
            handle.result()

    def test_too_early(self, scheduler: ManualScheduler) -> None:
        """A job that has not ended in time is a `TimeoutError` that names its state."""
        handle = scheduler.schedule(60, charge, 1).submit()
        with pytest.raises(TimeoutError, match="is PENDING"):
            handle.result(timeout=timedelta(seconds=1))
        with pytest.raises(TimeoutError, match="is PENDING"):
            handle.wait(timeout=0)

    def test_a_large_result_is_refused(self, scheduler: ManualScheduler) -> None:
        """What was too large to keep is an error with its size; people see its beginning as a marked text."""
        handle = scheduler.enqueue_now(large)
        scheduler.drain()
        with pytest.raises(
            ResultTruncated, match="588,891 bytes as JSON, more than the limit of 65,536"
        ) as cut:
            handle.result()
        assert (cut.value.job_id, cut.value.size, cut.value.limit) == (handle.id, 588_891, 65_536)
        assert handle.wait() is JobStatus.SUCCEEDED
        job = handle.job()
        assert job.result_truncated
        assert isinstance(job.result, TruncatedResult)
        assert job.result.startswith("[0,1,2")

    def test_an_unknown_job(self, scheduler: ManualScheduler) -> None:
        """Asking about a job that is not there is `JobNotFound`, and so is waiting for it."""
        handle = scheduler.handle(new_id())
        for ask in (handle.status, handle.job, handle.progress, handle.graph):
            with pytest.raises(JobNotFound):
                ask()
        assert [reason.code for reason in handle.explain()] == ["not_found"]
        assert not handle.cancel()
        for wait in (handle.result, handle.wait):
            with pytest.raises(JobNotFound):
                wait(0)
        assert handle.steps == [handle]
        assert handle.last == handle

    def test_handles_of_one_job_are_equal(self, scheduler: ManualScheduler) -> None:
        """Identity is the job's."""
        handle = scheduler.enqueue_now(charge, 1)
        assert handle == scheduler.handle(handle.id)
        assert len({handle, scheduler.handle(str(handle.id))}) == 1
        assert handle != scheduler.enqueue_now(charge, 1)


class TestVerbs:
    def test_pause_and_resume(self, scheduler: ManualScheduler) -> None:
        """Pausing is idempotent and True; resuming restores; both are heard once."""
        heard: list[type[JobEvent]] = []
        scheduler.on(JobPaused, JobResumed)(lambda event: heard.append(type(event)))
        handle = scheduler.enqueue_now(charge, 1)
        assert (handle.pause(), handle.pause(), handle.status()) == (True, True, JobStatus.PAUSED)
        scheduler.drain()
        assert handle.status() is JobStatus.PAUSED
        assert (handle.resume(), handle.resume()) == (True, False)
        scheduler.drain()
        assert (handle.status(), handle.pause()) == (JobStatus.SUCCEEDED, False)
        assert heard == [JobPaused, JobResumed]

    def test_retry(self, scheduler: ManualScheduler) -> None:
        """A failed job runs again with attempts from zero; others are refused."""
        handle = scheduler.enqueue_now(failing)
        assert not handle.retry()
        scheduler.drain()
        assert handle.retry()
        assert (handle.status(), handle.job().attempts) == (JobStatus.PENDING, 0)

    def test_cancel_cascades_and_is_heard(self, scheduler: ManualScheduler) -> None:
        """Everything that waits for the job is canceled with it, and every cancellation is published."""
        heard: list[JobCanceled] = []
        scheduler.on(JobCanceled)(heard.append)
        handle = scheduler.enqueue(charge, 1).then(charge, 2).then(charge, 3).submit()
        assert scheduler.cancel_job(handle.id)
        assert not scheduler.cancel_job(handle.id)
        assert {step.status() for step in handle.steps} == {JobStatus.CANCELED}
        assert [(event.job_id, event.previous) for event in heard] == [
            (handle.steps[0].id, JobStatus.PENDING),
            (handle.steps[1].id, JobStatus.WAITING),
            (handle.steps[2].id, JobStatus.WAITING),
        ]

    def test_bulk_verbs(self, scheduler: ManualScheduler) -> None:
        """Filters choose, limits cap, and an empty filter is refused."""
        for number in range(5):
            scheduler.enqueue(failing).with_tags("billing", f"n{number}").submit()
        scheduler.drain()
        assert scheduler.retry_jobs(JobFilter(tags=["billing"]), limit=2) == 2
        assert scheduler.cancel_jobs(JobFilter(statuses=[JobStatus.PENDING])) == 2
        for verb in (scheduler.retry_jobs, scheduler.cancel_jobs):
            with pytest.raises(EmptyFilter):
                verb(JobFilter())
            with pytest.raises(EmptyFilter):
                verb(JobFilter(include_archived=True))
            with pytest.raises(InvalidJob, match="takes a JobFilter"):
                verb(None)  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="at least 1"):
            scheduler.cancel_jobs(JobFilter(tags=["billing"]), limit=0)

    def test_replace(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The old job is CANCELED with its successor named, the key passes on, and it works once."""
        heard: list[JobCanceled] = []
        scheduler.on(JobCanceled)(heard.append)
        old = scheduler.enqueue(charge, 1).with_business_key("k").submit()
        new = scheduler.replace(old.id, charge, 2, delay=60)
        assert new is not None
        assert (old.job().status, old.job().superseded_by) == (JobStatus.CANCELED, new.id)
        assert (new.job().args, new.job().business_key) == ((2,), "k")
        assert new.job().scheduled_at == clock.now() + timedelta(seconds=60)
        assert [event.job_id for event in heard] == [old.id]
        assert scheduler.replace(old.id, charge, 3) is None
        with pytest.raises(InvalidJob, match="not with both"):
            scheduler.replace(new.id, charge, 3, delay=1, at=clock.now())

    def test_reschedule(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """The due time moves, to a time or by a duration; a naive time is refused."""
        handle = scheduler.schedule(3600, charge, 1).submit()
        assert scheduler.reschedule_job(handle.id, clock.now() + timedelta(days=1))
        assert handle.job().scheduled_at == clock.now() + timedelta(days=1)
        assert scheduler.reschedule_job(handle.id, 5)
        assert handle.job().scheduled_at == clock.now() + timedelta(seconds=5)
        with pytest.raises(InvalidJob, match="without a time zone"):
            scheduler.reschedule_job(handle.id, datetime(2026, 1, 1))
        scheduler.cancel_job(handle.id)
        assert not scheduler.reschedule_job(handle.id, 5)

    def test_set_priority(self, scheduler: ManualScheduler) -> None:
        """By id and by handle, sync and awaited, until the job has ended; what is no priority is refused."""
        handle = scheduler.schedule(3600, charge, 1).submit()
        assert scheduler.set_priority(handle.id, Priority.HIGH)
        assert handle.job().priority is Priority.HIGH
        assert handle.set_priority(Priority.LOWEST)
        assert handle.job().priority is Priority.LOWEST
        assert asyncio.run(scheduler.aio.set_priority(handle.id, Priority.CRITICAL))
        assert handle.job().priority is Priority.CRITICAL
        assert asyncio.run(handle.aio.set_priority(Priority.LOW))
        assert handle.job().priority is Priority.LOW
        wrong: Any
        for wrong in ("high", 5, -1, None, True):
            with pytest.raises(InvalidJob, match="a priority is one of LOWEST, LOW, NORMAL, HIGH, CRITICAL"):
                scheduler.set_priority(handle.id, wrong)
        handle.cancel()
        assert not handle.set_priority(Priority.HIGH)

    @pytest.mark.parametrize("identity", ["nonsense", 7, None, object()])
    def test_an_id_that_is_none(self, scheduler: ManualScheduler, identity: Any) -> None:
        """Whatever is not an id is refused as such."""
        for verb in (scheduler.cancel_job, scheduler.handle, scheduler.jobs.get, scheduler.explain):
            with pytest.raises(InvalidJob, match="job id"):
                verb(identity)

    def test_a_handle_is_taken_for_its_id(self, scheduler: ManualScheduler) -> None:
        """Verbs that take an id take a handle or a job as well."""
        handle: Any = scheduler.enqueue_now(charge, 1)
        assert scheduler.jobs.get(handle).id == handle.id
        assert scheduler.cancel_job(handle.job())

    def test_explain(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Reasons have a code, a text and a time; an empty list means claimable now."""
        handle = scheduler.schedule(60, charge, 1).submit()
        (reason,) = scheduler.explain(handle.id)
        assert isinstance(reason, Reason)
        assert (reason.code, reason.until) == ("not_due", clock.now() + timedelta(seconds=60))
        clock.advance(60)
        assert handle.explain() == []

    def test_callbacks_are_called(self, scheduler: ManualScheduler) -> None:
        """``on_success(ctx)`` and ``on_failure(ctx, error)`` run as jobs that know whom they are about."""
        good = scheduler.enqueue(charge, 1).on_success(record).on_failure(alert).submit()
        bad = scheduler.enqueue(failing, "kaput").on_success(record).on_failure(alert).submit()
        scheduler.drain()
        assert ("success", good.id) in calls
        (failure,) = [entry for entry in calls if entry[0] == "failure"]
        assert failure[:4] == ("failure", bad.id, bad.id, "ValueError")
        assert "kaput" in failure[4]


class TestQueries:
    def test_progress_logs_and_executions(self, scheduler: ManualScheduler) -> None:
        """What a run said and did can be read afterwards."""
        handle = scheduler.enqueue_now(reporting)
        scheduler.drain()
        progress = handle.progress()
        assert progress is not None
        assert (progress.fraction, progress.message) == (0.5, "half")
        assert [line.message for line in scheduler.jobs.logs(handle.id)] == ["half way"]
        (execution,) = scheduler.jobs.executions(handle.id)
        assert (execution.attempt, execution.status, execution.counted) == (1, "SUCCEEDED", True)

    def test_find_pages_newest_first(self, scheduler: ManualScheduler) -> None:
        """Pages follow one another by cursor, without gaps, and end with None."""
        handles = scheduler.enqueue_many(charge, [(number,) for number in range(7)])
        seen: list[UUID] = []
        cursor = None
        while True:
            page = scheduler.jobs.find(limit=3, cursor=cursor)
            seen += [job.id for job in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [handle.id for handle in reversed(handles)]

    @pytest.mark.parametrize(
        ("where", "count"),
        [
            (JobFilter(), 3),
            (JobFilter(tags=["a"]), 2),
            (JobFilter(tags=["a", "b"]), 1),
            (JobFilter(queue="q"), 1),
            (JobFilter(priorities=[Priority.HIGH]), 1),
            (JobFilter(statuses=[JobStatus.PENDING]), 3),
            (JobFilter(statuses=[JobStatus.FAILED]), 0),
        ],
    )
    def test_count_by_filter(self, scheduler: ManualScheduler, where: JobFilter, count: int) -> None:
        """Criteria are combined with AND; tags mean all of them."""
        scheduler.enqueue(charge, 1).with_tags("a").submit()
        scheduler.enqueue(charge, 2).with_tags("a", "b").with_queue("q").submit()
        scheduler.enqueue(charge, 3).with_priority(Priority.HIGH).submit()
        assert scheduler.jobs.count(where) == count
        assert len(scheduler.jobs.find(where)) == count

    @pytest.mark.parametrize(
        ("ask", "says"),
        [
            (lambda s: s.jobs.find(JobFilter(created_after=datetime(2026, 1, 1))), "created_after"),
            (lambda s: s.jobs.count(JobFilter(scheduled_before=datetime(2026, 1, 1))), "scheduled_before"),
            (lambda s: s.jobs.find("all"), "takes a JobFilter"),
            (lambda s: s.jobs.find(limit=0), "at least 1"),
            (lambda s: s.dead_letters.find(limit=5000), "at most 1000"),
            (lambda s: s.queues.pause(""), "must not be empty"),
            (lambda s: s.limits.set("gateway", concurrent=-1), "at least 0"),
            (lambda s: s.limits.set_rate("gateway", 5, per=0), "longer than zero"),
        ],
    )
    def test_questions_that_make_no_sense(
        self, scheduler: ManualScheduler, ask: Callable[[Any], object], says: str
    ) -> None:
        """A bad question is refused, not answered with nothing."""
        with pytest.raises(InvalidJob, match=says):
            ask(scheduler)

    def test_counts_and_delete(self, scheduler: ManualScheduler) -> None:
        """Every state is counted, and a deleted job is gone."""
        handle = scheduler.enqueue_now(charge, 1)
        counts = scheduler.jobs.counts()
        assert set(counts) == set(JobStatus)
        assert counts[JobStatus.PENDING] == 1
        assert scheduler.jobs.delete(handle.id)
        assert not scheduler.jobs.delete(handle.id)
        with pytest.raises(JobNotFound):
            scheduler.jobs.get(handle.id)

    def test_dead_letters(self, scheduler: ManualScheduler) -> None:
        """A job that failed for good is listed with its error and its alert."""
        handle = scheduler.enqueue_now(failing, "kaput")
        scheduler.drain()
        (letter,) = scheduler.dead_letters.find()
        assert (letter.job_id, letter.attempts, len(letter.alerts)) == (handle.id, 1, 1)
        assert "kaput" in (letter.error or "")
        assert [entry.job_id for entry in scheduler.dead_letters.alerts()] == [handle.id]

    def test_a_queue_opens_by_itself(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Nothing starts before the time, health takes it as intended, and from then on the queue counts as open."""
        handle = scheduler.enqueue(charge, 1).with_queue("emails").submit()
        until = clock.now() + timedelta(hours=2)
        assert scheduler.queues.pause("emails", until=timedelta(hours=2))
        assert not scheduler.queues.pause("emails", until=until)
        scheduler.drain()
        assert [(reason.code, reason.until) for reason in handle.explain()] == [("queue_paused", until)]
        health = scheduler.health()
        assert (health.ok, [one.code for one in health.waiting]) == (True, ["queue_reopens"])
        clock.advance(timedelta(hours=2))
        (queue,) = scheduler.queues.list()
        assert (queue.paused, queue.paused_until) == (False, None)
        scheduler.drain()
        assert handle.status() is JobStatus.SUCCEEDED
        assert asyncio.run(scheduler.aio.queues.pause("emails", until=5))
        for wrong, message in (
            (clock.now(), "a time that is to come"),
            (datetime(2026, 1, 1), "without a time zone"),
            (-1, "until"),
        ):
            with pytest.raises(InvalidJob, match=message):
                scheduler.queues.pause("emails", until=wrong)

    def test_queues_and_limits(self, scheduler: ManualScheduler) -> None:
        """A paused queue lets nothing start and says so; limits are listed and removed."""
        handle = scheduler.enqueue(charge, 1).with_queue("emails").submit()
        assert (scheduler.queues.pause("emails"), scheduler.queues.pause("emails")) == (True, False)
        scheduler.drain()
        assert [reason.code for reason in handle.explain()] == ["queue_paused"]
        assert {queue.name: queue.paused for queue in scheduler.queues.list()}["emails"]
        assert (scheduler.queues.resume("emails"), scheduler.queues.resume("emails")) == (True, False)
        scheduler.drain()
        assert handle.status() is JobStatus.SUCCEEDED
        scheduler.limits.set("gateway", concurrent=5)
        scheduler.limits.set_rate("gateway", 100, per=timedelta(minutes=1))
        (limit,) = scheduler.limits.list()
        assert (limit.concurrent, limit.rate, limit.period) == (5, 100, timedelta(minutes=1))
        assert (scheduler.limits.remove("gateway"), scheduler.limits.remove("gateway")) == (True, False)

    def test_breakers_by_hand(self, scheduler: ManualScheduler) -> None:
        """A person opens and closes a breaker; each change is made once."""
        assert not scheduler.breakers.reset("gateway")
        assert (scheduler.breakers.open("gateway"), scheduler.breakers.open("gateway")) == (True, False)
        assert [(b.service, b.state) for b in scheduler.breakers.list()] == [("gateway", "OPEN")]
        assert (scheduler.breakers.reset("gateway"), scheduler.breakers.reset("gateway")) == (True, False)

    def test_a_concurrency_key_brings_its_limit(self, scheduler: ManualScheduler) -> None:
        """The limit of a key is stored with the first job that uses it."""
        scheduler.enqueue(charge, 1).with_concurrency_key("tenant-7", limit=2).submit()
        assert [(limit.name, limit.concurrent) for limit in scheduler.limits.list()] == [("tenant-7", 2)]
