"""What follows from each outcome, and the failure pipeline table by table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.engine.decide import Decider
from ratchet.model.backoff import backoff_delay
from ratchet.model.decision import (
    BadCheckpoint,
    ClaimLost,
    Committed,
    Completion,
    CompletionAnswer,
    Confirm,
    CountCrash,
    Crashed,
    ErrorRecord,
    Expire,
    Expired,
    Fail,
    HandBack,
    Interrupted,
    KeepHeld,
    NotStarted,
    Park,
    Postponed,
    Raised,
    Reschedule,
    Retry,
    Returned,
    Settle,
    StoppedLate,
    Succeed,
    TargetMissing,
    TimedOut,
    Unstorable,
)
from ratchet.model.errors import TargetNotAllowed, UnstorableData, do_not_retry
from ratchet.model.status import BackoffPolicy
from tests.support.lanes import claimed

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@do_not_retry("card declined")
class Declined(Exception):
    pass


class DeclinedForever(Declined):
    pass


class Asked(DefaultRetryPolicy):
    """A policy that answers as told and remembers what it was asked."""

    def __init__(self, allows: bool = True, wait: timedelta = timedelta()) -> None:
        self.asked: list[int] = []
        self._allows = allows
        self._wait = wait

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        self.asked.append(attempt)
        return self._allows

    def delay(self, attempt: int, error: BaseException) -> timedelta:
        return self._wait


def decider(policy: Any = None) -> Decider:
    return Decider(
        retry_policy=policy or DefaultRetryPolicy(), sanitizer=DefaultErrorSanitizer(), max_crashes=3
    )


class TestFailurePipeline:
    def test_do_not_retry_is_inherited_and_asked_first(self) -> None:
        """A marked class or a class that derives from it is a dead letter, and the policy is not consulted."""
        policy = Asked()
        decision = decider(policy).decide(Raised(DeclinedForever()), claimed(max_retries=9), now=NOW)
        assert isinstance(decision, Fail)
        assert decision.reason == "do_not_retry: card declined"
        assert policy.asked == []

    @pytest.mark.parametrize("named", ["builtins.LookupError", "LookupError", "KeyError"])
    def test_no_retry_for_names_the_class_or_a_base(self, named: str) -> None:
        """no_retry_for holds for derived classes, by qualified or plain name."""
        decision = decider().decide(
            Raised(KeyError("x")), claimed(max_retries=9, no_retry_for=(named,)), now=NOW
        )
        assert isinstance(decision, Fail)
        assert decision.reason.startswith("no_retry_for")

    def test_the_policy_can_forbid_but_not_grant(self) -> None:
        """A refusal ends it with retries left; consent does not go beyond max_retries."""
        refused = decider(Asked(allows=False)).decide(Raised(ValueError()), claimed(max_retries=9), now=NOW)
        beyond = decider(Asked()).decide(Raised(ValueError()), claimed(max_retries=2, attempts=2), now=NOW)
        assert isinstance(refused, Fail)
        assert refused.reason == "retry policy refused"
        assert isinstance(beyond, Fail)
        assert beyond.reason == "retries exhausted (3 of 3 attempts)"

    @pytest.mark.parametrize(("attempts", "retries"), [(0, True), (1, True), (2, False)])
    def test_attempts_are_counted_before_they_are_compared(self, attempts: int, retries: bool) -> None:
        """max_retries=2 means three runs in all."""
        decision = decider().decide(Raised(ValueError()), claimed(max_retries=2, attempts=attempts), now=NOW)
        assert isinstance(decision, Retry if retries else Fail)

    def test_the_policys_delay_wins_if_it_has_one(self) -> None:
        """Zero leaves it to the job's backoff."""
        job = claimed(max_retries=3, backoff=BackoffPolicy.FIXED, backoff_base=timedelta(seconds=7))
        own = decider(Asked()).decide(Raised(ValueError()), job, now=NOW)
        chosen = decider(Asked(wait=timedelta(minutes=1))).decide(Raised(ValueError()), job, now=NOW)
        assert isinstance(own, Retry)
        assert own.at == NOW + timedelta(seconds=7)
        assert isinstance(chosen, Retry)
        assert chosen.at == NOW + timedelta(minutes=1)

    def test_a_policy_that_raises_loses_no_job(self) -> None:
        """Its answers count as yes and zero."""

        class Broken(DefaultRetryPolicy):
            def should_retry(self, attempt: int, error: BaseException) -> bool:
                raise RuntimeError("defect")

            def delay(self, attempt: int, error: BaseException) -> timedelta:
                raise RuntimeError("defect")

        decision = decider(Broken()).decide(Raised(ValueError()), claimed(max_retries=1), now=NOW)
        assert decision == Retry(at=NOW, error=decision.error)  # type: ignore[union-attr]

    @pytest.mark.parametrize("answer", [None, "soon", 3, timedelta(seconds=-1)])
    def test_a_policy_that_answers_nonsense_loses_no_job(self, answer: Any) -> None:
        """The attempt counter and the job's own backoff decide."""

        class Odd(DefaultRetryPolicy):
            def should_retry(self, attempt: int, error: BaseException) -> bool:
                return cast(bool, None)

            def delay(self, attempt: int, error: BaseException) -> timedelta:
                return cast(timedelta, answer)

        decision = decider(Odd()).decide(Raised(ValueError()), claimed(max_retries=1), now=NOW)
        assert decision == Retry(at=NOW, error=decision.error)  # type: ignore[union-attr]

    def test_a_delay_beyond_the_calendar_is_cut(self) -> None:
        """No database could keep such a time."""
        decision = decider(Asked(wait=timedelta.max)).decide(
            Raised(ValueError()), claimed(max_retries=1), now=NOW
        )
        assert isinstance(decision, Retry)
        assert decision.at == NOW + timedelta(days=365)

    def test_a_timeout_flows_through_the_same_pipeline(self) -> None:
        """It is retried like any failure, and says that it was a timeout."""
        decision = decider().decide(TimedOut(timedelta(seconds=5)), claimed(max_retries=1), now=NOW)
        assert isinstance(decision, Retry)
        assert decision.timed_out
        assert "timeout of 5s" in decision.error.message

    def test_code_that_has_not_ended_does_not_move_the_due_time(self) -> None:
        """A retry is due when its backoff says; the store holds it back while the code is running."""
        decision = decider().decide(
            TimedOut(timedelta(seconds=5), stopped=False), claimed(max_retries=1), now=NOW
        )
        assert isinstance(decision, Retry)
        assert decision.at == NOW

    def test_errors_are_sanitized_and_capped(self) -> None:
        """Neither message nor traceback holds a credential, and both end somewhere."""
        secret = "postgresql://admin:s3cret@db/prod " + "x" * 50_000
        decision = decider().decide(Raised(RuntimeError(secret)), claimed(), now=NOW)
        assert isinstance(decision, Fail)
        assert "s3cret" not in decision.error.message
        assert "s3cret" not in (decision.error.traceback or "")
        assert decision.error.message.startswith("RuntimeError: postgresql://[REDACTED]@db/prod")
        assert len(decision.error.message) <= 2000
        assert len((decision.error.traceback or "").encode()) <= 16 * 1024


