"""
An example for each verb of the API reference: one script, cut at the comments that name a verb.

A test runs it, and checks that every verb has its part. The scheduler here is driven by hand (``drain()``); with a started one everything is the same.
"""

# ruff: noqa: I001, B018 - names are imported by topic, and some lines are there to be read only

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ratchet import (
    RESULT, RESULTS, BackoffPolicy, BatchContext, Busy, Condition, JobCompleted, JobContext, JobError, JobFilter, JobResult,
    Join, Overlap, Priority, Scheduler,
)  # fmt: skip
from ratchet.contrib.prometheus import PrometheusMeters
from ratchet.testing import ManualClock, manual_scheduler

clock = ManualClock()
scheduler = manual_scheduler(clock=clock)


def charge(invoice: int) -> str:
    if invoice == 13:
        raise ValueError("declined")
    return f"receipt {invoice}"


def record(context: JobContext, *more: Any) -> None: ...
def alert(context: JobContext, error: JobError) -> None: ...
def is_high(result: str) -> bool:
    return result.endswith("42")


def is_slow(ended: JobResult) -> bool:
    return ended.duration is not None and ended.duration > timedelta(seconds=5)


def report(receipts: list[str]) -> int:
    return len(receipts)


def show(context: BatchContext) -> None: ...
def is_odd(context: BatchContext) -> bool:
    return context.total_items % 2 == 1


# --- Scheduler.configure
app = Scheduler(None)  # at module level; the URL comes later, from the settings of the application
app.configure("sqlite:///shop.db")


# --- Scheduler.job
@app.job(
    max_retries=3, backoff=BackoffPolicy.EXPONENTIAL, backoff_base=timedelta(seconds=30), tags=["billing"]
)
def send_invoice(invoice: int) -> None: ...


# --- Scheduler.recurring
@app.recurring("*/5 * * * *", name="sync", zone="UTC")
def sync() -> None: ...


# --- Scheduler.discover
def load() -> None:
    app.discover("shop")  # imports every module named `jobs` in the package and below it


# --- Scheduler.migrate
app.migrate()  # the same as `ratchet db upgrade`

# --- Scheduler.start
app.start()  # this process is a node; `with app:` stops it at the end

# --- Scheduler.stop
app.stop(timeout=30)  # running jobs have 30 s to finish


# --- Scheduler.run
def main() -> None:
    app.run()  # in the foreground, until SIGTERM


# --- Scheduler.close
app.close()  # frees the connections

# --- Scheduler.acting_as
with scheduler.acting_as("ann"):  # for the authorizer and the audit log
    scheduler.enqueue_now(charge, 1)


# --- Scheduler.on
@scheduler.on(JobCompleted)
def count(event: JobCompleted) -> None: ...


# --- Scheduler.off
scheduler.off(count)


# --- Scheduler.around
@scheduler.around
def session(context: JobContext) -> Any:
    yield  # the job runs here


# --- Scheduler.add_meters
scheduler.add_meters(PrometheusMeters())  # or ratchet.contrib.prometheus.instrument(scheduler)


# --- Scheduler.add_tracer
def trace(own_tracer: Any) -> None:
    scheduler.add_tracer(own_tracer)  # ratchet.contrib.opentelemetry.instrument(scheduler) does it


# --- Scheduler.enqueue
handle = scheduler.enqueue(charge, 42).with_priority(Priority.HIGH).submit()

# --- Scheduler.enqueue_now
handle = scheduler.enqueue_now(charge, 42)

# --- Scheduler.enqueue_by_name
scheduler.enqueue_by_name("shop.jobs:charge", 42).submit()  # imports nothing

# --- Scheduler.schedule
reminder = scheduler.schedule(timedelta(hours=24), charge, 42).submit()

# --- Scheduler.enqueue_many
handles = scheduler.enqueue_many(charge, [(1,), (2,), (3,)])  # one round trip per thousand

# --- Scheduler.submit_all
scheduler.submit_all([scheduler.enqueue(charge, n).with_tags("billing") for n in range(3)])

# --- Scheduler.join
total = scheduler.join([handle, scheduler.enqueue(charge, 7)], Join.ALL).then(report, RESULTS).submit()

# --- Scheduler.enqueue_batch
batch = scheduler.enqueue_batch("invoices").for_each([1, 2, 3], charge).submit()

# --- Scheduler.streaming_batch
stream = scheduler.streaming_batch("migrate").from_iterable(range(5)).process(charge).start()

# --- Scheduler.schedule_recurring
nightly = scheduler.schedule_recurring(
    "0 2 * * *", charge, 42, zone="Europe/Berlin", name="nightly", overlap=Overlap.SKIP
)

# --- Scheduler.signal
scheduler.signal("order:1:approved", {"by": "ann"})  # how many jobs it released

