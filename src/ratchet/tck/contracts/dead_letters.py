"""Dead letters: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from ratchet.model.alerts import cause_of
from ratchet.model.composition import EdgeKind
from ratchet.model.decision import CountCrash
from ratchet.model.errors import EmptyFilter
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness
from ratchet.tck.race import results


def fail_again(harness: Harness, job_id: UUID, error_hash: str | None = None, **options: timedelta) -> bool:
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
    def test_what_it_says(self, harness: Harness) -> None:
        """
        An alert says which job failed first, with which error, why and when; alerts are listed newest first, from
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
        cause = harness.failure().error_hash
        assert (alert.error_hash, alert.created_at, alert.suppressed, alert.count) == (
            cause,
            harness.now,
            0,
            1,
        )
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
        assert (alert.suppressed, alert.count) == (2, 3)

    def test_the_window_begins_with_the_alert(self, harness: Harness) -> None:
        """Wherever in an hour the first failure was: nothing is told twice within one, and then it is told again."""
        job_id = harness.failed()
        for _ in range(8):
            harness.advance(minutes=59, seconds=59)
            assert not fail_again(harness, job_id)
            harness.advance(seconds=2)
            assert fail_again(harness, job_id)
        assert [alert.count for alert in harness.store.alerts_of(job_id)] == [2] * 8 + [1]

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
        causes = {a.error_hash for a in harness.store.alerts_of(job_id)}
        assert causes == {harness.failure().error_hash, "b" * 64}

    def test_another_job_of_the_same_cause_is_counted(self, harness: Harness) -> None:
        """One alert for both, raised by the first; both name it, and so does `dead_letters`."""
        first = harness.failed()
        harness.advance(minutes=5)
        answer = harness.end(harness.claim_job(harness.submit()), harness.failure())
        assert (answer.dead_lettered, answer.alerted) == (True, False)
        (alert,) = harness.store.alerts()
        assert (alert.job_id, alert.count) == (first, 2)
        assert [letter.alerts for letter in harness.store.dead_letters()] == [(alert,), (alert,)]
        assert harness.store.alerts_of(answer.job_id) == harness.store.alerts_of(first) == [alert]

    def test_a_job_names_the_alert_of_its_time(self, harness: Harness) -> None:
        """Not an earlier one, nor a later one, nor one about another target."""
        harness.failed()
        harness.advance(hours=2)
        raised = harness.failed()
        counted = harness.failed()
        harness.advance(hours=2)
        harness.failed()
        other = harness.failed(target="shop:other")
        assert [alert.job_id for alert in harness.store.alerts_of(counted)] == [raised]
        assert harness.store.alerts_of(other) == []  # its failure was given the hash of the usual target

    def test_the_window_is_the_caller_s(self, harness: Harness) -> None:
        """A shorter window alerts sooner."""
        job_id = harness.failed()
        harness.advance(minutes=2)
        assert fail_again(harness, job_id, alert_window=timedelta(minutes=1))

    def test_many_failures_in_one_flush(self, harness: Harness) -> None:
        """One alert for each cause, raised by one of the jobs; the others are counted."""
        harness.submit_many(20)
        causes = [harness.failure(error_hash=letter * 64) for letter in "abc"]
        completions = [
            harness.completion(claim, causes[number % 3]) for number, claim in enumerate(harness.claim())
        ]
        answers = harness.store.complete(completions, now=harness.now)
        assert all(answer.dead_lettered for answer in answers)
        alerts = harness.store.alerts()
        assert {answer.job_id for answer in answers if answer.alerted} == {one.job_id for one in alerts}
        assert sorted((one.error_hash[0], one.count) for one in alerts) == [("a", 7), ("b", 7), ("c", 6)]
        assert harness.store.counts()[JobStatus.FAILED] == 20

    def test_many_nodes_at_once(self, harness: Harness) -> None:
        """Nodes that fail jobs of the same causes at the same time raise one alert for each, and count every failure."""
        harness.submit_many(60)
        claims = harness.claim(60)
        causes = [harness.failure(error_hash=letter * 64) for letter in "abc"]

        def fail(part: int) -> list[bool]:
            told = []
            for start in range(0, 10, 5):
                mine = claims[part * 10 + start : part * 10 + start + 5]
                ends = [harness.completion(one, causes[(part + n) % 3]) for n, one in enumerate(mine)]
                told += [one.alerted for one in harness.store.complete(ends, now=harness.now)]
            return told

        told = [one for part in results([partial(fail, part) for part in range(6)]) for one in part]
        assert (len(told), sum(told)) == (60, 3)
        alerts = harness.store.alerts()
        assert (len(alerts), sum(one.count for one in alerts)) == (3, 60)

    def test_causes_that_no_run_had(self, harness: Harness) -> None:
        """Crashes of jobs of one target are one cause as well."""
        jobs = [harness.running() for _ in range(3)]
        crash = CountCrash(detail="the process died", max_crashes=1)
        answers = [harness.end(claim, crash) for claim in jobs]
        assert [one.alerted for one in answers] == [True, False, False]
        (alert,) = harness.store.alerts()
        assert (alert.count, alert.error_hash) == (3, cause_of(harness.spec().target, "Crashed"))
        assert harness.store.alerts_of(jobs[2].job_id) == [alert]

    def test_how_long_they_are_kept(self, harness: Harness) -> None:
        """Until the last dead letter from before the date is in the archive, also those of jobs that have succeeded since."""
        first, second = harness.failed(), harness.failed()
        retried = harness.failed(tags=("again",))
        harness.advance(hours=2)
        assert fail_again(harness, retried)
        harness.store.retry(retried, now=harness.now)
        harness.end(harness.claim_job(retried))
        harness.advance(days=10)
        young = harness.failed()
        before = harness.after(days=-5)
        assert harness.store.purge_dead_letters(before=before, limit=1) == 1
        assert [one.job_id for one in harness.store.alerts_of(second)] == [first]
        assert len(harness.store.alerts()) == 3
        assert harness.store.purge_dead_letters(before=before, limit=10) == 1
        assert [one.job_id for one in harness.store.alerts()] == [young]


