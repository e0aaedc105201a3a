"""
The connections of one process to one PostgreSQL server, directly or through PgBouncer.

Not psycopg's own pool: that one connects in background threads. With the server down, a caller waits for the whole
timeout and then learns only that it waited; after a restart it gets one dead connection after another. Here the caller
connects, and gets the reason at once.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Generator, Mapping
from queue import Empty
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.postgres import register_default_adapters, types
from psycopg.pq import Conninfo, Format, TransactionStatus
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

from ratchet.model.errors import ConfigurationError, StoreUnavailable
from ratchet.model.store_url import StoreUrl
from ratchet.stores.sql.dialects.hosts import Hosts, NotConnected
from ratchet.stores.sql.dialects.pool import Pool
from ratchet.stores.sql.dialects.postgresql.processes import connection_name
from ratchet.stores.sql.dialects.postgresql.values import register
from ratchet.stores.sql.errors import redacted
from ratchet.stores.transport import note_unverified
from ratchet.stores.unreadable import Unread

_GRACE = 5.0  # seconds that the server gets to report its own timeout
_WITHOUT_WRITES = {"read-only", "standby", "prefer-standby"}
_IDLE_LIMIT = 30.0  # seconds after which an unused connection is closed; a new one takes 10 ms


def _stock_adapters() -> AdaptersMap:
    # A program may have changed psycopg's global ones (UUIDs as text, say); ours must not change with them.
    adapters = AdaptersMap(types=types)
    register_default_adapters(adapters)
    register(adapters)
    return adapters


ADAPTERS = _stock_adapters()


def _tolerant_adapters() -> AdaptersMap:
    adapters = AdaptersMap(template=ADAPTERS)
    for format_, stock in ((Format.TEXT, TimestamptzLoader), (Format.BINARY, TimestamptzBinaryLoader)):
        load = stock.load

        def tolerant(self: Any, data: Any, load: Any = load) -> Any:
            try:
                return load(self, data)
            except psycopg.DataError:
                raw = bytes(data)
                return Unread(raw.decode() if self.format == Format.TEXT else _endless(raw))

        adapters.register_loader(
            "timestamptz", type(f"Tolerant{stock.__name__}", (stock,), {"load": tolerant, "format": format_})
        )
    return adapters


def _endless(raw: bytes) -> str:
    micros = int.from_bytes(raw, "big", signed=True)
    if micros == 2**63 - 1:
        return "infinity"
    return "-infinity" if micros == -(2**63) else f"{micros // 86_400_000_000} days from 2000-01-01"


_TOLERANT = _tolerant_adapters()


class _Tolerant:
    """A context for psycopg whose loaders give an `Unread` for a time that Python does not have."""

    adapters = _TOLERANT

    def __init__(self, connection: Any) -> None:
        self.connection = connection


def tolerant_rows(connection: Any, result: Any) -> list[tuple[Any, ...]]:
    """
    The rows of an answer in which some time is infinite, before the year 1 or after 9999.

    PostgreSQL has such times and Python does not. The stock loaders are in C and fail; these are slower, and take over
    only for such an answer.
    """
    loader = Transformer(_Tolerant(connection))
    loader.set_pgresult(result)
    return loader.load_rows(0, result.ntuples, tuple)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """
    A connection whose calls end, even when the network or the server has gone silent.

    The server's ``statement_timeout`` ends ordinary slow calls. This deadline is for the server that
    does not answer any more.
    """

    answer_timeout: float | None = None  # seconds
    used_at: float = 0.0
    has_claim_settings: bool | None = None  # None: nobody has tried
    is_direct: bool | None = None  # whether no pooler is in between; None: nobody has asked
    exchange: Any = None  # sends statements that are transactions of their own (`autocommit`)

    @property
    def has_ended(self) -> bool:
        """True if an idle connection has something to read: the server's last message, or the end of the connection."""
        if self.closed:
            return True
        news = select.poll()
        news.register(self.fileno(), select.POLLIN)
        return bool(news.poll(0))

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        if self.answer_timeout is not None:
            gen = _until(time.monotonic() + self.answer_timeout, gen)
        return super().wait(gen, *args, **kwargs)


