"""
Wakeups on PostgreSQL: LISTEN and NOTIFY.

A message has no payload and says only "look". It is sent after the commit of the submission, by a thread of its own
and not often: NOTIFY locks the whole database until its transaction has committed. With one in every submission, all
submissions would wait for each other's disk writes.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import Any

from psycopg import sql

from ratchet.model.errors import SchemaOutOfDate
from ratchet.spi.broadcast import BroadcastCoordinator
from ratchet.spi.medium import CannotListen
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange
from ratchet.stores.sql.dialects.postgresql.connections import Connection, Connections, backend_of

CHECK_INTERVAL = 20.0  # seconds between two checks of a silent server
ANSWER_TIMEOUT = 5.0  # seconds it gets for the answer
CONNECT_TIMEOUT = 3.0  # seconds; `stop` waits for no longer than a connection attempt
PROBES = 5  # times that a pooler is asked whether it shares its connections

_TABLE = "scheduler_job_queue"
_POSTED = b"ratchet_tell"

# The schema that holds our tables names the channel, so that two installations in one database do not wake
# each other. Its number, not its name: it needs no quoting and is as short for everybody.
CHANNEL = """
    SELECT 'ratchet_' || c.relnamespace AS channel FROM pg_class c WHERE c.oid = to_regclass({table})
"""

TELL = """
    SELECT pg_notify('ratchet_' || c.relnamespace, '') FROM pg_class c WHERE c.oid = to_regclass({table})
"""

# Nothing here has to survive a crash, so the commit, which holds the database's lock, does not wait for the disk.
# On a connection of our own that is set once, and the statement is prepared; a pooler shares its connections.
SETTING = "SET synchronous_commit = off"
NOTIFY = f"""
    BEGIN;
    SET LOCAL synchronous_commit = off;
    {TELL};
    COMMIT
"""

NOTIFY_WITHIN = """
    SELECT pg_notify('ratchet_' || c.relnamespace, '') AS told FROM pg_class c WHERE c.oid = to_regclass(:name)