class TestDeadLetterGroups:
    def test_by_target_and_error(self, harness: Harness) -> None:
        """Most first; each with its number, its first and its last failure, and the error and id of the latest."""
        begun = harness.now
        failed = []
        for target in ("shop:a", "shop:b", "shop:b", "shop:b"):
            failed.append(harness.failed(target=target))
            harness.advance(minutes=1)
        many, one = harness.store.dead_letter_groups()
        assert (many.target, many.count, one.target, one.count) == ("shop:b", 3, "shop:a", 1)
        assert (many.error_type, many.message) == ("shop.errors.Declined", "card declined")
        assert (many.first_at, many.last_at) == (begun + timedelta(minutes=1), begun + timedelta(minutes=3))
        assert (many.sample, one.first_at, one.last_at) == (failed[-1], begun, begun)
        assert harness.store.dead_letter_groups(limit=1) == [many]
        assert harness.store.dead_letter_groups(JobFilter(targets=["shop:a"])) == [one]
        assert harness.store.dead_letter_groups(JobFilter(targets=["shop:c"])) == []

    def test_errors_of_one_target(self, harness: Harness) -> None:
        """Different types are different groups; jobs in other states are in none."""
        harness.submit()
        harness.failed()
        crashed = CountCrash(detail="the process died", max_crashes=1)
        harness.end(harness.running(), crashed)
        groups = harness.store.dead_letter_groups(JobFilter(include_archived=True))
        assert sorted((group.error_type or "", group.count) for group in groups) == [
            ("Crashed", 1),
            ("shop.errors.Declined", 1),
        ]


class TestDeleteDeadLetters:
    def test_those_that_match(self, harness: Harness) -> None:
        """Oldest first, a few at a time; others stay, and so does what is no dead letter."""
        ids = sorted(harness.failed(tags=("a",)) for _ in range(3))
        kept = [harness.failed(tags=("b",)), harness.submit(tags=("a",)), harness.succeeded(tags=("a",))]
        where = JobFilter(tags=["a"])
        assert harness.store.delete_dead_letters(where, limit=2, dry_run=True) == (2, ids[1])
        assert harness.store.delete_dead_letters(where, limit=2) == (2, ids[1])
        assert harness.store.delete_dead_letters(where, limit=2, after=ids[1]) == (1, None)
        assert [harness.store.get(job_id) for job_id in ids] == [None, None, None]
        assert all(harness.store.alerts_of(job_id) == [] for job_id in ids)
        assert all(harness.store.get(job_id) is not None for job_id in kept)

    def test_what_a_join_needs_stays(self, harness: Harness) -> None:
        """A job that waits for it and for another: the end of this one is not forgotten while that is open."""
        first, second, joined = (
            harness.spec(),
            harness.spec(),
            harness.spec(status=JobStatus.WAITING, needs=2),
        )
        harness.store.insert(
            [first, second, joined],
            now=harness.now,
            edges=[harness.edge(parent, joined, EdgeKind.END) for parent in (first, second)],
        )
        harness.end(harness.claim_job(first.job_id), harness.failure())
        where = JobFilter(statuses=[JobStatus.FAILED])
        assert harness.store.delete_dead_letters(where, limit=10) == (0, None)
        assert harness.store.get(first.job_id) is not None
        harness.end(harness.claim_job(second.job_id))
        harness.end(harness.claim_job(joined.job_id))
        assert harness.store.delete_dead_letters(where, limit=10) == (1, None)

    def test_not_all_of_them(self, harness: Harness) -> None:
        """A filter without a criterion is refused."""
        job_id = harness.failed()
        with pytest.raises(EmptyFilter):
            harness.store.delete_dead_letters(JobFilter(), limit=10)
        assert harness.store.get(job_id) is not None
