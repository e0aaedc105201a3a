"""Completions: what each end of a run must change, completely, and what it must leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet.model.decision import CountCrash, Decision, HandBack, Reschedule, Retry, Succeed
from ratchet.model.errors import UnstorableData
from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness


class TestCompleteSuccess:
    def test_the_job_has_succeeded(self, harness: Harness) -> None:
        """The record shows status, result, times, node and attempt; the claim is gone."""
        claim = harness.running(node="node-7")
        started, finished = harness.advance(seconds=1), harness.advance(seconds=2)
        answer = harness.end(claim, harness.success('{"sum":1}'), started_at=started, finished_at=finished)
        assert (answer.dead_lettered, answer.alerted) == (False, False)
        assert (answer.released, answer.canceled, answer.finished_batches) == ((), (), ())
        record = harness.record(claim.job_id)
        assert (record.status, record.result, record.result_truncated) == (
            JobStatus.SUCCEEDED,
            '{"sum":1}',
            False,
        )
        assert (record.started_at, record.finished_at, record.node_id) == (started, finished, "node-7")
        assert (record.attempts, record.crashes, record.error) == (1, 0, None)
        assert harness.store.claims_of("node-7") == {}

    def test_without_a_result(self, harness: Harness) -> None:
        """A job may return nothing."""
        claim = harness.running()
        harness.end(claim, Succeed(result=None))
        assert harness.record(claim.job_id).result is None

    def test_a_truncated_result_says_so(self, harness: Harness) -> None:
        """Readers are told that the result is incomplete."""
        claim = harness.running()
        harness.end(claim, Succeed(result='"abc', truncated=True))
        assert harness.record(claim.job_id).result_truncated
        assert harness.store.results([claim.job_id])[claim.job_id].result_truncated

    def test_a_success_clears_the_error_of_earlier_attempts(self, harness: Harness) -> None:
        """A job that succeeded in the end shows no error."""
        claim = harness.running()
        harness.end(claim, harness.another_try())
        assert harness.record(claim.job_id).error == "card declined"
        harness.end(harness.claim_job(claim.job_id))
        record = harness.record(claim.job_id)
        assert (record.status, record.error, record.error_type, record.attempts) == (
            JobStatus.SUCCEEDED,
            None,
            None,
            2,
        )

    def test_a_large_result(self, harness: Harness) -> None:
        """64,000 bytes of emoji come back unchanged."""
        result = '"' + "🧾" * 16_000 + '"'
        claim = harness.running()
        harness.end(claim, Succeed(result=result))
        assert harness.record(claim.job_id).result == result


class TestCompleteRetry:
    def test_the_job_is_pending_for_later(self, harness: Harness) -> None:
        """
        The job is due at the given time, with one more attempt and its error; any node may claim it then,
        and none before.
        """
        claim = harness.running(max_retries=3)
        at = harness.after(seconds=30, microseconds=5)
        answer = harness.end(claim, harness.another_try(at))
        assert not answer.dead_lettered
        record = harness.record(claim.job_id)
        assert (record.status, record.scheduled_at, record.attempts) == (JobStatus.PENDING, at, 1)
        assert (record.error, record.error_type) == ("card declined", "shop.errors.Declined")
        assert (record.claim_id, record.finished_at) == (None, None)
        assert harness.claim() == []
        harness.now = at
        (again,) = harness.claim(node_id="node-2")
        assert (again.job_id, again.attempts) == (claim.job_id, 1)

    def test_a_run_whose_code_goes_on_holds_the_retry_back(self, harness: Harness) -> None:
        """While the code of the old run is still running, the retry is not claimed; `settle` makes it due."""
        claim = harness.running()
        harness.end(claim, harness.another_try(), still_running=True)
        assert harness.status(claim.job_id) is JobStatus.PENDING
        assert harness.claim() == []
        assert harness.store.explain(claim.job_id, now=harness.now) != []
        harness.store.settle([claim], now=harness.now)
        assert [c.job_id for c in harness.claim()] == [claim.job_id]

    def test_a_retry_is_held_back_for_a_minute_at_most(self, harness: Harness) -> None:
        """Code that never ends does not hold the job back forever."""
        claim = harness.running()
        harness.end(claim, harness.another_try(), still_running=True)
        harness.advance(seconds=61)
        assert [c.job_id for c in harness.claim()] == [claim.job_id]

    def test_settling_does_not_bring_a_retry_forward(self, harness: Harness) -> None:
        """The retry's own delay still counts."""
        claim = harness.running()
        harness.end(claim, harness.another_try(harness.after(minutes=5)), still_running=True)
        harness.store.settle([claim], now=harness.now)
        assert harness.claim() == []
        harness.advance(minutes=5)
        assert len(harness.claim()) == 1

    def test_a_dead_node_holds_nothing_back(self, harness: Harness) -> None:
        """The node died, and its code with it: the retry is due at once."""
        harness.register()
        claim = harness.running()
        harness.end(claim, harness.another_try(), still_running=True)
        harness.rescue()
        assert [c.job_id for c in harness.claim(node_id="node-2")] == [claim.job_id]


