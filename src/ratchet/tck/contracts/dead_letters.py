"""Dead letters: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


def fail_again(harness: Harness, job_id: UUID, error_hash: str = "a" * 64, **options: timedelta) -> bool:
    """Retry a dead letter and let it fail once more; True if that raised an alert."""
    assert harness.store.retry(job_id, now=harness.now)
    completion = harness.completion(harness.claim_job(job_id), harness.failure(error_hash=error_hash))
    (answer,) = harness.store.complete([completion], now=harness.now, **options)
    assert answer.dead_lettered
    return answer.alerted


class TestDeadLetters:
    def test_latest_failure_first(self, harness: Harness) -> None:
        """Every FAILED job with its error, reason, attempts, time and alerts: latest failure first, in pages."""
        ids = []
        for _ in range(3):
            ids.append(harness.failed())
            harness.advance(minutes=1)
        first = harness.store.dead_letters(limit=2)
        assert [letter.job_id for letter in first] == ids[:0:-1]
        rest = harness.store.dead_letters(limit=2, cursor=first.next_cursor)
        assert [letter.job_id for letter in rest] == ids[:1]
        assert rest.next_cursor is None
        letter = first.items[0]
        assert (letter.target, letter.error, letter.error_type) == (
            harness.spec().target,
            "card declined",
            "shop.errors.Declined",
        )
        assert (letter.reason, letter.attempts, letter.crashes) == ("retries exhausted", 1, 0)
        assert letter.failed_at == harness.after(minutes=-1)
        assert list(letter.alerts) == harness.store.alerts_of(letter.job_id)
        assert len(letter.alerts) == 1

    def test_failures_of_one_moment(self, harness: Harness) -> None:
        """Jobs that failed at the same microsecond are paged without gap or overlap."""
        harness.submit_many(7)
        harness.end_all(harness.claim(), harness.failure())
        seen: list[UUID] = []
        cursor = None
        while True:
            page = harness.store.dead_letters(limit=2, cursor=cursor)
            seen += [letter.job_id for letter in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 7

    def test_filtered(self, harness: Harness) -> None:
        """Only dead letters that match the filter are returned."""
        tagged = harness.failed(tags=("billing",))
        harness.failed()
        harness.succeeded(tags=("billing",))
        assert [x.job_id for x in harness.store.dead_letters(JobFilter(tags=["billing"]))] == [tagged]

    def test_what_is_not_failed_is_no_dead_letter(self, harness: Harness) -> None:
        """A dead letter that was retried or paused is not listed; resumed to FAILED, it is listed again."""
        retried, paused = harness.failed(), harness.failed()
        harness.store.retry(retried, now=harness.now)
        harness.store.pause(paused, now=harness.now)
        assert list(harness.store.dead_letters()) == []
        harness.store.resume(paused, now=harness.now)
        assert [x.job_id for x in harness.store.dead_letters()] == [paused]


class TestNeededDeadLetters:
    def test_not_while_their_batch_is_open(self, harness: Harness) -> None:
        """A failed child of an open batch is not purged, and it does not block the purge of other jobs."""
        harness.batch_of(2)
        failed, running = harness.claim()
        harness.end(failed, harness.failure())
        other = harness.failed()
        harness.advance(days=30)
        assert harness.store.purge_dead_letters(before=harness.now, limit=1) == 1
        assert (harness.record(failed.job_id).archived, harness.record(other).archived) == (False, True)
        harness.end(running)
        assert harness.store.purge_dead_letters(before=harness.now, limit=5) == 1
        assert harness.record(failed.job_id).archived


class TestAlerts:
    def test_one_alert_per_failure(self, harness: Harness) -> None:
        """
        An alert says which job failed, with which error, why and when; alerts are listed newest first, from
        a given time on, up to a limit.
        """
        first = harness.failed()
        harness.advance(hours=2)
        second = harness.failed()
        alerts = harness.store.alerts()
        assert [a.job_id for a in alerts] == [second, first]
        alert = alerts[0]
        assert (alert.target, alert.error, alert.reason) == (
            harness.spec().target,
            "card declined",
            "retries exhausted",
        )
        assert (alert.error_hash, alert.created_at, alert.suppressed) == ("a" * 64, harness.now, 0)
        assert [a.job_id for a in harness.store.alerts(since=harness.after(hours=-1))] == [second]
        assert [a.job_id for a in harness.store.alerts(limit=1)] == [second]
        assert harness.store.alerts_of(new_id()) == []

    def test_the_same_error_within_the_window_is_counted(self, harness: Harness) -> None:
        """There is no second alert; the first one counts how many were suppressed."""
        job_id = harness.failed()
        harness.advance(minutes=59)
        assert not fail_again(harness, job_id)
        assert not fail_again(harness, job_id)
        (alert,) = harness.store.alerts_of(job_id)
        assert alert.suppressed == 2

    def test_after_the_window_there_is_a_new_one(self, harness: Harness) -> None:
        """After an hour the same error raises an alert again."""
        job_id = harness.failed()
        harness.advance(hours=1, seconds=1)
        assert fail_again(harness, job_id)
        assert [a.suppressed for a in harness.store.alerts_of(job_id)] == [0, 0]

    def test_another_error_is_another_alert(self, harness: Harness) -> None:
        """An error with another hash raises its own alert."""
        job_id = harness.failed()
        assert fail_again(harness, job_id, "b" * 64)
        assert {a.error_hash for a in harness.store.alerts_of(job_id)} == {"a" * 64, "b" * 64}

    def test_another_job_is_another_alert(self, harness: Harness) -> None:
        """Suppression is per job."""
        first, second = harness.failed(), harness.failed()
        assert len(harness.store.alerts_of(first)) == len(harness.store.alerts_of(second)) == 1

    def test_the_window_is_the_caller_s(self, harness: Harness) -> None:
        """A shorter window alerts sooner."""
        job_id = harness.failed()
        harness.advance(minutes=2)
        assert fail_again(harness, job_id, alert_window=timedelta(minutes=1))

    def test_many_failures_in_one_flush(self, harness: Harness) -> None:
        """Each job that fails in one call gets its own alert."""
        harness.submit_many(20)
        answers = harness.end_all(harness.claim(), harness.failure())
        assert all(answer.alerted for answer in answers)
        assert len(harness.store.alerts()) == 20
        assert harness.store.counts()[JobStatus.FAILED] == 20
