"""
What follows from the end of a run, as one pure function: every outcome has one case.

A failure is asked in the order of the specification: count the attempt, `do_not_retry` and `no_retry_for`, the
retry policy, the attempt counter, the delay.
"""

from __future__ import annotations

import logging
import random
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta

from ratchet.engine.masks import hidden_in
from ratchet.model.alerts import cause_of
from ratchet.model.backoff import backoff_delay
from ratchet.model.claim import ClaimedJob
from ratchet.model.decision import (
    BadCheckpoint,
    ClaimLost,
    Committed,
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
    Outcome,
    Park,
    Postponed,
    Raised,
    Reschedule,
    Retry,
    Returned,
    RunDecision,
    Settle,
    StoppedLate,
    Succeed,
    TargetMissing,
    TimedOut,
    Unreadable,
    Unstorable,
)
from ratchet.model.durations import format_duration
from ratchet.model.errors import (
    JobTimeout,
    ResultTruncated,
    StoreError,
    do_not_retry_reason,
)
from ratchet.model.masking import hide
from ratchet.model.script import importable_name
from ratchet.model.status import JobType
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.retry_policy import RetryPolicy

faults = FaultLog(logging.getLogger("ratchet.parts"))

#: A retry comes after a year at most, whatever the retry policy says: later times may not exist in a database.
LONGEST_DELAY = timedelta(days=365)


class Decider:
    """Turns outcomes into decisions. It holds what the failure pipeline asks, and nothing that changes."""

    def __init__(
        self,
        *,
        retry_policy: RetryPolicy,
        sanitizer: ErrorSanitizer,
        max_crashes: int,
        callback_retries: int | None = None,
        error_limit: int = 2000,
        traceback_limit: int = 16 * 1024,
        dice: random.Random | None = None,
    ) -> None:
        self._should_retry: Callable[[int, BaseException], object] = getattr(
            retry_policy, "should_retry", _leave_it_to_the_job
        )
        self._policy_delay: Callable[[int, BaseException], object] = getattr(
            retry_policy, "delay", _no_delay_of_its_own
        )
        self._sanitizer = sanitizer
        self._max_crashes = max_crashes
        self._callback_retries = callback_retries
        self._error_limit = error_limit
        self._traceback_limit = traceback_limit
        self._dice = dice or random.Random()

    def decide(self, outcome: Outcome, job: ClaimedJob, *, now: datetime) -> RunDecision:
        """The decision for one run of *job* that ended with *outcome* at *now*."""
        match outcome:
            case Returned(result, truncated):
                return Succeed(result=result, truncated=truncated)
            case Raised(ResultTruncated() as error):
                # No attempt gets more: what was cut off is stored nowhere.
                return self._dead_letter(job, self.record(error, job), "result truncated")
            case Raised(error) | BadCheckpoint(error):
                return self._failure(error, job, now)
            case TimedOut(timeout):
                # Where its code goes on, the store holds the retry back until it has ended.
                error = JobTimeout(f"the run exceeded its timeout of {format_duration(timeout)}")
                return self._failure(error, job, now, timed_out=True)
            case Postponed(delay, counted, reason):
                if counted:
                    return self._failure(_Postponement(reason or "not ready yet"), job, now, delay=delay)
                return Reschedule(at=now + delay, reason=reason)
            case Interrupted() | NotStarted():
                return HandBack()
            case Crashed(detail):
                return CountCrash(detail=detail, max_crashes=self._max_crashes)
            case TargetMissing(reason, keys):
                return Park(reason=reason, keys=keys)
            case Unreadable(error):
                # No attempt reads more. It can be retried by hand once the row is mended.
                return self._dead_letter(job, self.record(error, job), "unreadable")
            case Expired():
                return Expire()
            case ClaimLost(stopped):
                return Settle() if stopped else KeepHeld()
            case StoppedLate():
                return Settle()
            case Committed(completion, answer):
                return Confirm(completion=completion, answer=answer)
            case Unstorable(StoreError() as error):
                return self._dead_letter(
                    job, _bare_record(error, "the store refused what the run left behind"), "unstorable data"
                )
            case Unstorable(error):
                return self._dead_letter(
                    job, _bare_record(error, "what follows from the run could not be decided"), "undecidable"
                )

    def record(self, error: BaseException, job: ClaimedJob) -> ErrorRecord:
        """*error* of a run of *job* as it may be stored: sanitized once, masked, capped, with its traceback."""
        message = self._sanitizer.sanitize(error)
        lines = self._sanitizer.sanitize_text("".join(traceback.format_exception(error)))
        hidden = hidden_in(job)
        if hidden:
            message, lines = hide(message, hidden), hide(lines, hidden)
        return ErrorRecord(
            message=message[: self._error_limit],
            type=self._sanitizer.sanitize_text(type(error).__qualname__),
            traceback=_tail(lines, self._traceback_limit),
        )

    def _failure(
        self,
        error: BaseException,
        job: ClaimedJob,
        now: datetime,
        *,
        timed_out: bool = False,
        delay: timedelta | None = None,
    ) -> Fail | Retry:
        attempt = job.claim.attempt
        record = self.record(error, job)
        refusal = self._refusal(error, job, attempt)
        if refusal is not None:
            return self._dead_letter(job, record, refusal, timed_out=timed_out)
        wait = delay if delay is not None else self._delay(error, job, attempt)
        return Retry(at=now + wait, error=record, timed_out=timed_out)

    @staticmethod
    def _dead_letter(job: ClaimedJob, record: ErrorRecord, reason: str, *, timed_out: bool = False) -> Fail:
        cause = cause_of(job.body.target, record.type)
        return Fail(error=record, reason=reason, error_hash=cause, timed_out=timed_out)

    def _refusal(self, error: BaseException, job: ClaimedJob, attempt: int) -> str | None:
        """Why there is no further attempt; None if there is one."""
        marked = do_not_retry_reason(type(error))
        if marked is not None:
            return f"do_not_retry: {marked}" if marked else "do_not_retry"
        named = _named_in(type(error), job.body.no_retry_for)
        if named is not None:
            return f"no_retry_for: {named}"
        if not self._allows(attempt, error):
            return "retry policy refused"
        retries = self._retries(job)
        if attempt > retries:
            return (
                f"retries exhausted ({attempt} of {retries + 1} attempts)"
                if retries
                else "no retries configured"
            )
        return None

    def _retries(self, job: ClaimedJob) -> int:
        """How many retries the job has; of a callback, which nobody configures by itself, as many as this node's option says."""
        if job.claim.type is JobType.CALLBACK and self._callback_retries is not None:
            return self._callback_retries
        return job.claim.max_retries

    def _allows(self, attempt: int, error: BaseException) -> bool:
        try:
            answer = self._should_retry(attempt, error)
            if answer is not None:
                return bool(answer)
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "RetryPolicy.should_retry() raised or returned None; the attempt counter decides alone", fault
        )
        return True

    def _delay(self, error: BaseException, job: ClaimedJob, attempt: int) -> timedelta:
        chosen = self._chosen_delay(attempt, error)
        if chosen > timedelta():
            return chosen
        body = job.body
        return backoff_delay(body.backoff, body.backoff_base, attempt, body.jitter, self._dice.random())

    def _chosen_delay(self, attempt: int, error: BaseException) -> timedelta:
        """What the policy says; zero leaves it to the job."""
        try:
            chosen = self._policy_delay(attempt, error)
            if isinstance(chosen, timedelta):
                return min(chosen, LONGEST_DELAY)
            fault = None
        except BaseException as raised:
            fault = raised
        faults.note(
            "RetryPolicy.delay() raised or returned no timedelta; the job's own backoff is used", fault
        )
        return timedelta()