def _until(deadline: float, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise psycopg.OperationalError("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class Connections(Pool[Connection, None]):
    """Opens, lends and closes connections; a forked child gets its own."""

    server = "PostgreSQL"

    def __init__(
        self,
        url: str,
        *,
        size: int,
        connect_timeout: float,
        statement_timeout: float,
        answer_timeout: float | None = None,
    ) -> None:
        self.answer_timeout = statement_timeout + _GRACE if answer_timeout is None else answer_timeout
        self._url = StoreUrl.of(url)
        self._hosts = Hosts(_conninfos(self._url, url, connect_timeout, self.answer_timeout))
        super().__init__(size=size, connect_timeout=connect_timeout)

    def take(self, *, for_user: bool = False) -> Connection:
        """A connection without a transaction; give it back."""
        if not for_user and (idle := self.take_idle()) is not None:
            return idle
        return self._take(None, for_user)

    def take_idle(self) -> Connection | None:
        """An idle one; None where the caller would have to wait, or to connect."""
        if self._pid != os.getpid():
            return None
        try:
            self._slots.get_nowait()
        except Empty:
            return None
        found = self._idle_one(None)
        if found is None:
            self._slots.put(None)
        return found

    def give_back(self, connection: Connection, *, for_user: bool = False) -> None:
        """Return what was lent; one that is broken, or still in a transaction, is closed."""
        if for_user or not self._is_free(connection):
            super().give_back(connection, for_user=for_user)
            return
        connection.used_at = time.monotonic()
        with self._lock:
            self._idle.append(connection)
        self._slots.put(None)

    def take_live(self) -> Connection:
        """`take`, for a statement that must not be sent twice: no connection that the server has ended meanwhile."""
        connection = self.take()
        while connection.used_at and connection.has_ended:
            connection.close()
            self.discard_idle()
            self.give_back(connection)
            connection = self.take()
        return connection

    def _is_free(self, connection: Connection) -> bool:
        return connection.pgconn.transaction_status == TransactionStatus.IDLE  # UNKNOWN where it is closed

    def _shut(self, connection: Connection) -> None:
        connection.close()

    def _idle_one(self, purpose: None) -> Connection | None:
        with self._lock:
            # the one used last has the warmest caches; those at the other end grow old and are closed
            found = self._idle.pop() if self._idle else None
            if not self._idle:
                return found
            oldest = time.monotonic() - _IDLE_LIMIT
            stale = [connection for connection in self._idle if connection.used_at < oldest]
            if stale:
                self._idle = [connection for connection in self._idle if connection.used_at >= oldest]
        for connection in stale:
            connection.close()
        return found

    def _connect(self, purpose: None) -> Connection:
        try:
            return self._hosts.first_that(self._connect_to)
        except NotConnected as error:
            cause, problem = error.cause, str(error)
        raise StoreUnavailable(f"cannot connect to PostgreSQL at {self.where()}: {problem}") from cause

    def _connect_to(self, conninfo: str) -> Connection:
        try:
            return Connection.connect(
                conninfo,
                autocommit=True,
                prepare_threshold=None,
                context=ADAPTERS,
                fallback_application_name=connection_name(),
            )
        except psycopg.Error as error:
            cause, problem = self._url.safe_cause(error), self._url.without_secrets(redacted(str(error)))
        if len(self._hosts) > 1:
            problem = f"{_place(conninfo_to_dict(conninfo))}: {problem.strip()}"
        raise NotConnected(problem.strip(), cause)

    def where(self) -> str:
        """Hosts, ports and database, for messages."""
        known = [conninfo_to_dict(conninfo) for conninfo in self._hosts]
        return f"{','.join(map(_place, known))}/{known[0].get('dbname') or ''}"


def _place(known: Mapping[str, Any]) -> str:
    return f"{known.get('host') or known.get('hostaddr') or 'the local socket'}:{known.get('port') or 5432}"


def backend_of(connection: Connection) -> int:
    """The server process that answers on *connection*; behind a pooler this is not what libpq was told."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def _conninfos(parts: StoreUrl, url: str, connect_timeout: float, answer_timeout: float) -> list[str]:
    """What libpq is told, for each host that the URL names."""
    # No `options`: PgBouncer refuses startup parameters it does not know.
    parts.refuse_unknown({option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"})
    problem, given = "", {}
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        problem = parts.without_secrets(redacted(str(error))).strip().partition(":")[0]  # then it quotes
    if problem:
        raise ConfigurationError(f"the PostgreSQL URL cannot be read: {problem}")
    hosts = _hosts(given)
    wanted = given.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS")
    if wanted in _WITHOUT_WRITES:
        raise ConfigurationError(
            f"the PostgreSQL URL has target_session_attrs={wanted}, but Ratchet writes; use read-write, primary or any"
        )
    defaults: dict[str, str | int] = {
        # all hosts together get the time that one would
        "connect_timeout": max(2, round(connect_timeout / max(len(hosts), 1))),
        "keepalives": 1,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": int(answer_timeout * 1000),
    }
    if not {"sslmode", "ssl", "PGSSLMODE"} & {*given, *(name for name, _ in parts.parameters), *os.environ}:
        if "sslrootcert" in given:
            # Whoever names a CA means that it is asked; libpq's own default would not ask it.
            defaults["sslmode"] = "verify-full"
        elif "service" not in given:
            named = given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST", "")
            for host in str(named).split(","):
                note_unverified(
                    "PostgreSQL", host, "sslmode=verify-full&sslrootcert=/path/to/ca.pem", "sslmode=prefer"
                )
    if len(hosts) > 1 and wanted is None:
        defaults["target_session_attrs"] = "read-write"
    missing = {name: value for name, value in defaults.items() if name not in given}
    whole = make_conninfo(url, **missing, client_encoding="utf8")  # what our arrays are written in
    return [make_conninfo(whole, **host) for host in hosts] or [whole]


def _hosts(given: Mapping[str, Any]) -> list[dict[str, str | None]]:
    """The hosts of a URL that names several, as libpq pairs them with addresses and ports; none where it names one."""
    names, addresses, ports = (str(given.get(name) or "").split(",") for name in ("host", "hostaddr", "port"))
    count = max(len(names), len(addresses))
    if count == 1:
        return []
    for what, found in (("host", names), ("hostaddr", addresses), ("port", ports)):
        if len(found) not in (1, count) or (what != "port" and len(found) == 1 and found[0]):
            raise ConfigurationError(f"the PostgreSQL URL names {count} hosts, but {len(found)} in {what}")
    spread = [found * count if len(found) == 1 else found for found in (names, addresses, ports)]
    return [
        {"host": name or None, "hostaddr": address or None, "port": port or None}
        for name, address, port in zip(*spread, strict=True)
    ]