"""


def notify_within(session: Session) -> None:
    """
    Wake all nodes when the transaction of *session* commits, and not if it rolls back.

    The server keeps one message per transaction, however often this is called in it.
    """
    session.rows(NOTIFY_WITHIN, {"name": session.dialect.table(_TABLE)})


def postgresql_wakeups(
    url: str, table: str = _TABLE, *, connect_timeout: float = 10.0, check_interval: float = CHECK_INTERVAL
) -> BroadcastCoordinator:
    """
    The coordinator of the installation whose queue is *table* (qualified and quoted, where a schema was chosen).

    It has connections of its own: one while it listens, one while it sends.
    """
    return BroadcastCoordinator(
        NotifyMedium(url, table, connect_timeout=connect_timeout, check_interval=check_interval)
    )


class NotifyMedium:
    """LISTEN and NOTIFY on one channel of one database."""

    def __init__(self, url: str, table: str, *, connect_timeout: float, check_interval: float) -> None:
        self._connections = Connections(
            url,
            size=16,  # never reached: one listens, one sends, and one for each that hangs while it is replaced
            connect_timeout=min(connect_timeout, CONNECT_TIMEOUT),
            statement_timeout=ANSWER_TIMEOUT,
        )
        self._notify = sql.SQL(NOTIFY).format(table=sql.Literal(table)).as_string(None)
        self._tell = sql.SQL(TELL).format(table=sql.Literal(table)).as_string(None)
        self._channel = sql.SQL(CHANNEL).format(table=sql.Literal(table)).as_string(None)
        self._check_interval = check_interval
        #: The server processes of our senders: their messages are ignored here.
        self.own: frozenset[int] = frozenset()
        self._process = os.getpid()

    def sender(self) -> NotifySender:
        """A connection to send on; works through any pooler."""
        connection = self._take()
        try:
            backend = backend_of(connection)
            if backend != connection.info.backend_pid:  # a pooler is in between
                return NotifySender(self, connection, self._notify, backend)
            connection.execute(SETTING)
            return NotifyPoster(self, connection, self._tell, backend)
        except BaseException:
            self.give_back(connection)
            raise

    def receiver(self) -> NotifyReceiver:
        """A connection that listens; `CannotListen` behind a pooler that lends a server for one transaction only."""
        connection = self._take()
        try:
            backend = backend_of(connection)
            if backend != connection.info.backend_pid and self._is_shared(connection, backend):
                raise CannotListen(
                    "a pooler in transaction mode is between Ratchet and PostgreSQL, and LISTEN does not work "
                    "through it; give the workers a direct URL, or one of a pool in session mode"
                )
            return NotifyReceiver(self, connection, backend)
        except BaseException:
            self.give_back(connection)
            raise

    def give_back(self, connection: Connection) -> None:
        """Close *connection*."""
        connection.close()
        self._connections.give_back(connection)

    def channel(self, connection: Connection) -> str:
        """The name of the channel; `SchemaOutOfDate` where the tables do not exist."""
        row = connection.execute(self._channel).fetchone()
        if row is None:
            raise SchemaOutOfDate("the tables of Ratchet do not exist; run `ratchet db upgrade`")
        return str(row[0])

    @property
    def check_interval(self) -> float:
        """How long a receiver trusts a silent connection."""
        return self._check_interval

    def _take(self) -> Connection:
        if self._process != os.getpid():
            self._process = os.getpid()
            self.own = frozenset()  # those are our parent's, and count
        connection = self._connections.take()
        connection.answer_timeout = ANSWER_TIMEOUT
        return connection

    def _is_shared(self, connection: Connection, backend: int) -> bool:
        # Before LISTEN is sent, because through a pool in transaction mode it would stay behind on a server
        # connection that other clients go on using. A session that is ours keeps its server process while
        # another client has a transaction; a shared one is lent to that client, or changes.
        other = self._take()
        try:
            for _ in range(PROBES):
                other.execute("BEGIN")
                shared = backend_of(other) == backend or backend_of(connection) != backend
                other.execute(
                    "ROLLBACK"
                )  # a pooler throws a server connection away that is left in a transaction
                if shared:
                    return True
            return False
        finally:
            self.give_back(other)


class NotifySender:
    """Sends NOTIFY, one short transaction per message."""

    def __init__(self, medium: NotifyMedium, connection: Connection, notify: str, backend: int) -> None:
        self._medium = medium
        self._connection = connection
        self._notify = notify
        self._backend = backend
        medium.own |= {backend}

    def send(self) -> None:
        """One message, in one round trip."""
        self._connection.execute(self._notify)

    def close(self) -> None:
        """Close the connection."""
        self._medium.own -= {self._backend}
        self._medium.give_back(self._connection)


class NotifyPoster(NotifySender):
    """Sends NOTIFY as a prepared statement on a connection of our own: a quarter of the CPU. Reads the answer later."""

    def __init__(self, medium: NotifyMedium, connection: Connection, notify: str, backend: int) -> None:
        super().__init__(medium, connection, notify, backend)
        self._pgconn = connection.pgconn
        self._exchange = Exchange(connection, ANSWER_TIMEOUT)
        self._pgconn.send_prepare(_POSTED, notify.encode())
        self.collect()

    def send(self) -> None:
        """One message, in one round trip."""
        self.post()
        self.collect()

    def post(self) -> None:
        """Write the message to the socket."""
        self._pgconn.send_query_prepared(_POSTED, [])
        self._pgconn.flush()

    def collect(self) -> None:
        """Read what the server says to it."""
        self._exchange.wait()


class NotifyReceiver:
    """Waits for notifications, and checks from time to time whether the server is still there."""

    def __init__(self, medium: NotifyMedium, connection: Connection, backend: int) -> None:
        self._medium = medium
        self._connection = connection
        self._backend = backend
        self._heard = False
        connection.add_notify_handler(self._notified)  # for those that arrive with an answer
        self._channel = medium.channel(connection)
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._check_at = time.monotonic() + medium.check_interval
        self._out, self._in = os.pipe()
        os.set_blocking(self._in, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(connection.pgconn.socket, selectors.EVENT_READ)

    def wait(self) -> bool:
        """True if another process has sent something."""
        ready = self._selector.select(max(0.0, self._check_at - time.monotonic()))
        if any(key.fd == self._out for key, _ in ready):
            return False
        if ready:
            self._read()
        if time.monotonic() >= self._check_at:
            self._check()
        heard, self._heard = self._heard, False
        return heard

    def interrupt(self) -> None:
        """End the wait."""
        try:
            os.write(self._in, b"!")
        except BlockingIOError:
            pass  # the pipe is full: it was told often enough

    def close(self) -> None:
        """Close the connection, and with it the subscription."""
        self._selector.close()
        os.close(self._out)
        os.close(self._in)
        self._medium.give_back(self._connection)

    def _read(self) -> None:
        pgconn = self._connection.pgconn
        pgconn.consume_input()  # raises when the server has closed the connection
        while (found := pgconn.notifies()) is not None:
            if found.be_pid not in self._medium.own:
                self._heard = True

    def _notified(self, notify: Any) -> None:
        if notify.pid not in self._medium.own:
            self._heard = True

    def _check(self) -> None:
        # A connection whose other end has vanished looks like one without messages.
        if backend_of(self._connection) != self._backend:
            raise CannotListen(
                "the pooler between Ratchet and PostgreSQL has given our server connection away"
            )
        if self._medium.channel(self._connection) != self._channel:
            raise SchemaOutOfDate("the tables of Ratchet have been made anew")
        self._check_at = time.monotonic() + self._medium.check_interval
