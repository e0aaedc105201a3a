"""
Statements that are transactions of their own, sent past psycopg's cursor: prepared once on each connection, with
their values in binary form.

That is one round trip instead of three. And a cursor adapts each value by its type, looks the statement up by its text
and makes a generator for the wait; for one INSERT that is half of the time that a submission takes outside of the
server. Measured, in CPU time of client and server together: a submission takes a fifth of what it takes in a
transaction, and claims of 1, 50 and 500 jobs take 50 %, 30 % and 9 % less.
"""

from __future__ import annotations

import logging
import re
import select
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from struct import Struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from ratchet.model.errors import CommitUnknown, RatchetError, StoreError, StoreMoved, UnstorableData
from ratchet.stores.sql.columns import kind_of
from ratchet.stores.sql.dialects.pool import PoolExhausted
from ratchet.stores.sql.dialects.postgresql.connections import (
    Connection,
    Connections,
    backend_of,
    tolerant_rows,
)
from ratchet.stores.sql.dialects.postgresql.errors import meaning
from ratchet.stores.sql.dialects.postgresql.values import (
    ARRAY_TYPES,
    ENCODERS,
    SCALARS,
    binary_array,
    encode_params,
    encoder_of,
)
from ratchet.stores.sql.errors import AccessDenied, ReadOnlyServer
from ratchet.stores.sql.rows.specs import insert_texts

if TYPE_CHECKING:
    from ratchet.stores.sql.database import Database, Row
    from ratchet.stores.sql.dialect import Dialect
    from ratchet.stores.sql.statement import Statement

log = logging.getLogger("ratchet.stores.sql")

_BIND = re.compile(r"%(?:\((\w+)\)s|%)")
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_BINARY = Format.BINARY
_AT_ONCE = 8 * 1024  # bytes that fit into the send buffer of a connection that has nothing else to send
_SILENT = "the server did not answer in time"

# For as long as a connection lives. Without BEGIN there is no SET LOCAL.
_ZONE = "SET TimeZone = 'UTC'; SET default_transaction_isolation = 'read committed'"
_INTERVAL = Struct(">qii")  # microseconds, days, months


