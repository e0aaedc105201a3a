"""Signals: each is delivered once, and kept for a while for jobs that come later."""

from __future__ import annotations

from ratchet.model.job import SignalWait
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


class TestSendSignal:
    def test_everyone_who_waits_is_released(self, harness: Harness) -> None:
        """All jobs that wait for the key are PENDING and due, and carry the signal; other jobs keep waiting."""
        first, second = (harness.waiting(signal=SignalWait(key="go")) for _ in range(2))
        other = harness.waiting(signal=SignalWait(key="stop"))
        harness.advance(minutes=1)
        released = harness.store.send_signal(harness.signal("go", payload='{"by":"ann"}'), now=harness.now)
        assert sorted(released) == sorted([first, second])
        assert harness.statuses([first, second, other]) == [
            JobStatus.PENDING,
            JobStatus.PENDING,
            JobStatus.WAITING,
        ]
        jobs = harness.take()
        assert {job.claim.scheduled_at for job in jobs} == {harness.now}
        for job in jobs:
            assert job.body.signal is not None
            assert "ann" in job.body.signal
            assert "go" in job.body.signal

    def test_only_one_job(self, harness: Harness) -> None:
        """A signal that names one job leaves the others waiting."""
        first, second = (harness.waiting(signal=SignalWait(key="go")) for _ in range(2))
        assert harness.store.send_signal(harness.signal("go", job_id=second), now=harness.now) == [second]
        assert harness.statuses([first, second]) == [JobStatus.WAITING, JobStatus.PENDING]

    def test_a_refusal_releases_too(self, harness: Harness) -> None:
        """The job learns that it was rejected, and why."""
        job_id = harness.waiting(signal=SignalWait(key="go"))
        harness.store.send_signal(harness.signal("go", rejected="too expensive"), now=harness.now)
        (job,) = harness.take()
        assert job.claim.job_id == job_id
        assert job.body.signal is not None
        assert "too expensive" in job.body.signal

    def test_the_same_signal_again(self, harness: Harness) -> None:
        """Sent again after a lost answer, the signal releases no other job and is not kept."""
        harness.waiting(signal=SignalWait(key="go"))
        signal = harness.signal("go")
        assert len(harness.store.send_signal(signal, now=harness.now)) == 1
        late = harness.waiting(signal=SignalWait(key="go"))
        assert harness.store.send_signal(signal, now=harness.now) == []
        assert harness.status(late) is JobStatus.WAITING

    def test_only_waiting_jobs_are_touched(self, harness: Harness) -> None:
        """A job that was already released or canceled is left alone."""
        canceled = harness.waiting(signal=SignalWait(key="go"))
        harness.store.cancel(canceled, reason="r", now=harness.now)
        released = harness.waiting(signal=SignalWait(key="go"))
        assert harness.store.send_signal(harness.signal("go"), now=harness.now) == [released]
        before = [harness.record(job_id) for job_id in (canceled, released)]
        assert harness.store.send_signal(harness.signal("go"), now=harness.now) == []
        assert [harness.record(job_id) for job_id in (canceled, released)] == before

    def test_a_later_due_time_still_holds(self, harness: Harness) -> None:
        """A released job still waits for its own due time."""
        job_id = harness.waiting(signal=SignalWait(key="go"), scheduled_at=harness.after(hours=1))
        harness.store.send_signal(harness.signal("go"), now=harness.now)
        assert harness.record(job_id).scheduled_at == harness.after(hours=1)
        assert harness.claim() == []


