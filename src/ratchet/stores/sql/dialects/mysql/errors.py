"""What the errors of MySQL and MariaDB mean, by number."""

from __future__ import annotations

import pymysql

from ratchet.model.errors import (
    Conflict,
    RatchetError,
    SchemaOutOfDate,
    StoreError,
    StoreUnavailable,
    UnstorableData,
    blame_store,
    led_to,
)
from ratchet.stores.sql.errors import (
    AccessDenied,
    ConnectionLost,
    ConstraintViolated,
    LockTimeout,
    ReadOnlyServer,
    fenced,
    redacted,
)

DUPLICATE = 1062
DEADLOCK = 1213
NO_SUCH_SAVEPOINT = 1305
_SIGNALED = 1644  # a trigger has refused it
_LOCK_TIMEOUT = 1205
_CONFLICTS = {DEADLOCK, 1020, 1180}  # deadlock, record changed since it was read, refused at commit (Galera)
_FOREIGN_KEY = {1216, 1217, 1451, 1452}
_REFUSED_ROW = {DUPLICATE, 1048, 1364, 3819, 4025} | _FOREIGN_KEY  # duplicate, NULL, no default, CHECK
_REFUSED_VALUE = {1153, 1264, 1265, 1292, 1300, 1366, 1367, 1406, 1411, 1441, 1525, 1690, 3140, 4038}
_NO_SCHEMA = {1054, 1146}  # column, table does not exist
# aborted, shutdown, killed, idle for too long, gone, lost, out of sync
_LOST = {1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 3169, 4031}
_READ_ONLY = {1290, 1792, 1836}  # read_only, a read-only transaction, read-only mode
_ADVICE = "if it is a replica, connect to its primary; if read_only is on for a while, work goes on by itself when it is off"
_INTERRUPTED = {1317, 1969, 3024}  # killed, max_statement_time, max_execution_time
# too many connections, not ready, out of memory, disk full, access denied, unknown database, host blocked
_UNAVAILABLE = {1021, 1037, 1040, 1041, 1044, 1045, 1047, 1049, 1114, 1129, 1130, 1203, 1226, 1698}
NOT_ALLOWED = {1142, 1143, 1227}  # on the table, on a column, without a privilege of the server


class MysqlConstraints:
    """Reads error numbers."""

    def is_unique_violation(self, error: BaseException) -> bool:
        """True if a unique key already exists."""
        return number_of(error) == DUPLICATE

    def is_foreign_key_violation(self, error: BaseException) -> bool:
        """True if a referenced row is missing, or still referenced."""
        return number_of(error) in _FOREIGN_KEY


def number_of(error: BaseException) -> int | None:
    """The server's or the driver's number of an error; None: it has none."""
    if isinstance(error, pymysql.Error) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return None


def meaning(error: Exception, text: str) -> Exception:
    """
    What to raise for a driver's *error*; the caller keeps it as the cause.

    *text* is the statement without its values: they may be long, and nobody's business.
    """
    if isinstance(error, RatchetError):
        return error
    if isinstance(error, UnicodeError | OverflowError):
        return UnstorableData(f"a value cannot be sent to MySQL: {error}")
    if not isinstance(error, pymysql.Error):
        return StoreError(f"{type(error).__name__}: {error}, in: {text}")
    number = number_of(error)
    message = redacted(str(error.args[1] if len(error.args) > 1 else error)).strip()
    if number == _SIGNALED and (moved := fenced(message)) is not None:
        return moved
    if number == _LOCK_TIMEOUT:
        return LockTimeout(f"MySQL: {message}")
    if number in _CONFLICTS:
        return Conflict(f"MySQL: {message}")
    if number in _NO_SCHEMA:
        return SchemaOutOfDate(
            f"the schema of Ratchet is missing or older than this version ({message}); run `ratchet db upgrade`"
        )
    if number in _REFUSED_VALUE:
        return UnstorableData(f"MySQL refused a value: {message}")
    if number in _REFUSED_ROW:
        return ConstraintViolated(f"MySQL refused a row ({message}), in: {text}")
    if number in _LOST or isinstance(error, pymysql.InterfaceError):
        return ConnectionLost(f"the connection to MySQL was lost: {message or 'it is closed'}")
    if number in _READ_ONLY:
        return ReadOnlyServer("MySQL", message, _ADVICE)
    if number in _INTERRUPTED:
        return StoreUnavailable(
            f"MySQL gave up: {message}; raise the option statement_timeout if it needs longer"
        )
    if number in NOT_ALLOWED:
        return AccessDenied(
            f"MySQL does not allow this to the user of the connection: {message}; `ratchet db grants` prints what each role needs"
        )
    if number in _UNAVAILABLE:
        return StoreUnavailable(f"MySQL cannot serve this now: {message}")
    return StoreError(f"MySQL ({number}): {message}, in: {text}")


def blame(error: BaseException, failed: pymysql.Error | None) -> None:
    """
    Mark *failed*, the last error of a user's connection, if it led to *error*: a conflict, or a server that failed.

    Not a statement of the user's that takes too long.
    """
    if failed is None or number_of(failed) in _INTERRUPTED or all(one is not failed for one in led_to(error)):
        return
    if isinstance(meaning(failed, ""), StoreUnavailable | Conflict):
        blame_store(failed)