def _interval(value: timedelta) -> bytes:
    return _INTERVAL.pack((value - timedelta(value.days)) // timedelta(microseconds=1), value.days, 0)


class _Types(dict[type, tuple[int, Callable[[Any], bytes | None]]]):
    """The server's type and the bytes of a value, by its type here, or by that which its type is made from."""

    def __missing__(self, kind: type) -> tuple[int, Callable[[Any], bytes | None]]:
        for base in kind.__mro__:
            if base in self:
                self[kind] = self[base]
                return self[base]
        raise UnstorableData(f"a {kind.__name__} cannot be sent to PostgreSQL")


_TYPES = _Types(
    {
        type(None): (0, lambda _: None),
        bool: (SCALARS["bool"], ENCODERS["bool"]),
        int: (SCALARS["int"], ENCODERS["int"]),
        str: (SCALARS["text"], ENCODERS["text"]),
        datetime: (SCALARS["time"], ENCODERS["time"]),
        timedelta: (1186, _interval),
        UUID: (SCALARS["uuid"], ENCODERS["uuid"]),
        **{kind: (number, bytes) for kind, number in ARRAY_TYPES.items()},
    }
)


def _numbered(statement: Statement) -> tuple[str, tuple[str, ...]]:
    """
    The text with PostgreSQL's own numbered binds, and their names in that order.

    psycopg's cursor would search a text for its binds each time: it remembers only texts of up to 4 KB, and a claim is
    longer.
    """
    if statement.numbered is None:
        order: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            return "%" if match[1] is None else f"${order.setdefault(match[1], len(order) + 1)}"

        text = _BIND.sub(number, statement.text)
        statement.numbered = text, tuple(order)
    return statement.numbered


class PreparedStatement:
    """A statement with numbered parameters, each named like the column that it is for."""

    __slots__ = ("binds", "formats", "name", "text")

    def __init__(self, number: int, statement: Statement) -> None:
        text, names = _numbered(statement)
        self.text = text.encode()
        self.name = f"ratchet_{number}".encode()
        self.binds: list[tuple[str, Callable[[Any], bytes]]] = [
            (name, encoder_of(name, kind_of(name))) for name in names
        ]
        self.formats = [_BINARY] * len(names)

    def values(self, params: Mapping[str, Any]) -> list[bytes | None]:
        """The parameters as the server reads them."""
        return [None if (value := params[name]) is None else encode(value) for name, encode in self.binds]


class Exchange:
    """Questions and answers on one connection, one at a time; knows what was prepared there."""

    __slots__ = ("_loader", "_named", "_news", "_pgconn", "_prepared", "_timeout")

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._pgconn = connection.pgconn
        self._timeout = timeout * 1000  # milliseconds
        self._prepared: set[bytes] = set()
        self._named: dict[tuple[str, tuple[type, ...]], bytes] = {}
        self._loader = Transformer(connection)
        self._news = select.poll()
        self._news.register(self._pgconn.socket, select.POLLIN)

    def run(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> None:
        """Run *statement* as a transaction; psycopg's error where it was refused or got no answer."""
        name = statement.name
        if name not in self._prepared:
            self._pgconn.send_prepare(name, statement.text)
            self.wait()
            self._prepared.add(name)
        self._pgconn.send_query_prepared(name, values, statement.formats, _BINARY)
        self.wait()

    def send(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> bool:
        """Send *statement*, if that takes no waiting; True: now call `wait`."""
        if statement.name not in self._prepared:
            return False
        self._pgconn.send_query_prepared(statement.name, values, statement.formats, _BINARY)
        return True

    def is_answered(self) -> bool:
        """True if `wait` would not wait; ask when there is something to read."""
        self._pgconn.consume_input()
        return not self._pgconn.is_busy()

    def rows(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """
        The rows of the statement *text*, with numbered binds, as a transaction; errors as of `run`.

        Prepared once for the types of its values, which are those of its binds.
        """
        kinds = tuple([type(value) for value in values])
        name = self._named.get((text, kinds))
        if name is None:
            name = f"ratchet_q{len(self._named)}".encode()
            self._pgconn.send_prepare(name, text.encode(), [_TYPES[kind][0] for kind in kinds])
            self.wait()
            self._named[text, kinds] = name
        binds = [_TYPES[kind][1](value) for kind, value in zip(kinds, values, strict=True)]
        self._pgconn.send_query_prepared(name, binds, [_BINARY] * len(binds))
        result, loader = self.wait(), self._loader
        loader.set_pgresult(result)
        try:
            return loader.load_rows(0, result.ntuples, tuple)
        except psycopg.DataError:
            return tolerant_rows(loader.connection, result)
        finally:
            loader.set_pgresult(None)  # else it is kept until the next one comes

    def wait(self) -> PGresult:
        """Send what is to be sent, and read the answer; an error where the server is silent for too long."""
        pgconn = self._pgconn
        if pgconn.flush():
            self._flush()
        result: PGresult | None = None
        while True:
            # Each time: the answer to the statement may come, and that to its commit never. libpq would wait for it
            # without end, and all threads of the process with it.
            while pgconn.is_busy():
                if not self._news.poll(self._timeout):
                    raise psycopg.OperationalError(_SILENT)
                pgconn.consume_input()
            if (more := pgconn.get_result()) is None:
                break
            result = more  # if there are two: the statement was run, but its commit was refused
        if result is None:
            raise psycopg.OperationalError("the server has closed the connection")
        if result.status not in _DONE:
            raise error_from_result(result)
        return result

    def _flush(self) -> None:
        """Send more than the network takes at once."""
        pgconn, news = self._pgconn, self._news
        news.modify(pgconn.socket, select.POLLIN | select.POLLOUT)
        while pgconn.flush():
            if not news.poll(self._timeout):
                raise psycopg.OperationalError(_SILENT)
            pgconn.consume_input()
        news.modify(pgconn.socket, select.POLLIN)


class PooledExchange(Exchange):
    """
    The same where a pooler is in between: it prepares nothing, and each statement goes with its text.

    A pooler hands the server's connections around, and with them what was prepared on them.
    """

    __slots__ = ()

    def run(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> None:
        self.send(statement, values)
        self.wait()

    def send(self, statement: PreparedStatement, values: Sequence[bytes | None]) -> bool:
        self._pgconn.send_query_params(statement.text, values, None, statement.formats, _BINARY)
        return True


class SentStatement:
    """A statement whose answer nobody waits for yet; it has its connection until `finish`."""

    __slots__ = ("_connection", "_file", "_statements")

    def __init__(self, statements: Autocommit, connection: Connection) -> None:
        self._statements = statements
        self._connection = connection
        self._file = connection.pgconn.socket

    def fileno(self) -> int:
        """The socket."""
        return self._file

    def is_answered(self) -> bool:
        """True if `finish` would not wait; ask when there is something to read."""
        try:
            return bool(self._connection.exchange.is_answered())
        except psycopg.Error:
            return True  # `finish` finds out what is wrong

    def finish(self) -> bool:
        """Wait for the answer; True and False as `Autocommit.run` says."""
        try:
            self._connection.exchange.wait()
        except psycopg.Error as error:
            return self._statements.failed(self._connection, error)
        finally:
            self._statements.done(self._connection)
        return True


class Autocommit:
    """
    Runs statements outside of transaction blocks, on the connections of two pools.

    Claims have a pool of their own, on whose connections the settings that a claim needs are made for good. Other
    statements here neither search nor wait, and need no settings.
    """

    def __init__(
        self, dialect: Dialect, connections: Connections, claimers: Connections, claim_settings: str
    ) -> None:
        self._dialect = dialect
        self._connections = connections
        self._claimers = claimers
        self._claim_settings = f"{claim_settings}; {_ZONE}"
        self._known: dict[str, PreparedStatement] = {}
        self._numbers = count()

    def run(self, sql: str, params: Mapping[str, Any]) -> bool:
        connections = self._connections
        statement = self._known.get(sql) or self._translated(sql)
        try:
            values = statement.values(params)
            connection = connections.take()
        except RatchetError:
            return False
        try:
            exchange = connection.exchange or self._exchange(connection)
            exchange.run(statement, values)
        except (StoreError, psycopg.Error) as error:
            return self.failed(connection, error)
        finally:
            connections.give_back(connection)
        return True

    def send(self, sql: str, params: Mapping[str, Any]) -> SentStatement | None:
        # An awaited `enqueue_now` takes 11 % less CPU than through a thread.
        statement = self._known.get(sql)
        if statement is None:
            return None
        values = statement.values(params)
        if sum([len(value) for value in values if value is not None]) > _AT_ONCE:
            return None
        connection = self._connections.take_idle()
        if connection is None:
            return None
        exchange = connection.exchange
        try:
            if exchange is not None and exchange.send(statement, values):
                return SentStatement(self, connection)
        except psycopg.Error as error:
            self.failed(connection, error)
        self.done(connection)
        return None

    def insert_one(self, database: Database, values: dict[str, object]) -> bool:
        """One round trip instead of three: a third of the time of `insert_many` for one job."""
        return database.call(self.run, _insert_plain(tuple(values)), values)

    def send_one(self, database: Database, values: dict[str, object]) -> SentStatement | None:
        """The await face uses a fifth less CPU for a job that it sends itself than for one that a thread sends."""
        return self.send(_insert_plain(tuple(values)), values) if database.is_ready() else None

    def claim(self, sql: str, params: Mapping[str, object], *, harmless: bool = False) -> list[Row] | None:
        connections = self._claimers
        try:
            connection = connections.take_live()
        except PoolExhausted:
            return None
        try:
            connection.answer_timeout = connections.answer_timeout
            if not self._is_ready_for_claims(connection):
                return None
            statement = self._dialect.statement(sql)
            text, names = _numbered(statement)
            binds = encode_params(statement, params, binary_array)
            if connection.exchange is None:
                connection.exchange = Exchange(connection, connections.answer_timeout)
            found: list[Row] = connection.exchange.rows(text, [binds[name] for name in names])
            return found
        except (StoreError, psycopg.Error) as error:
            connection.close()
            connections.discard_idle()
            if not harmless:
                refusal = meaning(error, "a claim")
                if isinstance(refusal, ReadOnlyServer):
                    refusal.found_at(connections.where())
                if isinstance(refusal, ReadOnlyServer | StoreMoved):
                    raise refusal from error
                if isinstance(refusal, AccessDenied):
                    raise refusal from error
                raise CommitUnknown(f"a claim got no answer and may have been made: {error}") from error
            log.debug("a statement alone failed and is sent again in a transaction: %s", error)
            return None
        finally:
            connections.give_back(connection)

    def failed(self, connection: Connection, error: Exception) -> bool:
        """False: the statement has to be sent again, on another connection than this one and the idle ones."""
        connection.close()
        self._connections.discard_idle()
        log.debug("a statement alone failed and is sent again in a transaction: %s", error)
        return False

    def done(self, connection: Connection) -> None:
        """The answer was read, or there will be none."""
        self._connections.give_back(connection)

    def _translated(self, sql: str) -> PreparedStatement:
        statement = self._dialect.statement(sql)
        return self._known.setdefault(sql, PreparedStatement(next(self._numbers), statement))

    def _exchange(self, connection: Connection) -> Exchange:
        """What sends statements on *connection*, prepared if no pooler is in between."""
        connection.answer_timeout = self._connections.answer_timeout
        if connection.is_direct is None:
            connection.is_direct = backend_of(connection) == connection.info.backend_pid
        kind = Exchange if connection.is_direct else PooledExchange
        made: Exchange = kind(connection, self._connections.answer_timeout)
        connection.exchange = made
        return made

    def _is_ready_for_claims(self, connection: Connection) -> bool:
        """Make the settings of claims on it, once; False where a pooler lends it to others in between."""
        if connection.has_claim_settings is None:
            connection.is_direct = backend_of(connection) == connection.info.backend_pid
            if connection.is_direct:
                connection.execute(self._claim_settings)
            connection.has_claim_settings = connection.is_direct
        return connection.has_claim_settings


@lru_cache(maxsize=256)
def _insert_plain(given: tuple[str, ...]) -> str:
    cold, queued = insert_texts(given)
    return f"WITH cold AS ({cold}) {queued}"