class TestOtherOutcomes:
    @pytest.mark.parametrize(
        ("outcome", "decision"),
        [
            (Returned("1", False), Succeed(result="1")),
            (
                Postponed(timedelta(seconds=3), False, "not yet"),
                Reschedule(at=NOW + timedelta(seconds=3), reason="not yet"),
            ),
            (Interrupted("the node is shutting down"), HandBack()),
            (NotStarted(), HandBack()),
            (Crashed("gone"), CountCrash(detail="gone", max_crashes=3)),
            (TargetMissing("no module app"), Park(reason="no module app")),
            (Expired(), Expire()),
            (ClaimLost(stopped=True), Settle()),
            (ClaimLost(stopped=False), KeepHeld()),
            (StoppedLate(), Settle()),
        ],
    )
    def test_decisions(self, outcome: Any, decision: Any) -> None:
        """What is no failure never reaches the pipeline."""
        assert decider().decide(outcome, claimed(max_retries=3), now=NOW) == decision

    def test_what_the_job_committed_itself_is_confirmed(self) -> None:
        """The completion and its answer are those of the job's own transaction."""
        job = claimed()
        completion = Completion(claim=job.claim, decision=Succeed())
        answer = CompletionAnswer(job_id=job.claim.job_id, won=True)
        decision = decider().decide(Committed(completion, answer), job, now=NOW)
        assert decision == Confirm(completion=completion, answer=answer)

    def test_a_refusal_in_the_code_of_a_job_is_a_failure_like_any_other(self) -> None:
        """A job that submits what is not allowed fails by the rules; a target that is unknown here is `TargetMissing`."""
        outcome = Raised(TargetNotAllowed("app:run"))
        assert isinstance(decider().decide(outcome, claimed(max_retries=1), now=NOW), Retry)
        assert isinstance(decider().decide(outcome, claimed(), now=NOW), Fail)

    def test_a_bad_checkpoint_is_a_failure_like_any_other(self) -> None:
        """It is retried as long as the job has retries."""
        outcome = BadCheckpoint(ValueError("a set is no JSON"))
        assert isinstance(decider().decide(outcome, claimed(max_retries=1), now=NOW), Retry)
        assert isinstance(decider().decide(outcome, claimed(), now=NOW), Fail)

    def test_data_that_no_store_takes_leaves_only_the_name_of_the_error(self) -> None:
        """A dead letter without the text that was refused."""
        decision = decider().decide(Unstorable(UnstorableData("bad \ud800")), claimed(max_retries=9), now=NOW)
        assert isinstance(decision, Fail)
        assert decision.reason == "unstorable data"
        assert decision.error == ErrorRecord(
            message="UnstorableData: the store refused what the run left behind", type="UnstorableData"
        )

    def test_a_counted_postponement_is_a_failure_with_its_own_delay(self) -> None:
        """RetryLater(count=True) consumes an attempt and waits as long as it says."""
        decision = decider().decide(Postponed(timedelta(seconds=9), True), claimed(max_retries=1), now=NOW)
        assert isinstance(decision, Retry)
        assert decision.at == NOW + timedelta(seconds=9)