def _leave_it_to_the_job(attempt: int, error: BaseException) -> bool:
    return True


def _no_delay_of_its_own(attempt: int, error: BaseException) -> timedelta:
    return timedelta()


class _Postponement(Exception):
    """RetryLater(count=True): a failure with a delay of its own."""


def _bare_record(error: BaseException, what: str) -> ErrorRecord:
    """Nothing of the run but the name of the error: for data that no store takes."""
    name = type(error).__name__
    return ErrorRecord(message=f"{name}: {what}", type=name)


def class_names(cls: type) -> tuple[str, ...]:
    """The ways in which ``no_retry_for`` may name a class once it is stored; one of a script has two modules."""
    own = f"{cls.__module__}.{cls.__qualname__}"
    imported = f"{importable_name(cls.__module__)}.{cls.__qualname__}"
    return (own, cls.__qualname__) if own == imported else (own, imported, cls.__qualname__)


def _named_in(cls: type[BaseException], names: tuple[str, ...]) -> str | None:
    if not names:
        return None
    for base in cls.__mro__:
        for name in class_names(base):
            if name in names:
                return name
    return None


def _tail(text: str, limit: int) -> str:
    """The end of a traceback says more than its beginning."""
    if len(text.encode(errors="replace")) <= limit:
        return text
    return "...\n" + text.encode(errors="replace")[-(limit - 4) :].decode(errors="ignore")