# --- Scheduler.handle
handle = scheduler.handle(handle.id)  # from an id that was kept

# --- Scheduler.explain
for reason in scheduler.explain(reminder.id):
    reason.code, reason.text, reason.until

# --- Scheduler.health
health = scheduler.health(max_wait=300, max_dead_letters=100)
health.ok, health.problems

# --- Scheduler.pause_job
scheduler.pause_job(reminder.id)

# --- Scheduler.resume_job
scheduler.resume_job(reminder.id)

# --- Scheduler.set_priority
scheduler.set_priority(reminder.id, Priority.HIGH)

# --- Scheduler.reschedule_job
scheduler.reschedule_job(reminder.id, datetime(2030, 1, 1, tzinfo=UTC))

# --- Scheduler.replace
newer = scheduler.replace(reminder.id, charge, 43, delay=timedelta(hours=1))

# --- Scheduler.cancel_job
scheduler.cancel_job(newer.id)  # False if it had ended

# --- Scheduler.cancel_jobs
scheduler.cancel_jobs(JobFilter(tags=["newsletter"]))  # how many

# --- Scheduler.retry_job
failed = scheduler.enqueue_now(charge, 13)
scheduler.drain()
scheduler.retry_job(failed.id)

# --- Scheduler.retry_jobs
scheduler.retry_jobs(JobFilter(error_contains="declined"), limit=250)

# --- JobBuilder.submit
handle = scheduler.enqueue(charge, 42).submit()  # within=connection joins your transaction

# --- JobBuilder.with_idempotency_key
first = scheduler.enqueue(charge, 5).with_idempotency_key("request-5").submit()
second = scheduler.enqueue(charge, 5).with_idempotency_key("request-5").submit()
assert second.duplicate

# --- JobBuilder.with_business_key
scheduler.enqueue(charge, 6).with_business_key("customer-6", busy=Busy.RETURN).submit()

# --- JobBuilder.with_delay
scheduler.enqueue(charge, 42).with_delay(timedelta(minutes=5)).submit()

# --- JobBuilder.at
scheduler.enqueue(charge, 42).at(datetime(2030, 1, 1, tzinfo=UTC)).submit()

# --- JobBuilder.immediate
scheduler.enqueue(charge, 42).immediate().submit()

# --- JobBuilder.await_signal
scheduler.enqueue(charge, 42).await_signal("order:1:approved", timeout=timedelta(hours=24)).submit()

# --- JobBuilder.then
scheduler.enqueue(charge, 42).then(is_high, RESULT).submit()

# --- JobBuilder.then_on_success
scheduler.enqueue(charge, 42).then_on_success(report, []).submit()

# --- JobBuilder.then_on_failure
scheduler.enqueue(charge, 42).then_on_failure(report, []).submit()

# --- JobBuilder.when
scheduler.enqueue(charge, 42).when(is_slow, report, []).submit()

# --- JobBuilder.when_result
scheduler.enqueue(charge, 42).when_result(is_high, report, []).submit()

# --- JobBuilder.branch
scheduler.enqueue(charge, 42).branch(Condition.custom(is_slow), report, [], description="slow").submit()

# --- JobBuilder.with_priority
scheduler.enqueue(charge, 42).with_priority(Priority.CRITICAL).submit()

# --- JobBuilder.with_max_retries
scheduler.enqueue(charge, 42).with_max_retries(3).submit()

# --- JobBuilder.with_backoff
scheduler.enqueue(charge, 42).with_max_retries(3).with_backoff(
    BackoffPolicy.EXPONENTIAL, timedelta(seconds=30), jitter=0.1
).submit()

# --- JobBuilder.with_timeout
scheduler.enqueue(charge, 42).with_timeout(timedelta(minutes=5)).submit()

# --- JobBuilder.with_expiry
scheduler.enqueue(charge, 42).with_expiry(
    timedelta(days=1)
).submit()  # CANCELED if it has not started by then

# --- JobBuilder.with_tags
scheduler.enqueue(charge, 42).with_tags("billing", "eu").submit()

# --- JobBuilder.with_param
scheduler.enqueue(charge, 42).with_param("region", "eu").submit()

# --- JobBuilder.with_resource
scheduler.enqueue(charge, 42).with_resource("gateway").submit()  # see scheduler.limits

# --- JobBuilder.with_queue
scheduler.enqueue(charge, 42).with_queue("billing").submit()

# --- JobBuilder.with_concurrency_key
scheduler.enqueue(charge, 42).with_concurrency_key("tenant-7", limit=2).submit()

# --- JobBuilder.with_rate_key
scheduler.enqueue(charge, 42).with_rate_key("api.example.com", 10, per=1).submit()

# --- JobBuilder.with_fairness_key
scheduler.enqueue(charge, 42).with_fairness_key("tenant-7").submit()

