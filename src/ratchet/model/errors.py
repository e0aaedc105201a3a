"""
Every error that Ratchet raises, under one root.

A message says what happened, with which value, and what to do next. Exceptions of database drivers
never leave ``ratchet.stores``: they are kept as ``__cause__`` of one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

E = TypeVar("E", bound=type[BaseException])


class RatchetError(Exception):
    """The root of all errors raised by Ratchet."""


class NodeAlive(RatchetError):
    """A node that is still alive cannot be removed; stop its process first."""


class NodeNotFound(RatchetError, LookupError):
    """There is no such node, or it is dead: nothing can be asked of it."""


class NotAuthorized(RatchetError):
    """The authorizer of the scheduler refuses this; nothing was changed, and nothing is shown."""

    def __init__(self, permission: str, *, principal: str | None = None, about: str | None = None) -> None:
        who = "nobody in particular" if principal is None else repr(principal)
        super().__init__(
            f"{who} may not {permission}{'' if about is None else f' {about}'}: the authorizer of this scheduler refuses it"
            + ("; say who acts with scheduler.acting_as(name)" if principal is None else "")
        )
        #: What was asked for, a `Permission`.
        self.permission = permission
        #: Who asked; None: the code did not say.
        self.principal = principal


# --- submitting ---------------------------------------------------------------------------------


class InvalidJob(RatchetError, ValueError):
    """A job, an option or an argument was refused; nothing was stored."""


class UnstorableValue(InvalidJob):
    """An argument, parameter, result or state holds something that JSON cannot store without loss."""


class PayloadTooLarge(InvalidJob):
    """The encoded arguments are larger than the limit; store the data elsewhere and pass a reference."""


class UnreadablePayload(InvalidJob):
    """Stored arguments, or another stored value, are damaged, or larger or deeper than anything that is read."""


class MissingKey(UnreadablePayload):
    """A stored value is encrypted with a key that this process does not have; ``keys`` names it."""

    def __init__(self, what: str, keys: tuple[str, ...] = ()) -> None:
        self.keys = keys
        if not keys:
            super().__init__(what)
            return
        named = " and ".join(repr(key) for key in keys)
        super().__init__(
            f"{what}: encrypted with the key {named}, which this process does not have; add it to the keys of "
            f"Scheduler(codec=Keyring(...))"
        )


class InvalidTarget(InvalidJob):
    """The target is not an importable function or method; the message shows a form that works."""


class TargetNotAllowed(RatchetError):
    """The target policy refuses this target; the message says what to add to ``allow``."""


class TargetNotFound(RatchetError):
    """A stored target cannot be imported on this node; the message says why."""


class UnreadableJob(RatchetError):
    """The row of a job cannot be read; the message names the columns and what stands there."""


class BusinessKeyBusy(RatchetError):
    """Another live job holds the business key."""

    def __init__(self, key: str, holder: UUID) -> None:
        super().__init__(
            f"business key {key!r} is held by live job {holder}; wait for it, cancel it, "
            f"or submit with busy=Busy.RETURN or busy=Busy.REPLACE"
        )
        self.key = key
        self.holder = holder


class QuotaExceeded(RatchetError):
    """
    A `Quota` of the scheduler has no room for the submission; nothing was stored.

    ``kind`` is ``pending`` or ``per_minute``, ``subject`` says whose quota it is.
    """

    def __init__(self, kind: str, subject: str, *, used: int, limit: int, wanted: int) -> None:
        jobs = "pending jobs" if kind == "pending" else "submissions in the last minute"
        when = "when some of them have run" if kind == "pending" else "in a minute"
        super().__init__(
            f"{subject} has {used} {jobs}, its quota is {limit}, and this would add {wanted}; nothing was stored: submit it again {when}"
        )
        self.kind = kind
        self.subject = subject
        self.used = used
        self.limit = limit


class SubmissionBlocked(RatchetError):
    """Another transaction that is still open holds what this submission writes; submit again after it has ended."""


class EmptyFilter(InvalidJob):
    """A bulk verb was called with a filter that matches every job; name at least one criterion."""


class UnsubmittedJobWarning(UserWarning):
    """A builder was dropped without ``submit()``, so nothing was stored."""


class DeclaredTwiceWarning(UserWarning):
    """A function was declared on a second scheduler; its ``.enqueue`` stays with the first."""


class BlocksEventLoop(RatchetError):
    """A verb that waits was called on an event loop; the message names the form that is awaited."""


class BlocksEventLoopWarning(UserWarning):
    """A verb that uses the database was called on an event loop; the message names the form that is awaited."""


# --- asking and waiting -------------------------------------------------------------------------


class JobNotFound(RatchetError, LookupError):
    """No job has this id, not even in the archive."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"there is no job {job_id}; it may have been deleted or purged by retention")
        self.job_id = job_id


class JobFailedError(RatchetError):
    """The awaited job has FAILED; ``error`` is its sanitized message."""

    def __init__(self, job_id: UUID, error: str | None, error_type: str | None = None) -> None:
        super().__init__(f"job {job_id} failed: {error or 'no message'}")
        self.job_id = job_id
        self.error = error
        self.error_type = error_type


