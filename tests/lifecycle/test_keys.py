"""Keys under fire: never two live holders, never two jobs for one idempotency key."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ratchet import BusinessKeyBusy, Busy, JobFilter, JobStatus, Scheduler
from tests.lifecycle import jobs


class TestBusinessKey:
    def test_twenty_threads_never_make_two_live_holders(self, scheduler: Scheduler) -> None:
        """RAISE, RETURN and REPLACE against each other, with a node running the jobs: one live holder at a time."""
        ready = threading.Barrier(20)
        live = [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.WAITING]

        def submit(seed: int) -> list[int]:
            dice = random.Random(seed)
            ready.wait()
            seen = []
            for _ in range(6):
                busy = dice.choice(list(Busy))
                with suppress(BusinessKeyBusy):
                    scheduler.enqueue(jobs.double, seed).with_business_key("one", busy=busy).submit()
                holders = scheduler.jobs.find(JobFilter(business_key="one", statuses=live)).items
                seen.append(len(holders))
            return seen

        with scheduler, ThreadPoolExecutor(20) as pool:
            counts = [count for seen in pool.map(submit, range(20)) for count in seen]
            deadline = time.monotonic() + 30
            last = JobStatus.CANCELED
            # a run that was superseded holds the key until its code has ended, and is what RETURN gives until then
            while last is JobStatus.CANCELED and time.monotonic() < deadline:
                again = scheduler.enqueue(jobs.double, 99).with_business_key("one", busy=Busy.RETURN).submit()
                again.wait(timeout=20)
                last = again.status()
            assert last is JobStatus.SUCCEEDED
        assert max(counts) == 1
        assert scheduler.jobs.counts()[JobStatus.FAILED] == 0


class TestIdempotencyKey:
    def test_racing_submissions_share_one_job(self, scheduler: Scheduler) -> None:
        """Sixteen callers, one key: one job, everybody has its handle, nobody an exception."""
        ready = threading.Barrier(16)

        def submit(number: int) -> tuple[object, bool]:
            ready.wait()
            handle = scheduler.enqueue(jobs.double, number).with_idempotency_key("request-7").submit()
            return handle.id, handle.duplicate

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(submit, range(16)))
        assert len({job_id for job_id, _ in answers}) == 1
        assert [duplicate for _, duplicate in answers].count(False) == 1
        assert scheduler.jobs.count(JobFilter(targets=["tests.lifecycle.jobs:double"])) == 1

    def test_the_key_outlives_its_job(self, scheduler: Scheduler) -> None:
        """Same key, same job, also after it has ended."""
        with scheduler:
            first = scheduler.enqueue(jobs.double, 1).with_idempotency_key("forever").submit()
            assert first.result(timeout=10) == 2
            again = scheduler.enqueue(jobs.double, 5).with_idempotency_key("forever").submit()
        assert again.id == first.id
        assert again.duplicate
        assert again.result(timeout=10) == 2