class TestBackoff:
    @pytest.mark.parametrize(
        ("policy", "attempt", "seconds"),
        [
            (BackoffPolicy.NONE, 5, 0),
            (BackoffPolicy.FIXED, 5, 30),
            (BackoffPolicy.EXPONENTIAL, 1, 30),
            (BackoffPolicy.EXPONENTIAL, 2, 60),
            (BackoffPolicy.EXPONENTIAL, 5, 480),
            (BackoffPolicy.EXPONENTIAL, 12, 61440),
            (BackoffPolicy.EXPONENTIAL, 13, 86400),
            (BackoffPolicy.EXPONENTIAL, 100_000, 86400),
        ],
    )
    def test_delays(self, policy: BackoffPolicy, attempt: int, seconds: int) -> None:
        """Base * 2^(attempt-1), at most a day."""
        assert backoff_delay(policy, timedelta(seconds=30), attempt) == timedelta(seconds=seconds)

    @pytest.mark.parametrize(("roll", "factor"), [(0.0, 0.9), (0.5, 1.0), (1.0, 1.1)])
    def test_jitter_spreads_both_ways(self, roll: float, factor: float) -> None:
        """Ten percent of jitter is at most ten percent more or less."""
        delay = backoff_delay(BackoffPolicy.FIXED, timedelta(seconds=10), 1, 0.1, roll)
        assert delay == timedelta(seconds=10 * factor)

    def test_no_base_means_no_wait(self) -> None:
        """Doubling nothing is nothing, whatever the attempt."""
        assert backoff_delay(BackoffPolicy.EXPONENTIAL, timedelta(), 100_000) == timedelta()