class JobCanceledError(RatchetError):
    """The awaited job was canceled, so it has no result."""

    def __init__(self, job_id: UUID, reason: str | None = None) -> None:
        super().__init__(f"job {job_id} was canceled" + (f": {reason}" if reason else ""))
        self.job_id = job_id
        self.reason = reason


class ResultTruncated(RatchetError):
    """
    The job succeeded, but its result was over the limit, so that only its beginning is stored, for people.

    ``size`` is what the whole result takes as JSON, in bytes; None if version 0.1.0 stored it.
    """

    def __init__(self, job_id: UUID, size: int | None, limit: int) -> None:
        takes = "more" if size is None else f"{size:,} bytes as JSON, more"
        super().__init__(
            f"the result of job {job_id} takes {takes} than the limit of {limit:,} bytes, so only its beginning "
            f"was kept; store the data elsewhere and return a reference to it, or raise Options.result_limit "
            f"where the job runs"
        )
        self.job_id = job_id
        self.size = size
        self.limit = limit


# --- running ------------------------------------------------------------------------------------


class JobInterrupted(BaseException):
    """
    Raised inside a job that was canceled, has timed out or has lost its claim.

    It is a ``BaseException``, so that ``except Exception`` in user code does not catch it.
    """


class JobTimeout(RatchetError):
    """A run took longer than its timeout."""


class JobExpired(RatchetError):
    """A job had not started when it expired."""


class ConditionFailed(RatchetError):
    """A branch condition raised or took too long; the job of the branch fails, not the parent."""


class SignalTimeout(RatchetError):
    """The signal that a job waited for did not arrive before its deadline."""


class RetryLater(Exception):
    """
    Raise this in a job that is not ready yet: it runs again after *delay*.

    With ``count=False`` no attempt is used and no failure is recorded.
    """

    def __init__(self, delay: timedelta | float, *, count: bool = True, reason: str | None = None) -> None:
        super().__init__(reason or "not ready yet")
        try:
            self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidJob(
                f"RetryLater takes a timedelta or a number of seconds, not {delay!r:.60}"
            ) from error
        self.count = count
        self.reason = reason


_DO_NOT_RETRY = "__ratchet_do_not_retry__"


def do_not_retry(reason: str | None = None) -> Callable[[E], E]:
    """Mark an exception class and its subclasses as permanent: the job becomes a dead letter without a retry."""
    if isinstance(reason, type):
        raise InvalidJob(
            "write @do_not_retry() or @do_not_retry('reason'), with parentheses, above the exception class"
        )

    def mark(cls: E) -> E:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise InvalidJob(f"put @do_not_retry above an exception class, not above {cls!r}")
        setattr(cls, _DO_NOT_RETRY, reason or "")
        return cls

    return mark


def do_not_retry_reason(cls: type[BaseException]) -> str | None:
    """The reason given to ``@do_not_retry`` on *cls* or a base class; '' if it has none, None if *cls* is not marked."""
    return getattr(cls, _DO_NOT_RETRY, None)


# --- configuration and stores -------------------------------------------------------------------


class ConfigurationError(RatchetError, ValueError):
    """An option, URL or SPI argument is wrong; the message names it and says what is accepted."""


class MissingDriver(ConfigurationError):
    """The store of this URL needs an extra that is not installed; the message names the extra."""


class StoreError(RatchetError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, or the connection was lost; it may help to try again later."""


class StoreReadOnly(StoreUnavailable):
    """The database takes no writes now: it is a standby, or writes are frozen; it may help to try again later."""


class StoreMoved(StoreReadOnly):
    """The jobs of this database are being moved to another one, or were, or are arriving from one; the message says which."""


class CommitUnknown(StoreUnavailable):
    """The connection was lost during the commit: the change may or may not have been made."""


class UnstorableData(StoreError):
    """The database refused a value; nothing of the call was written."""


class Conflict(StoreError):
    """A deadlock, serialization failure or lock timeout remained after all retries."""


class SchemaOutOfDate(StoreError):
    """The schema is missing or older than this version; run ``ratchet db upgrade``."""


class SchemaTooNew(StoreError):
    """A newer version of Ratchet made the schema; upgrade this installation."""


class SchemaChanged(StoreError):
    """A migration script of this installation differs from the one that was applied; reinstall the package."""


_OF_THE_STORE = "__ratchet_of_the_store__"


def blame_store(error: BaseException) -> None:
    """
    Mark *error*, one of ours or of a driver: the store has failed, not the code that met it.

    What leaves ``ctx.transaction()`` with this mark, or because of such an error, costs the job no attempt.
    """
    setattr(error, _OF_THE_STORE, True)


def is_of_store(error: BaseException) -> bool:
    """True if *error* was marked with `blame_store`, or was raised because of one that was."""
    return any(getattr(one, _OF_THE_STORE, False) for one in led_to(error))


def led_to(error: BaseException) -> Iterator[BaseException]:
    """*error*, and the errors because of which it was raised."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


class StaleClaim(StoreError):
    """The claim no longer holds the job, which was canceled, rescued or finished elsewhere."""