# --- JobBuilder.with_no_retry_for
scheduler.enqueue(charge, 42).with_max_retries(3).with_no_retry_for(ValueError).submit()

# --- JobBuilder.on_success
scheduler.enqueue(charge, 42).on_success(record).submit()  # record(ctx), as a job of its own

# --- JobBuilder.on_failure
scheduler.enqueue(charge, 13).on_failure(alert).submit()  # alert(ctx, error)

# --- JobHandle.wait
scheduler.drain()
handle.wait(timeout=10)

# --- JobHandle.result
assert handle.result(timeout=10) == "receipt 42"

# --- JobHandle.status
handle.status().is_terminal

# --- JobHandle.job
handle.job().attempts

# --- JobHandle.progress
progress = handle.progress()  # None before the job says something

# --- JobHandle.explain
[reason.code for reason in handle.explain()]

# --- JobHandle.graph
tree = str(total.graph())  # every job with its state

# --- JobHandle.pause
later = scheduler.schedule(3600, charge, 8).submit()
later.pause()

# --- JobHandle.resume
later.resume()

# --- JobHandle.set_priority
later.set_priority(Priority.LOW)

# --- JobHandle.cancel
later.cancel("not needed")

# --- JobHandle.retry
failed.retry()

# --- BatchBuilder.for_each
builder = scheduler.enqueue_batch("users").for_each(["ann", "bob"], charge)

# --- BatchBuilder.on_progress
builder.on_progress(show)

# --- BatchBuilder.then_on_batch_success
builder.then_on_batch_success(report, [])

# --- BatchBuilder.then_on_batch_failure
builder.then_on_batch_failure(report, [])

# --- BatchBuilder.then_when_success_rate
builder.then_when_success_rate(0.95, report, [])

# --- BatchBuilder.then_when_failure_count
builder.then_when_failure_count(10, report, [])

# --- BatchBuilder.then_when_batch
builder.then_when_batch(is_odd, report, [])

# --- BatchBuilder.submit
users = builder.submit()

# --- BatchHandle.wait
scheduler.drain()
batch.wait(timeout=10)

# --- BatchHandle.context
batch.context().success_rate

# --- BatchHandle.jobs
for job in batch.jobs(limit=50):
    job.status

# --- BatchHandle.results
batch.results()

# --- BatchHandle.record
batch.record().total

# --- BatchHandle.metrics
batch.metrics()

# --- BatchHandle.retry_failed
batch.retry_failed()  # how many

# --- BatchHandle.cancel
batch.cancel("a mistake")

# --- StreamingBatchBuilder.from_iterable
builder = scheduler.streaming_batch("rows").from_iterable(range(1000))  # read as it goes

# --- StreamingBatchBuilder.process
builder.process(charge)  # each item is the one argument

# --- StreamingBatchBuilder.with_chunk_size
builder.with_chunk_size(500)

# --- StreamingBatchBuilder.start
rows = builder.start()

# --- Schedule.next_fires
nightly.next_fires(10)

# --- Schedule.trigger
nightly.trigger()  # once more, now

# --- Schedule.pause
nightly.pause()

# --- Schedule.resume
nightly.resume()

# --- Schedule.runs
list(nightly.runs())

# --- Schedule.fires
list(nightly.fires())

# --- Schedule.record
nightly.record()

# --- Schedule.remove
nightly.remove()

# --- JoinBuilder.then
scheduler.join([first, handle], Join.at_least(1)).then(report, RESULTS).submit()


# --- JobContext.current
def import_rows(rows: int) -> None:
    context = JobContext.current()
    context.logger.info("attempt %s of job %s", context.attempt, context.job_id)


# --- JobContext.current_or_none
def helper() -> bool:
    return JobContext.current_or_none() is not None  # inside a job?


# --- JobContext.param
def by_region() -> str:
    return JobContext.current().param("region")


# --- JobContext.progress
def long_one() -> None:
    JobContext.current().progress(0.4, "parsed")


# --- JobContext.save
def in_steps() -> None:
    context = JobContext.current()
    context.state["last_id"] = 7
    context.save()  # now; at the end of the run it is stored anyway


# --- JobContext.check_canceled
def in_a_loop() -> None:
    for _ in range(1000):
        JobContext.current().check_canceled()  # raises JobInterrupted


# --- JobContext.transaction
def book(cents: int) -> None:
    with JobContext.current().transaction() as tx:
        tx.execute("INSERT INTO ledger VALUES (?)", (cents,))  # and the job's success, or neither


# --- end
runs = [
    scheduler.enqueue(each).with_param("region", "eu").submit()
    for each in (helper, by_region, long_one, in_steps, in_a_loop)
]
runs.append(scheduler.enqueue(import_rows, 3).submit())
scheduler.drain()
assert [run.status() for run in runs] == ["SUCCEEDED"] * 6
