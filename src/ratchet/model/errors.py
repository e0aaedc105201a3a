"""
Every error Ratchet raises, under one root.

A message says what happened, with which value, and what to do next. Drivers' own exceptions
never leave ``ratchet.stores``: they travel as ``__cause__`` of one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

E = TypeVar("E", bound=type[BaseException])


class RatchetError(Exception):
    """The root of all errors raised by Ratchet."""


class NodeAlive(RatchetError):
    """A node that still beats cannot be removed; stop its process."""


# --- submitting ---------------------------------------------------------------------------------


class InvalidJob(RatchetError, ValueError):
    """A job, an option or an argument cannot be accepted; nothing was stored."""


class UnstorableValue(InvalidJob):
    """An argument, parameter, result or state holds something that JSON cannot carry faithfully."""


class PayloadTooLarge(InvalidJob):
    """The encoded arguments exceed the payload cap."""


class InvalidTarget(InvalidJob):
    """A target is not an importable function or method; the message shows the form that works."""


class TargetNotAllowed(RatchetError):
    """The target policy refuses this target; the message says what to add to ``allow``."""


class TargetNotFound(RatchetError):
    """A stored target cannot be imported on this node."""


class BusinessKeyBusy(RatchetError):
    """Another live job holds the business key."""

    def __init__(self, key: str, holder: UUID) -> None:
        super().__init__(
            f"business key {key!r} is held by live job {holder}; wait for it, cancel it, "
            f"or submit with busy=Busy.RETURN or busy=Busy.REPLACE"
        )
        self.key = key
        self.holder = holder


class SubmissionBlocked(RatchetError):
    """A key is held by another transaction that is still open; submit again after it has ended."""


class EmptyFilter(InvalidJob):
    """A bulk verb was called with a filter that matches everything."""


class UnsubmittedJobWarning(UserWarning):
    """A builder was dropped without ``submit()``: nothing was stored."""


# --- asking and waiting -------------------------------------------------------------------------


class JobNotFound(RatchetError, LookupError):
    """No job has this id, neither live nor in history nor in the archive."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"there is no job {job_id}; it may have been deleted or purged by retention")
        self.job_id = job_id


class JobFailedError(RatchetError):
    """The awaited job ended as FAILED; ``error`` is its sanitized message."""

    def __init__(self, job_id: UUID, error: str | None, error_type: str | None = None) -> None:
        super().__init__(f"job {job_id} failed: {error or 'no message'}")
        self.job_id = job_id
        self.error = error
        self.error_type = error_type


class JobCanceledError(RatchetError):
    """The awaited job was canceled and will not have a result."""

    def __init__(self, job_id: UUID, reason: str | None = None) -> None:
        super().__init__(f"job {job_id} was canceled" + (f": {reason}" if reason else ""))
        self.job_id = job_id
        self.reason = reason


# --- running ------------------------------------------------------------------------------------


class JobInterrupted(BaseException):
    """
    Raised inside a job that was canceled, timed out or lost.

    A ``BaseException``, so that ``except Exception`` in user code does not swallow it.
    """


class JobTimeout(RatchetError):
    """A run exceeded its timeout."""


class JobExpired(RatchetError):
    """A job was not started before its expiry."""


class ConditionFailed(RatchetError):
    """A branch condition raised or exceeded its limit; the branch's job fails, not the parent."""


class SignalTimeout(RatchetError):
    """No signal arrived in time."""


class RetryLater(Exception):
    """
    Raise from a job that is not ready yet: it runs again after *delay*.

    With ``count=False`` no attempt is consumed and no failure is recorded.
    """

    def __init__(self, delay: timedelta | float, *, count: bool = True, reason: str | None = None) -> None:
        super().__init__(reason or "not ready yet")
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        self.count = count
        self.reason = reason


_DO_NOT_RETRY = "__ratchet_do_not_retry__"


def do_not_retry(reason: str | None = None) -> Callable[[E], E]:
    """Mark an exception class (and what derives from it) as permanent: straight to dead letters."""
    if isinstance(reason, type):
        raise InvalidJob(
            "write @do_not_retry() or @do_not_retry('reason'), with parentheses, above the exception class"
        )

    def mark(cls: E) -> E:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise InvalidJob(f"@do_not_retry goes on an exception class, not on {cls!r}")
        setattr(cls, _DO_NOT_RETRY, reason or "")
        return cls

    return mark


def do_not_retry_reason(cls: type[BaseException]) -> str | None:
    """The reason given to ``@do_not_retry`` on *cls* or a base; '' if none was given; None if unmarked."""
    return getattr(cls, _DO_NOT_RETRY, None)


# --- configuration and stores -------------------------------------------------------------------


class ConfigurationError(RatchetError, ValueError):
    """An option, URL or SPI argument is wrong; the message names it and what is accepted."""


class MissingDriver(ConfigurationError):
    """The store of this URL needs an extra that is not installed; the message names it."""


class StoreError(RatchetError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or the connection was lost; trying again later may work."""


class CommitUnknown(StoreUnavailable):
    """The connection was lost while committing: the change may or may not have been made."""


class UnstorableData(StoreError):
    """The database refused a value; nothing of the call was written."""


class Conflict(StoreError):
    """Deadlock, serialization failure or lock timeout that outlived its retries."""


class SchemaOutOfDate(StoreError):
    """The schema is missing or older than this version; run ``ratchet db upgrade``."""


class SchemaTooNew(StoreError):
    """The schema was made by a newer version of Ratchet; upgrade this installation."""


class SchemaChanged(StoreError):
    """An applied migration script differs from the one that was applied."""


class StaleClaim(StoreError):
    """The claim no longer holds the job: it was canceled, rescued or finished elsewhere."""