class TestCompleteFail:
    def test_the_job_is_a_dead_letter(self, harness: Harness) -> None:
        """The job is FAILED with error, reason and attempt; an alert is recorded, and the job is not claimed again."""
        claim = harness.running()
        answer = harness.end(claim, harness.failure("no such card"))
        assert (answer.dead_lettered, answer.alerted) == (True, True)
        record = harness.record(claim.job_id)
        assert (record.status, record.attempts, record.error) == (JobStatus.FAILED, 1, "no such card")
        assert (record.error_type, record.dead_letter_reason) == ("shop.errors.Declined", "retries exhausted")
        assert record.finished_at == harness.now
        assert harness.claim() == []

    def test_it_keeps_what_it_was_given(self, harness: Harness) -> None:
        """Payload, params and tags are still there for a manual retry."""
        job_id = harness.failed(params='{"a":1}', tags=("t",))
        record = harness.record(job_id)
        assert (record.params, record.tags, record.payload) == ('{"a":1}', ("t",), harness.spec().payload)


class TestCompleteWithoutCounting:
    def test_reschedule(self, harness: Harness) -> None:
        """The job is due later; no attempt is used, and there is no error."""
        claim = harness.running()
        at = harness.after(seconds=7)
        harness.end(claim, Reschedule(at=at, reason="not ready"))
        record = harness.record(claim.job_id)
        assert (record.status, record.scheduled_at) == (JobStatus.PENDING, at)
        assert (record.attempts, record.crashes, record.error) == (0, 0, None)

    def test_hand_back(self, harness: Harness) -> None:
        """The job is PENDING with its old due time, as if it had never been claimed."""
        job_id = harness.submit(scheduled_at=harness.after(hours=-1))
        before = harness.record(job_id)
        claim = harness.claim_job(job_id)
        harness.advance(seconds=1)
        harness.end(claim, HandBack())
        after = harness.record(job_id)
        assert (after.status, after.scheduled_at) == (JobStatus.PENDING, before.scheduled_at)
        assert (after.attempts, after.crashes, after.claim_id, after.node_id) == (0, 0, None, None)

    def test_a_crash_is_counted_apart(self, harness: Harness) -> None:
        """After one crash the job is PENDING at its old due time; no attempt is used, and it is not a suspect."""
        job_id = harness.submit(scheduled_at=harness.after(hours=-1))
        claim = harness.claim_job(job_id)
        harness.end(claim, CountCrash(detail="exit code -9", max_crashes=3))
        record = harness.record(job_id)
        assert (record.status, record.attempts, record.crashes) == (JobStatus.PENDING, 0, 1)
        assert record.scheduled_at == harness.after(hours=-1)
        assert not record.stream.suspect
        assert harness.claim_job(job_id).crashes == 1

    def test_the_second_crash_makes_a_suspect(self, harness: Harness) -> None:
        """From then on only a claim for suspects returns the job."""
        job_id = harness.submit(queue="emails")
        for _ in range(2):
            harness.end(harness.claim_job(job_id), CountCrash(detail="boom", max_crashes=3))
        assert harness.record(job_id).stream.suspect
        assert harness.record(job_id).stream.queue == "emails"
        assert harness.claim() == []
        (claim,) = harness.claim(suspects=True)
        assert (claim.job_id, claim.crashes) == (job_id, 2)

    def test_the_last_crash_makes_a_dead_letter(self, harness: Harness) -> None:
        """The crash budget is used up: the job is FAILED with a reason and an alert, and no attempt is counted."""
        job_id = harness.submit()
        crash = CountCrash(detail="exit code -9", max_crashes=3)
        for _ in range(2):
            harness.end(harness.claim_job(job_id), crash)
        answer = harness.end(harness.claim_job(job_id, suspects=True), crash)
        assert (answer.dead_lettered, answer.alerted) == (True, True)
        record = harness.record(job_id)
        assert (record.status, record.attempts, record.crashes) == (JobStatus.FAILED, 0, 3)
        assert record.dead_letter_reason
        assert len(harness.store.alerts_of(job_id)) == 1


