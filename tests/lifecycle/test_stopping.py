"""Timeouts and cancellation really stop work, and the node goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobCanceledError, JobFailedError, JobHandle, JobStatus, Options, Scheduler, call
from tests.lifecycle import jobs
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is left over from another test."""
    jobs.gate.clear()
    jobs.started.clear()
    jobs.calls.clear()
    yield
    jobs.gate.set()


def assert_times_out_within(
    seconds: float, scheduler: Scheduler, submit: Callable[[], JobHandle[Any]]
) -> None:
    """
    The job fails with its timeout, and by its own record ran no longer than *seconds*.

    Not by the test's clock: a busy machine may take its time to submit, to claim and to tell. A machine that
    stood still for half a second is excused, but not three times in a row.
    """
    took: list[float] = []
    while not took or (took[-1] >= seconds and len(took) < 3):
        handle = submit()
        with pytest.raises(JobFailedError, match="timeout of 1s"):
            handle.result(timeout=30)
        (run,) = scheduler.jobs.executions(handle.id)
        assert run.status == "TIMED_OUT"
        assert run.started_at is not None
        assert run.finished_at is not None
        took.append((run.finished_at - run.started_at).total_seconds())
    assert took[-1] < seconds, took


class TestTimeouts:
    @pytest.mark.parametrize(
        ("target", "seconds"),
        [(jobs.sleep_async, 60.0), (jobs.sleep_in_python, 60.0), (jobs.sleep_in_c, 4.0)],
        ids=["async", "python", "blocking"],
    )
    def test_a_job_that_exceeds_its_timeout_fails_within_two_seconds(
        self, scheduler: Scheduler, target: object, seconds: float
    ) -> None:
        """Async, Python and blocking code alike; and the node goes on working."""
        with scheduler:
            assert_times_out_within(
                2.0,
                scheduler,
                lambda: scheduler.enqueue(target, seconds).with_timeout(1.0).submit(),  # type: ignore[call-overload]
            )
            assert scheduler.enqueue_now(jobs.double, 21).result(timeout=30) == 42

    def test_a_process_job_is_killed(self, scheduler: Scheduler) -> None:
        """A job in the process lane that exceeds its timeout is gone within two seconds."""
        slow = scheduler.job(lane="process", name="slow")(jobs.sleep_in_c)
        with scheduler:
            # The first child has to start: that is not the job's time.
            scheduler.job(lane="process", name="where")(jobs.where).enqueue().submit().result(timeout=30)
            assert_times_out_within(2.0, scheduler, lambda: slow.enqueue(60.0).with_timeout(1.0).submit())

    def test_a_stuck_thread_gives_its_slot_to_another(self, url: str) -> None:
        """With one slot, code that ignores its interruption does not keep other jobs from running."""
        scheduler = Scheduler(url, allow=["tests.lifecycle"], options=Options(concurrency=1))
        with scheduler:
            stuck = scheduler.enqueue(jobs.ignore_everything).with_timeout(0.3).submit()
            with pytest.raises(JobFailedError):
                stuck.result(timeout=10)
            assert scheduler.enqueue_now(jobs.double, 4).result(timeout=10) == 8
            jobs.gate.set()
        assert stuck.status() is JobStatus.FAILED
        scheduler.close()

    def test_a_timeout_is_retried_like_any_failure(self, scheduler: Scheduler) -> None:
        """Two attempts, both timed out, then a dead letter."""
        with scheduler:
            handle = scheduler.enqueue(jobs.sleep_async, 30.0).with_timeout(0.2).with_max_retries(1).submit()
            with pytest.raises(JobFailedError):
                handle.result(timeout=15)
            assert [run.status for run in scheduler.jobs.executions(handle.id)] == ["TIMED_OUT", "TIMED_OUT"]
            assert scheduler.jobs.get(handle.id).attempts == 2


