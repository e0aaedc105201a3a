"""What the driver's errors become; the driver's exception is always the ``__cause__``."""

from __future__ import annotations

from collections.abc import Mapping

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
)

from ratchet.model.errors import (
    CommitUnknown,
    Conflict,
    RatchetError,
    StoreError,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
    SubmissionBlocked,
    UnstorableData,
    blame_store,
    led_to,
)
from ratchet.model.errors import ConfigurationError as BadConfiguration

TRANSIENT = "TransientTransactionError"
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"

#: What the title of a fence's validator begins with.
FENCED = "ratchet-fence: "

TIMED_OUT = 50
_INVALID = 121  # DocumentValidationFailure: only a fence has validators
_WRITE_CONFLICT = 112
_DUPLICATE_KEY = 11000
_TOO_LARGE = (10334, 17419, 17420)
_NOT_ALLOWED = (13, 18)
_NOT_PRIMARY = (10107, 13435)


class ConnectionLost(StoreUnavailable):
    """A connection broke before anything was sent for commit; a new one may succeed at once."""


class ReadOnlyServer(StoreReadOnly, ConnectionLost):
    """The server answers, but is not the primary; a new connection may reach the one that is."""


class TransactionAborted(Conflict, PyMongoError):
    """
    The server has aborted the caller's own transaction, as it does for every conflict: run it again.

    A `PyMongoError` with the driver's own label as well, so that `ClientSession.with_transaction`
    does that by itself.
    """


class SubmissionAborted(SubmissionBlocked, PyMongoError):
    """The same for a submission whose key or parent another transaction holds."""


def translated(error: Exception, where: str, *, unknown: bool = False) -> RatchetError:
    """
    The error of ours that says what happened to the database *where*.

    *unknown*: a lost connection leaves open whether the change was made.
    """
    if isinstance(error, BSONError | UnicodeError | OverflowError | DocumentTooLarge):
        return UnstorableData(f"MongoDB cannot store a value: {error}; nothing was written")
    if isinstance(error, ConfigurationError):
        return BadConfiguration(f"the MongoDB URL or an option in it is wrong: {error}")
    if _is_refused_by_secondary(error):
        return ReadOnlyServer(
            f"the MongoDB database {where} is read-only, because the server is not the primary ({_first_line(error)}); use "
            f"a URL with replicaSet=… and without directConnection=true, so that the primary is found"
        )
    if isinstance(error, ConnectionFailure):
        if unknown:
            return CommitUnknown(f"the connection was lost during a write, which may have been made: {error}")
        return ConnectionLost(f"MongoDB cannot be reached: {_first_line(error)}")
    if is_conflict(error):
        return Conflict(f"another transaction was faster: {_first_line(error)}")
    if isinstance(error, OperationFailure):
        return _fenced(error) or _refused(error)
    return StoreError(f"MongoDB: {_first_line(error)}")


def _is_refused_by_secondary(error: Exception) -> bool:
    """True where nothing was done, because the server is not the primary."""
    details = error.details if isinstance(error, NotPrimaryError) else None
    return isinstance(details, Mapping) and details.get("code") in _NOT_PRIMARY


def is_conflict(error: Exception) -> bool:
    """True where the same work may succeed when it is done again from the start."""
    if isinstance(error, DuplicateKeyError):
        return True  # it was stored since this transaction looked
    if isinstance(error, BulkWriteError):
        codes = {one.get("code") for one in (error.details or {}).get("writeErrors", ())}
        if codes & {_WRITE_CONFLICT, _DUPLICATE_KEY}:
            return True
    if isinstance(error, OperationFailure) and error.code == _WRITE_CONFLICT:
        return True
    return isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT)


def blame(error: BaseException) -> None:
    """
    Mark what led to the end of a user's transaction, if it was a conflict or a lost connection.

    Both come with the label that says so. A duplicate of a key of the user's own does not.
    """
    for one in led_to(error):
        if isinstance(one, PyMongoError) and one.has_error_label(TRANSIENT):
            blame_store(one)


def is_time_up(error: Exception) -> bool:
    """True where the server has ended an operation because it took too long."""
    return isinstance(error, ExecutionTimeout) or (
        isinstance(error, OperationFailure) and error.code == TIMED_OUT
    )


def aborted(error: Exception, *, submission: bool) -> RatchetError:
    """The error for a conflict inside the caller's own transaction, which is over with it."""
    text = (
        "MongoDB has aborted your transaction, because another one has changed the same job, key or parent; "
        "run it again from its start (ClientSession.with_transaction does)"
    )
    found: RatchetError
    if submission:
        found = SubmissionAborted(text)
        found._add_error_label(TRANSIENT)
    else:
        found = TransactionAborted(text)
        found._add_error_label(TRANSIENT)
    found.__cause__ = error
    return found


def _fenced(error: OperationFailure) -> StoreMoved | None:
    """The error where the validator of a fence has refused a document; None: it was something else."""
    details = error.details or {}
    for one in (details, *details.get("writeErrors", ())):
        if one.get("code") == _INVALID:
            title = str(((one.get("errInfo") or {}).get("details") or {}).get("title") or "")
            reason = title.partition(FENCED)[2]
            return StoreMoved(reason or "the jobs of this database are being moved to another one, or were")
    return None


def _refused(error: OperationFailure) -> RatchetError:
    if is_time_up(error):
        return StoreUnavailable(f"MongoDB did not finish in time: {_first_line(error)}")
    if error.code in _TOO_LARGE:
        return UnstorableData(f"a document would exceed MongoDB's 16 MB: {_first_line(error)}")
    if error.code in _NOT_ALLOWED:
        return StoreError(
            f"MongoDB does not allow this to the user of the connection: {_without_values(error)}; `ratchet db grants` prints what "
            f"each role needs"
        )
    return StoreError(f"MongoDB refused an operation: {_first_line(error)}")


def _without_values(error: Exception) -> str:
    """What the server says of a refused command: which one, on which collection, but not the documents in it."""
    return _first_line(error).partition(",")[0]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