class TestComplete:
    def test_many_in_one_call(self, harness: Harness) -> None:
        """Different ends come in one transaction; there is one answer for each, in order."""
        decisions: list[Decision] = [
            harness.success(),
            harness.another_try(harness.after(hours=1)),
            harness.failure(),
            Reschedule(at=harness.after(hours=1)),
            HandBack(),
            CountCrash(detail="boom", max_crashes=3),
        ]
        claims = [harness.running(scheduled_at=harness.after(seconds=-i)) for i in range(len(decisions))]
        completions = [harness.completion(c, d) for c, d in zip(claims, decisions, strict=True)]
        answers = harness.store.complete(completions, now=harness.now)
        assert [(a.job_id, a.won, a.replayed) for a in answers] == [(c.job_id, True, False) for c in claims]
        assert harness.statuses(c.job_id for c in claims) == [
            JobStatus.SUCCEEDED,
            JobStatus.PENDING,
            JobStatus.FAILED,
            JobStatus.PENDING,
            JobStatus.PENDING,
            JobStatus.PENDING,
        ]

    def test_five_hundred_in_one_call(self, harness: Harness) -> None:
        """Every completion of a full batch wins."""
        harness.submit_many(500)
        claims = harness.claim(500)
        assert all(answer.won for answer in harness.end_all(claims))
        assert harness.store.counts()[JobStatus.SUCCEEDED] == 500

    def test_of_nothing(self, harness: Harness) -> None:
        """No completions, no answers."""
        assert harness.store.complete([], now=harness.now) == []

    def test_a_lost_claim_does_not_harm_the_others(self, harness: Harness) -> None:
        """In one call, completions whose claim still holds win, and the others are told that they lost."""
        winner, loser, other = (harness.running() for _ in range(3))
        harness.store.cancel(loser.job_id, reason="r", now=harness.now)
        unknown = harness.forged_claim(new_id())
        answers = harness.end_all([winner, loser, unknown, other])
        assert [a.won for a in answers] == [True, False, False, True]
        assert harness.statuses(c.job_id for c in (winner, loser, other)) == [
            JobStatus.SUCCEEDED,
            JobStatus.CANCELED,
            JobStatus.SUCCEEDED,
        ]

    @pytest.mark.parametrize("decision", ["success", "retry", "failure", "reschedule", "hand back", "crash"])
    def test_sent_again_after_a_lost_answer(self, harness: Harness, decision: str) -> None:
        """The same completion comes twice: the second is told that it has already won, and changes nothing."""
        at = harness.after(hours=1)
        ends: dict[str, Decision] = {
            "success": harness.success(),
            "retry": harness.another_try(at),
            "failure": harness.failure(),
            "reschedule": Reschedule(at=at),
            "hand back": HandBack(),
            "crash": CountCrash(detail="boom", max_crashes=3),
        }
        end = ends[decision]
        claim = harness.running()
        callback = harness.spec(type=JobType.CALLBACK, parent_id=claim.job_id, scheduled_at=at)
        harness.end(claim, end, callback=callback)
        before, counts = harness.record(claim.job_id), harness.store.counts()
        harness.advance(seconds=1)
        again = harness.complete(claim, end, callback=callback)
        assert (again.won, again.replayed) == (True, True)
        assert harness.record(claim.job_id) == before
        assert harness.store.counts() == counts
        assert len(harness.store.executions(claim.job_id, uncounted=True)) == 1
        assert len(harness.store.alerts()) == (decision == "failure")
        assert sum(alert.suppressed for alert in harness.store.alerts()) == 0

    def test_sent_again_when_the_job_runs_anew(self, harness: Harness) -> None:
        """The retry has been claimed meanwhile: the repeated completion gets the same answer, and the new run goes on."""
        claim = harness.running()
        harness.end(claim, harness.another_try())
        new = harness.claim_job(claim.job_id)
        again = harness.complete(claim, harness.another_try())
        assert (again.won, again.replayed) == (True, True)
        assert harness.record(claim.job_id).claim_id == new.claim_id
        harness.end(new)

    def test_a_callback_commits_with_the_end(self, harness: Harness) -> None:
        """The callback job is stored when the job ends, and it can run."""
        claim = harness.running()
        callback = harness.spec(target="shop.jobs:record", type=JobType.CALLBACK, parent_id=claim.job_id)
        harness.end(claim, callback=callback)
        (job,) = harness.take()
        assert (job.claim.job_id, job.claim.type) == (callback.job_id, JobType.CALLBACK)
        assert (job.body.target, job.body.parent_id) == ("shop.jobs:record", claim.job_id)

    def test_a_lost_claim_brings_no_callback(self, harness: Harness) -> None:
        """A completion that lost writes nothing, not even its callback."""
        claim = harness.running()
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        callback = harness.spec(type=JobType.CALLBACK)
        assert not harness.complete(claim, callback=callback).won
        assert harness.store.get(callback.job_id) is None

    def test_a_checkpoint_commits_with_the_end(self, harness: Harness) -> None:
        """State that comes with the completion is stored; None keeps what is stored."""
        claim = harness.running()
        harness.end(claim, harness.another_try(), state='{"last_id":7}')
        assert harness.record(claim.job_id).state == '{"last_id":7}'
        harness.end(harness.claim_job(claim.job_id), harness.failure())
        assert harness.record(claim.job_id).state == '{"last_id":7}'

    def test_runs_that_never_started(self, harness: Harness) -> None:
        """A completion without times is accepted; the job then has no start time."""
        claim = harness.running()
        harness.end(claim, HandBack(), started_at=None, finished_at=None)
        assert harness.record(claim.job_id).started_at is None

    def test_one_bad_value_stops_the_whole_call(self, harness: Harness) -> None:
        """The database refuses one value: UnstorableData is raised, and none of the hundred jobs has changed."""
        harness.submit_many(100)
        claims = harness.claim(100)
        completions = [harness.completion(claim) for claim in claims]
        completions[42] = harness.completion(claims[42], Succeed(result='"\ud800"'))
        before = [harness.record(claim.job_id) for claim in claims]
        with pytest.raises(UnstorableData):
            harness.store.complete(completions, now=harness.now)
        assert [harness.record(claim.job_id) for claim in claims] == before
        assert harness.store.executions(claims[0].job_id, uncounted=True) == []

    def test_the_other_ninety_nine_go_through(self, harness: Harness) -> None:
        """Sent without the bad one, the other completions succeed; the bad job then fails with the error."""
        harness.submit_many(100)
        claims = harness.claim(100)
        bad = harness.completion(claims[42], Succeed(result='"\ud800"'))
        good = [harness.completion(claim) for claim in claims if claim is not claims[42]]
        with pytest.raises(UnstorableData) as caught:
            harness.store.complete([bad], now=harness.now)
        assert all(answer.won for answer in harness.store.complete(good, now=harness.now))
        harness.end(claims[42], harness.failure(ascii(str(caught.value))))
        assert harness.store.counts()[JobStatus.SUCCEEDED] == 99
        assert harness.record(claims[42].job_id).error

    def test_a_nul_is_kept_or_refused(self, harness: Harness) -> None:
        """U+0000 in a result is never cut off silently: it comes back whole, or the call is refused."""
        claim = harness.running()
        result = '"a\x00b"'
        try:
            harness.end(claim, Succeed(result=result))
        except UnstorableData:
            assert harness.status(claim.job_id) is JobStatus.RUNNING
            harness.end(claim)
        else:
            assert harness.record(claim.job_id).result == result


