"""Authorization and audit through the public API, the same on every store."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    AuditEntry,
    AuditFilter,
    InvalidJob,
    Job,
    JobFilter,
    JobStatus,
    ManualClock,
    NotAuthorized,
    Options,
    Permission,
    Scheduler,
)
from ratchet.spi.store.audit import PendingEntry
from ratchet.stores.memory import MemoryStore
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.people_samples import ByQueue, ByQueueWithScope, by_role, work


def entries(scheduler: Scheduler, **criteria: Any) -> list[AuditEntry]:
    """What the store has, newest first, whoever may read it."""
    return scheduler.store.find_audit(AuditFilter(**criteria), limit=100).items


class TestWhoActs:
    def test_the_name_is_with_the_change_and_the_job(self, scheduler: ManualScheduler) -> None:
        """Jobs that somebody submits have the name as their caller, and changes have it in the log."""
        with scheduler.acting_as("ann"):
            handle = scheduler.enqueue_now(work, 1)
            with scheduler.acting_as("bob", source="dashboard"):
                handle.cancel("not needed, password=hunter2")
        assert handle.job().caller == "ann"
        [entry] = scheduler.audit.find().items
        assert (entry.principal, entry.source, entry.verb, entry.job_id, entry.outcome, entry.count) == (
            "bob",
            "dashboard",
            "cancel",
            handle.id,
            "done",
            None,
        )
        assert entry.reason is not None
        assert "not needed" in entry.reason
        assert "hunter2" not in entry.reason
        assert scheduler.enqueue_now(work, 1).job().caller is None

    def test_none_hides_an_outer_name(self, clock: ManualClock) -> None:
        """Code that acts for nobody inside of a block says so."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        with scheduler.acting_as("ann"), scheduler.acting_as(None):
            scheduler.queues.pause("q")
        assert [one.principal for one in entries(scheduler)] == [None]

    @pytest.mark.parametrize("name", ["", 7, "x" * 256, "a\0b", b"ann"])
    def test_a_name_that_no_store_can_keep(self, clock: ManualClock, name: Any) -> None:
        """It is refused before anything is done."""
        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock)
        with pytest.raises(InvalidJob, match="the name of a principal"):
            scheduler.acting_as(name)
        with pytest.raises(InvalidJob, match="source is one of api, cli, dashboard, node"):
            scheduler.acting_as("ann", source="telepathy")

    def test_awaited_verbs_and_tasks(self, stores: Stores, clock: ManualClock) -> None:
        """Each task acts for its own person, on whatever thread its verb runs."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, authorizer=ByQueue())
        queues = [f"q{index}" for index in range(6)]

        async def person(name: str) -> None:
            with scheduler.acting_as(name):
                handle = await scheduler.aio.enqueue(work, 1).with_queue(name).submit()
                assert (await handle.aio.job()).caller == name
                assert await handle.aio.cancel()
                with pytest.raises(NotAuthorized):
                    await scheduler.aio.enqueue(work, 1).with_queue("other").submit()
                assert len((await scheduler.aio.jobs.find()).items) == 1

        async def everybody() -> None:
            await asyncio.gather(*(person(name) for name in queues))

        asyncio.run(everybody())
        done = entries(scheduler, verb="cancel")
        assert sorted(str(one.principal) for one in done) == queues
        assert sorted(str(one.principal) for one in entries(scheduler, outcome="refused")) == queues
        scheduler.close()


class TestAuthorizer:
    @pytest.fixture(params=[ByQueue, ByQueueWithScope])
    def shared(
        self, request: pytest.FixtureRequest, stores: Stores, clock: ManualClock
    ) -> Iterator[ManualScheduler]:
        """Jobs of Ann and of Bob, each in a queue of their own: three to come and two dead letters."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, authorizer=request.param())
        for name in ("ann", "bob"):
            with scheduler.acting_as(name):
                for number in (-1, -1):
                    scheduler.enqueue(work, number).with_queue(name).with_tags("t").submit()
        scheduler.drain()
        for name in ("ann", "bob", "ann", "bob", "ann", "bob"):
            with scheduler.acting_as(name):
                scheduler.enqueue(work, 1).with_queue(name).with_tags("t").with_delay(60).submit()
        yield scheduler
        scheduler.close()

    def test_listings_and_counts_show_what_is_permitted(self, shared: ManualScheduler) -> None:
        """Pages are full and have the right cursors; counts are those of what is shown."""
        with shared.acting_as("ann"):
            found: list[Job] = []
            cursor = None
            while True:
                page = shared.jobs.find(limit=2, cursor=cursor)
                assert page.next_cursor is None or len(page.items) == 2
                found += page.items
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert [job.queue for job in found] == ["ann"] * 5
            assert [job.id for job in found] == sorted((job.id for job in found), reverse=True)
            assert shared.jobs.count() == 5
            assert shared.jobs.count(JobFilter(queue="bob")) == 0
            assert shared.jobs.find(JobFilter(queue="bob")).items == []
            counts = shared.jobs.counts()
            assert (counts[JobStatus.PENDING], counts[JobStatus.FAILED]) == (3, 2)
            assert sum(counts.values()) == 5
            letters = shared.dead_letters.find(limit=1)
            assert letters.next_cursor is not None
            more = shared.dead_letters.find(limit=5, cursor=letters.next_cursor)
            shown = {one.job_id for one in [*letters, *more]}
            assert shown == {job.id for job in found if job.status is JobStatus.FAILED}

    def test_bulk_verbs_act_on_what_is_permitted(self, shared: ManualScheduler) -> None:
        """The rest stays as it was; the entry says how many were changed, and by which filter."""
        everything = JobFilter(tags=["t"])
        with shared.acting_as("ann"):
            assert shared.retry_jobs(everything, limit=1) == 1
            assert shared.retry_jobs(everything) == 1
            assert shared.cancel_jobs(everything, limit=2) == 2
            assert shared.cancel_jobs(everything) == 3
            assert shared.cancel_jobs(JobFilter(queue="bob")) == 0
        with shared.acting_as("bob"):
            counts = shared.jobs.counts()
            assert (counts[JobStatus.PENDING], counts[JobStatus.FAILED]) == (3, 2)
            assert shared.dead_letters.purge(everything, dry_run=True) == 2
            assert shared.dead_letters.purge(everything) == 2
        left = [(one.principal, one.verb, one.filter, one.count, one.outcome) for one in entries(shared)]
        tagged = {"tags": ["t"]}
        assert left[::-1] == [
            ("ann", "retry", tagged, 1, "done"),
            ("ann", "retry", tagged, 1, "done"),
            ("ann", "cancel", tagged, 2, "done"),
            ("ann", "cancel", tagged, 3, "done"),
            ("ann", "cancel", {"queue": "bob"}, 0, "unchanged"),
            ("bob", "purge", tagged, 2, "done"),
        ]

    def test_others_jobs_cannot_be_reached_by_id(self, shared: ManualScheduler) -> None:
        """Neither to look nor to change; and each try is written down."""
        [other, *_] = shared.store.find(JobFilter(queue="bob", statuses=[JobStatus.PENDING]), limit=1)
        with shared.acting_as("ann"):
            for verb in (shared.jobs.get, shared.cancel_job, shared.jobs.delete, shared.explain):
                with pytest.raises(NotAuthorized, match=f"'ann' may not .* job {other.job_id}"):
                    verb(other.job_id)
        record = shared.store.get(other.job_id)
        assert record is not None
        assert record.status is JobStatus.PENDING
        tried = entries(shared, job_id=other.job_id, outcome="refused")
        assert [one.verb for one in tried[::-1]] == ["view", "cancel", "delete", "explain"]

    @pytest.mark.parametrize("answer", [1, "yes", None, ValueError("who knows")], ids=repr)
    def test_only_true_permits(
        self, clock: ManualClock, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Anything else refuses; one that raises is logged, and nothing is stored."""

        def odd(principal: str | None, permission: Permission, job: Job | None) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock, authorizer=odd)
        with caplog.at_level(logging.WARNING), pytest.raises(NotAuthorized) as refused:
            scheduler.enqueue_now(work, 1)
        assert refused.value.permission is Permission.SUBMIT
        assert "acting_as" in str(refused.value)
        assert scheduler.store.counts()[JobStatus.PENDING] == 0
        assert ("Authorizer raised" in caplog.text) == isinstance(answer, BaseException)

    def test_a_scope_that_fails_is_not_used(self, clock: ManualClock) -> None:
        """Each job is asked about instead."""

        class Broken(ByQueue):
            def scope(self, principal: str | None, permission: Permission) -> Any:
                if permission is Permission.VIEW:
                    raise ValueError("scope")
                return "everything"

        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock, authorizer=Broken())
        for name in ("ann", "bob"):
            with scheduler.acting_as(name):
                scheduler.enqueue(work, 1).with_queue(name).with_tags("t").submit()
        with scheduler.acting_as("ann"):
            assert scheduler.jobs.count() == 1
            assert scheduler.cancel_jobs(JobFilter(tags=["t"])) == 1

    def test_it_sees_what_would_be_submitted(self, clock: ManualClock) -> None:
        """Target, arguments, queue, tags and caller of each job of a chain, a batch and a schedule."""
        seen: list[tuple[Permission, Any]] = []

        def watching(principal: str | None, permission: Permission, job: Job | None) -> bool:
            assert job is not None
            seen.append((permission, (job.args, job.queue, job.tags, job.caller)))
            return True

        scheduler = ManualScheduler(store=MemoryStore(clock.now), clock=clock, authorizer=watching)
        with scheduler.acting_as("ann"):
            scheduler.enqueue(work, 1).with_queue("a").with_tags("t").then(work, 2).submit()
            scheduler.schedule_recurring("0 0 1 1 *", work, 3, name="n", queue="b")
        assert seen == [
            (Permission.SUBMIT, ((1,), "a", ("t",), "ann")),
            (Permission.SUBMIT, ((2,), "default", (), "ann")),
            (Permission.SCHEDULES, ((3,), "b", (), "ann")),
        ]

    def test_the_engine_is_not_asked(self, clock: ManualClock) -> None:
        """Jobs run, fail and are retried although nobody may do anything."""
        allowed = [True]
        scheduler = ManualScheduler(
            store=MemoryStore(clock.now), clock=clock, authorizer=lambda *asked: allowed[0]
        )
        handle = scheduler.enqueue(work, -1).with_max_retries(1).submit()
        scheduler.recurring("0 0 1 1 *", name="declared")(work_alone)
        allowed[0] = False
        scheduler.drain()
        allowed[0] = True
        assert handle.job().attempts == 2


class TestAuditLog:
    def test_with_the_callers_transaction(self, scheduler: ManualScheduler) -> None:
        """The entry is there if and only if the change is; a verb that changes nothing leaves one, too."""
        handle = scheduler.enqueue_now(work, 1)
        with rolled_back(scheduler.store) as connection:
            assert handle.cancel(within=connection)
        assert entries(scheduler) == []
        with scheduler.store.begin() as connection:
            assert handle.cancel(within=connection)
            assert not handle.resume(within=connection)
        assert [(one.verb, one.outcome) for one in entries(scheduler)] == [
            ("resume", "unchanged"),
            ("cancel", "done"),
        ]

    def test_a_refusal_inside_of_a_transaction(self, stores: Stores, clock: ManualClock) -> None:
        """It neither waits for the caller's transaction nor spoils it."""
        scheduler = ManualScheduler(store=stores.open(), clock=clock, authorizer=by_role)
        with scheduler.acting_as("admin"):
            handle = scheduler.enqueue_now(work, 1)
        with scheduler.store.begin() as connection:
            with scheduler.acting_as("admin"):
                assert handle.pause(within=connection)
            with scheduler.acting_as("viewer"), pytest.raises(NotAuthorized):
                handle.cancel(within=connection)
        assert scheduler.store.results([handle.id])[handle.id].status is JobStatus.PAUSED
        assert [(one.principal, one.outcome) for one in entries(scheduler, verb="cancel")] == [
            ("viewer", "refused")
        ]
        scheduler.close()

    def test_submissions_and_runs_are_not_in_it(self, scheduler: ManualScheduler) -> None:
        """Neither what is submitted nor what the engine does by itself; the job's own rows tell of both."""
        with scheduler.acting_as("ann"):
            scheduler.enqueue_many(work, [(1,), (-1,)])
            scheduler.enqueue(work, 1).with_concurrency_key("k", limit=2).submit()
        scheduler.drain()
        assert entries(scheduler) == []

    def test_declared_schedules_are_the_nodes_doing(self, stores: Stores, clock: ManualClock) -> None:
        """Written down when a node changes something, and not at each start."""
        for _ in range(2):
            scheduler = ManualScheduler(store=stores.open(), clock=clock)
            scheduler.recurring("0 0 1 1 *", name="yearly")(work_alone)
            scheduler.drain()
        assert [(one.source, one.verb, one.object, one.principal) for one in entries(scheduler)] == [
            ("node", "set", "schedule:yearly", None)
        ]
        assert scheduler.schedule_recurring("0 0 1 1 *", work_alone, name="yearly").name == "yearly"
        scheduler.close()

    def test_what_was_asked_is_in_the_entry(self, scheduler: ManualScheduler) -> None:
        """Limits, pauses and priorities say to what; secrets in filters are taken out."""
        scheduler.limits.set_rate("gateway", 100, per=60)
        scheduler.queues.pause("emails", until=timedelta(hours=1))
        scheduler.cancel_jobs(JobFilter(error_contains="password=hunter2"))
        filtered, paused, limited = entries(scheduler)
        assert (limited.object, limited.reason) == ("limit:gateway", "rate: 100 per 1m")
        assert paused.reason is not None
        assert paused.reason.startswith("until 2026-01-01T01:00")
        assert "hunter2" not in str(filtered.filter)

    def test_find(self, scheduler: ManualScheduler) -> None:
        """By who, what and when; in pages; and what is no filter is refused."""
        for name in ("ann", "bob"):
            with scheduler.acting_as(name):
                scheduler.queues.pause(name)
        assert [one.object for one in scheduler.audit.find(AuditFilter(principal="ann"))] == ["queue:ann"]
        first = scheduler.audit.find(limit=1)
        second = scheduler.audit.find(limit=1, cursor=first.next_cursor)
        assert {first.items[0].principal, second.items[0].principal} == {"ann", "bob"}
        assert second.next_cursor is None
        found = asyncio.run(scheduler.aio.audit.find(AuditFilter(verb="pause", outcome="done")))
        assert len(found.items) == 2
        for wrong in (
            lambda: scheduler.audit.find(JobFilter()),  # type: ignore[arg-type]
            lambda: scheduler.audit.find(AuditFilter(source="pigeon")),
            lambda: scheduler.audit.find(AuditFilter(after=clock_time())),
            lambda: scheduler.audit.find(limit=0),
            lambda: scheduler.audit.find(cursor="x"),
        ):
            with pytest.raises(InvalidJob):
                wrong()

    def test_old_entries_go(self, stores: Stores, clock: ManualClock) -> None:
        """Housekeeping deletes what is older than the option says, although no job is old."""
        options = Options(audit_retention=timedelta(days=30))
        scheduler = ManualScheduler(store=stores.open(), clock=clock, options=options)
        scheduler.queues.pause("old")
        clock.advance(timedelta(days=31))
        scheduler.queues.pause("new")
        scheduler._core.manual.assembly.housekeeping.run_once(clock.now())
        assert [one.object for one in entries(scheduler)] == ["queue:new"]
        scheduler.close()


def work_alone() -> None:
    """A job without arguments."""


def clock_time() -> Any:
    from datetime import datetime

    return datetime(2026, 1, 1)


KILLED = """
import sys
from ratchet import JobFilter, Scheduler
scheduler = Scheduler(sys.argv[1])
print("ready", flush=True)
for number in range(1_000_000):
    with scheduler.acting_as(f"p{number}"):
        scheduler.queues.pause(f"q{number}")
        print(number, flush=True)
"""


class TestKilled:
    def test_kill_does_not_part_a_change_from_its_entry(self, stores: Stores, tmp_path: Path) -> None:
        """A process that is killed again and again while it pauses queues: each paused queue has its entry, each entry its queue."""
        if stores.url is None:
            pytest.skip("a store in memory dies with its process")
        store = stores.open()
        store.migrate()
        for round_ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", KILLED.replace("q{number}", f"q{round_}-{{number}}"), stores.url],
                stdout=subprocess.PIPE,
                env={**os.environ, "RATCHET_LOG_LEVEL": "ERROR"},
            )
            assert process.stdout is not None
            for _ in range(4 + round_):  # it is in the middle of the next one
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        paused = {f"queue:{queue.name}" for queue in store.queues() if queue.paused}
        written = [one.object for one in store.find_audit(AuditFilter(verb="pause"), limit=1000)]
        assert len(paused) >= 9
        assert sorted(str(one) for one in written) == sorted(paused)

    def test_a_change_whose_entry_is_not_written_is_not_made(
        self, stores: Stores, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The process ends between the two: neither is there afterwards."""

        def dies(*_: object) -> None:
            raise SystemExit("killed")

        scheduler = ManualScheduler(store=stores.open(), clock=clock)
        scheduler.migrate()
        handle = scheduler.enqueue(work, 1).submit()
        verbs: list[Callable[[], object]] = [
            lambda: scheduler.queues.pause("mail"),
            lambda: scheduler.limits.set_rate("gateway", 100, per=60),
            lambda: scheduler.cancel_job(handle.id),
        ]
        monkeypatch.setattr(PendingEntry, "entry", dies)
        for verb in verbs:
            with pytest.raises(SystemExit, match="killed"), scheduler.acting_as("ann"):
                verb()
        monkeypatch.undo()
        assert [queue.name for queue in scheduler.queues.list() if queue.paused] == []
        assert scheduler.limits.list() == []
        assert handle.status() is JobStatus.PENDING
        assert [entry.verb for entry in scheduler.audit.find(AuditFilter(principal="ann"))] == []