class TestKeptSignal:
    def test_consumed_by_the_first_who_comes(self, harness: Harness) -> None:
        """The signal came before any job waited for it: the first job starts at once, the second waits."""
        assert harness.store.send_signal(harness.signal("go", payload='"early"'), now=harness.now) == []
        first, second = (harness.waiting(signal=SignalWait(key="go")) for _ in range(2))
        assert harness.statuses([first, second]) == [JobStatus.PENDING, JobStatus.WAITING]
        (job,) = harness.take()
        assert job.claim.job_id == first
        assert job.body.signal is not None
        assert "early" in job.body.signal

    def test_the_oldest_is_consumed_first(self, harness: Harness) -> None:
        """Two kept signals go to two jobs, in the order they were sent."""
        for word in ("one", "two"):
            harness.store.send_signal(harness.signal("go", payload=f'"{word}"'), now=harness.now)
            harness.advance(seconds=1)
        jobs = [harness.waiting(signal=SignalWait(key="go")) for _ in range(3)]
        assert harness.statuses(jobs) == [JobStatus.PENDING, JobStatus.PENDING, JobStatus.WAITING]
        signals = {job.claim.job_id: job.body.signal or "" for job in harness.take()}
        assert "one" in signals[jobs[0]]
        assert "two" in signals[jobs[1]]

    def test_not_by_a_job_that_is_canceled_as_it_is_stored(self, harness: Harness) -> None:
        """
        A job whose parent has failed is canceled and does not consume it; the next one, whose parent has
        succeeded, does.
        """
        failed, fine = harness.failed(), harness.succeeded()
        harness.store.send_signal(harness.signal("go"), now=harness.now)
        lost, lucky = (harness.child(signal=SignalWait(key="go")) for _ in range(2))
        harness.insert([lost], [harness.edge(failed, lost)])
        harness.insert([lucky], [harness.edge(fine, lucky)])
        assert harness.statuses([lost.job_id, lucky.job_id]) == [JobStatus.CANCELED, JobStatus.PENDING]

    def test_not_longer_than_it_is_kept(self, harness: Harness) -> None:
        """When its time is over, no job consumes the signal."""
        harness.store.send_signal(harness.signal("go"), now=harness.now)
        harness.advance(hours=1, seconds=1)
        assert harness.status(harness.waiting(signal=SignalWait(key="go"))) is JobStatus.WAITING

    def test_one_that_released_somebody_is_not_kept(self, harness: Harness) -> None:
        """A signal that was delivered is not delivered again."""
        harness.waiting(signal=SignalWait(key="go"))
        harness.store.send_signal(harness.signal("go"), now=harness.now)
        assert harness.status(harness.waiting(signal=SignalWait(key="go"))) is JobStatus.WAITING

    def test_of_another_key_or_another_job(self, harness: Harness) -> None:
        """Only a job that waits for the key consumes the signal, and only the named job if it names one."""
        mine = harness.spec(status=JobStatus.WAITING, signal=SignalWait(key="go"))
        harness.store.send_signal(harness.signal("other"), now=harness.now)
        harness.store.send_signal(harness.signal("go", job_id=mine.job_id), now=harness.now)
        assert harness.status(harness.waiting(signal=SignalWait(key="go"))) is JobStatus.WAITING
        harness.insert([mine])
        assert harness.status(mine.job_id) is JobStatus.PENDING

    def test_a_duplicate_of_a_kept_signal(self, harness: Harness) -> None:
        """Sent twice, the signal serves one job."""
        signal = harness.signal("go")
        for _ in range(2):
            assert harness.store.send_signal(signal, now=harness.now) == []
        jobs = [harness.waiting(signal=SignalWait(key="go")) for _ in range(2)]
        assert harness.statuses(jobs) == [JobStatus.PENDING, JobStatus.WAITING]

    def test_purged_when_its_time_is_over(self, harness: Harness) -> None:
        """Old signals are deleted in portions; young ones stay and can still be consumed."""
        for _ in range(3):
            harness.store.send_signal(harness.signal("old"), now=harness.now)
        harness.advance(hours=2)
        harness.store.send_signal(harness.signal("young"), now=harness.now)
        assert [harness.store.purge_signals(now=harness.now, limit=2) for _ in range(3)] == [2, 1, 0]
        assert harness.status(harness.waiting(signal=SignalWait(key="young"))) is JobStatus.PENDING


class TestWaitingFor:
    def test_oldest_first(self, harness: Harness) -> None:
        """
        The jobs that wait for a key are listed oldest first, up to the limit; released and canceled ones
        are left out.
        """
        ids = [harness.waiting(signal=SignalWait(key="go")) for _ in range(3)]
        harness.waiting(signal=SignalWait(key="other"))
        assert harness.store.waiting_for("go") == ids
        assert harness.store.waiting_for("go", limit=2) == ids[:2]
        harness.store.send_signal(harness.signal("go", job_id=ids[0]), now=harness.now)
        harness.store.cancel(ids[1], reason="r", now=harness.now)
        assert harness.store.waiting_for("go") == ids[2:]
        assert harness.store.waiting_for("nobody") == []