class TestCancel:
    def test_a_running_job_is_stopped_and_its_result_discarded(self, scheduler: Scheduler) -> None:
        """Canceled by the process that runs it: at once."""
        with scheduler:
            handle = scheduler.enqueue(jobs.hold).with_business_key("one").submit()
            assert jobs.started.wait(10)
            assert handle.cancel()
            with pytest.raises(JobCanceledError):
                handle.result(timeout=5)
            assert not handle.cancel()
            self._key_is_free_again(scheduler)

    def test_a_key_stays_taken_while_the_canceled_code_runs(self, scheduler: Scheduler) -> None:
        """One live holder per key means: also no code of a canceled one."""
        from ratchet import BusinessKeyBusy

        with scheduler:
            handle = scheduler.enqueue(jobs.ignore_everything).with_business_key("one").submit()
            assert jobs.started.wait(10)
            assert handle.cancel()
            assert handle.status() is JobStatus.CANCELED
            with pytest.raises(BusinessKeyBusy):
                scheduler.enqueue(jobs.double, 1).with_business_key("one").submit()
            time.sleep(1.0)  # well past the grace: the slot is replaced, the code goes on
            with pytest.raises(BusinessKeyBusy):
                scheduler.enqueue(jobs.double, 1).with_business_key("one").submit()
            jobs.gate.set()
            self._key_is_free_again(scheduler)

    def test_a_cancel_by_another_process_is_learned_with_the_beat(self, url: str) -> None:
        """Another scheduler cancels; the node that runs the job stops it soon."""
        node = Scheduler(url, allow=["tests.lifecycle"], options=Options(heartbeat=0.3, silence=5))
        other = Scheduler(url, allow=["tests.lifecycle"])
        with node:
            handle = node.enqueue(jobs.hold).submit()
            assert jobs.started.wait(10)
            assert other.cancel_job(handle.id)
            until(
                lambda: node.health().ok and node._core.node is not None and node._core.node.is_idle,
                5,
                "the canceled run goes on",
            )
        assert handle.status() is JobStatus.CANCELED
        node.close()
        other.close()

    @staticmethod
    def _key_is_free_again(scheduler: Scheduler) -> None:
        from ratchet import BusinessKeyBusy

        deadline = time.monotonic() + 5
        while True:
            try:
                scheduler.enqueue(jobs.double, 1).with_business_key("one").submit()
            except BusinessKeyBusy:
                assert time.monotonic() < deadline, "the key was never freed"
                time.sleep(0.02)
            else:
                return


class TestProcessLane:
    def test_cpu_bound_work_uses_another_core(self, scheduler: Scheduler) -> None:
        """It runs in a process of its own, one per slot."""
        import os

        where = scheduler.job(lane="process", name="where")(jobs.where)
        with scheduler:
            pids = {handle.result(timeout=30) for handle in [where.enqueue().submit() for _ in range(4)]}
        assert os.getpid() not in pids


class TestStop:
    def test_draining_lets_running_jobs_finish(self, scheduler: Scheduler) -> None:
        """stop() waits for what runs, and hands back what has not started."""
        scheduler.start()
        handle = scheduler.enqueue(jobs.sleep_in_python, 0.5).submit()
        assert jobs.started.wait(10)  # RUNNING is also a job that was claimed and waits for its thread
        later = scheduler.enqueue(call(jobs.double, 1)).with_delay(timedelta(hours=1)).submit()
        scheduler.stop(drain=True, timeout=10)
        assert handle.status() is JobStatus.SUCCEEDED
        assert later.status() is JobStatus.PENDING
        assert scheduler.nodes.list() == []

    def test_a_job_that_does_not_finish_in_time_is_handed_back_unpunished(self, scheduler: Scheduler) -> None:
        """Neither an attempt nor a crash: it runs again elsewhere."""
        scheduler.start()
        handle = scheduler.enqueue(jobs.sleep_in_python, 60.0).submit()
        assert jobs.started.wait(10)  # RUNNING is also a job that was claimed and waits for its thread
        scheduler.stop(drain=True, timeout=0.2)
        job = handle.job()
        assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)
        assert [run.status for run in scheduler.jobs.executions(handle.id, all=True)] == ["HANDED_BACK"]

    def test_a_node_that_hands_everything_back_at_its_end_is_gone(self, scheduler: Scheduler) -> None:
        """A beat that was on its way, and one that comes later, do not bring it back as somebody else."""
        scheduler.start()
        scheduler.enqueue(jobs.ignore_everything).submit()
        assert jobs.started.wait(10)
        node = scheduler._core.node
        assert node is not None
        assert not scheduler.stop(drain=False)
        heartbeat, store = node.assembly.heartbeat, scheduler.backend.store
        original = heartbeat._nodes.beat

        def late_beat(*args: Any, **kwargs: Any) -> Any:
            node.release()
            return original(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(heartbeat._nodes, "beat", late_beat)
            heartbeat.run_once(scheduler.backend.now())
        heartbeat.run_once(scheduler.backend.now())
        assert store.nodes() == []
        jobs.gate.set()