class TestExecutionOfEachEnd:
    def test_what_is_written_down(self, harness: Harness) -> None:
        """Each way to end a run writes an execution row with its status, counted or not."""
        at = harness.now
        cases: list[tuple[Decision, str, bool]] = [
            (harness.success(), ExecutionStatus.SUCCEEDED, True),
            (harness.another_try(), ExecutionStatus.FAILED, True),
            (Retry(at=at, error=harness.error(), timed_out=True), ExecutionStatus.TIMED_OUT, True),
            (harness.failure(), ExecutionStatus.FAILED, True),
            (Reschedule(at=at), ExecutionStatus.RESCHEDULED, False),
            (HandBack(), ExecutionStatus.HANDED_BACK, False),
            (CountCrash(detail="exit code -9", max_crashes=3), ExecutionStatus.CRASHED, False),
        ]
        for decision, status, counted in cases:
            claim = harness.running(node="node-7")
            harness.end(claim, decision)
            (row,) = harness.store.executions(claim.job_id, uncounted=True)
            assert (row.job_id, row.claim_id, row.node_id) == (claim.job_id, claim.claim_id, "node-7")
            assert (row.status, row.counted, row.attempt) == (status, counted, 1)
            assert harness.store.executions(claim.job_id) == ([row] if counted else [])
            if harness.status(claim.job_id) is JobStatus.PENDING:
                harness.store.cancel(claim.job_id, reason="r", now=harness.now)

    def test_times_and_error(self, harness: Harness) -> None:
        """The row has the start, end, duration, time in the queue, error and traceback of the run."""
        job_id = harness.submit()
        harness.advance(seconds=3)
        claim = harness.claim_job(job_id)
        started = harness.advance(seconds=1)
        finished = harness.advance(seconds=2)
        harness.end(claim, harness.failure(), started_at=started, finished_at=finished)
        (row,) = harness.store.executions(job_id)
        assert (row.started_at, row.finished_at) == (started, finished)
        assert (row.duration, row.queue_wait) == (timedelta(seconds=2), timedelta(seconds=4))
        assert (row.error, row.error_type, row.traceback) == (
            "card declined",
            "shop.errors.Declined",
            "Traceback: …",
        )
