"""
The connections of one process to one MySQL or MariaDB server. PyMySQL has no pool of its own.

There are two kinds. Those that write see what was committed before each statement (READ COMMITTED); those that read
see the same moment during the whole transaction (REPEATABLE READ).
"""

from __future__ import annotations

import math
import re
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pymysql
from pymysql.constants import SERVER_STATUS

from ratchet.model.errors import ConfigurationError, StoreUnavailable
from ratchet.model.store_url import StoreUrl
from ratchet.stores.sql.dialects.hosts import Hosts, NotConnected
from ratchet.stores.sql.dialects.mysql.certification import (
    SHOW_PROVIDER,
    SHOW_SETTINGS,
    WAIT_FOR_OTHERS,
    certifies,
    unsound,
)
from ratchet.stores.sql.dialects.mysql.processes import sign
from ratchet.stores.sql.dialects.pool import Pool
from ratchet.stores.sql.errors import redacted
from ratchet.stores.transport import note_unverified

if TYPE_CHECKING:  # generic in the stubs only
    _DriverConnection = pymysql.connections.Connection[Any]
else:
    _DriverConnection = pymysql.connections.Connection

Purpose = Literal["write", "read"]

#: TLS contexts, by what was asked for; connections share them. To read the system's certificates takes longer than
#: everything else in connecting.
_contexts: dict[Any, Any] = {}

_GRACE = 5.0  # seconds that the server gets to report its own timeout
_LOCK_WAIT = 5  # seconds
_LOCK_SHARE = 0.8  # of what a statement may take, at most
_PRIMARY_FOR = 5.0  # seconds that one of several servers counts as the primary before it is asked again
_SHORTEST_IDLE = 10  # seconds that the server waits for the next statement of one of our own connections
LONGEST_IDLE = 28800  # seconds, where user code runs in between

#: What a statement means must not depend on the server's settings; too long or wrong data is an error.
SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0, 19)}
_COLLATIONS = {"MariaDB": "utf8mb4_nopad_bin", "MySQL": "utf8mb4_0900_bin"}
_VERSION = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)")
_TEXTS = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "unix_socket"}
_SWITCHES = {"ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"}
_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def product_of(version: str) -> str:
    """MariaDB or MySQL, by what the server says of itself."""
    return "MariaDB" if "mariadb" in version.lower() else "MySQL"


class Connection(_DriverConnection):
    """A connection of ours: what it is for, when it was last used, how much fits into a statement."""

    server_version: str  # the driver's own, missing in its stubs
    server_status: int
    _read_timeout: float | None
    _sock: Any

    purpose: Purpose = "write"
    used_at: float = 0.0
    most: int = 0  # bytes of a statement, at most
    certifies: bool = False  # the server is one of several that take writes
    writable_at: float = (
        0.0  # when the server was last known to take writes; asked only where there are several
    )
    last_error: pymysql.Error | None = None  # in the current transaction

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        try:
            return super().query(sql, unbuffered)
        except pymysql.Error as error:
            self.last_error = error
            raise

    def _create_ssl_ctx(self, sslp: Any) -> Any:
        key = tuple(sorted(sslp.items())) if isinstance(sslp, dict) else sslp
        if key not in _contexts:
            _contexts[key] = super()._create_ssl_ctx(sslp)  # type: ignore[misc]  # missing in the stubs
        return _contexts[key]

    @property
    def product(self) -> str:
        """MariaDB or MySQL."""
        return product_of(self.server_version)

    @property
    def in_transaction(self) -> bool:
        """True as far as the last answer of the server said so."""
        return bool(self.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def shut(self) -> None:
        """Close it, whatever its state; closing twice is no error."""
        if self.open:
            self.close()


@dataclass(frozen=True)
class Tls:
    """
    What the URL says about TLS; the options are taken out of it.

    Whoever names a CA, a client's certificate or a check means a connection that is encrypted and checked in full. The
    driver by itself would check nothing for `ssl_ca` alone, and no host name without it.
    """

    ca: str | None
    cert: str | None
    key: str | None
    key_password: str | None = field(repr=False)
    disabled: bool
    verify_cert: bool
    verify_identity: bool
    #: The URL asks for TLS: a server without it is refused.
    required: bool
    #: The URL says something about TLS, be it that none is needed.
    said: bool

    @classmethod
    def of(cls, options: dict[str, Any]) -> Tls:
        """What *options* say, which lose it."""
        given = {name: options.pop(name) for name in list(options) if name.startswith("ssl_")}
        disabled = given.pop("ssl_disabled", None)
        required = any(given.values())
        if disabled and required:
            raise ConfigurationError(
                "the MySQL URL has ssl_disabled=true beside other ssl_ options; leave one of them out"
            )
        if given.get("ssl_key") and not given.get("ssl_cert"):
            raise ConfigurationError("the MySQL URL has ssl_key without ssl_cert; name the certificate too")
        verify = given.get("ssl_verify_cert", True)
        if given.get("ssl_verify_identity") and not verify:
            raise ConfigurationError(
                "the MySQL URL has ssl_verify_identity=true with ssl_verify_cert=false: the name in a certificate that "
                "is not checked says nothing"
            )
        return cls(
            given.get("ssl_ca"),
            given.get("ssl_cert"),
            given.get("ssl_key"),
            given.get("ssl_key_password"),
            bool(disabled),
            verify,
            verify and given.get("ssl_verify_identity", True),
            required,
            bool(given) or disabled is not None,
        )

    def settings(self) -> dict[str, Any]:
        """What the driver is given. `OSError` if a file cannot be read."""
        if not self.required:
            return {"ssl_disabled": True} if self.disabled else {}
        if self not in _contexts:
            context = ssl.create_default_context(cafile=self.ca)
            # As the driver does: certificates that MySQL makes for itself do not pass what Python 3.13 adds.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.verify_identity
            if not self.verify_cert:
                context.verify_mode = ssl.CERT_NONE
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, self.key_password)
            _contexts[self] = context
        return {"ssl": _contexts[self]}


@dataclass(frozen=True)
class Address:
    """Where the server is, and as which user to connect; from a URL."""

    hosts: tuple[tuple[str, int], ...]
    database: str
    user: str | None
    password: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    url: StoreUrl
    tls: Tls

    def __str__(self) -> str:
        return f"{self.options.get('unix_socket') or ','.join(map(_place, self.hosts))}/{self.database}"

    @classmethod
    def of(cls, url: str) -> Address:
        """
        The address in ``mysql://user:password@host:port,host:port/database?ssl_ca=…``.

        `ConfigurationError` says what is wrong.
        """
        parts = StoreUrl.of(url)
        hosts = parts.hosts_and_ports
        database = parts.path.strip("/")
        if not database or "/" in database:
            raise ConfigurationError("the MySQL URL must name one database: mysql://host:3306/database")
        parts.refuse_unknown(_TEXTS | _SWITCHES | {"charset"})
        options: dict[str, Any] = {}
        for name, value in parts.parameters:
            if name in _TEXTS:
                options[name] = value
            elif name in _SWITCHES:
                if value.lower() not in _ON + _OFF:
                    raise ConfigurationError(f"{name} in the MySQL URL is true or false")
                options[name] = value.lower() in _ON
            elif value.lower() != "utf8mb4":
                raise ConfigurationError(
                    "the MySQL URL can have charset=utf8mb4 only: Ratchet keeps every character"
                )
        tls = Tls.of(options)
        if "unix_socket" in options and len(hosts) > 1:
            raise ConfigurationError(
                "the MySQL URL names several hosts and a unix_socket; leave one of them out"
            )
        if "unix_socket" not in options and not tls.said:
            for host, _ in hosts:
                note_unverified(
                    "MySQL", host, "ssl_ca=/path/to/ca.pem", "ssl_verify_cert=false or ssl_disabled=true"
                )
        return cls(
            tuple((host or "127.0.0.1", port or 3306) for host, port in hosts),
            database,
            parts.user or None,
            parts.password or "",
            options,
            parts,
            tls,
        )


def _is_writable(connection: Connection) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only OR @@global.innodb_read_only")
        (read_only,) = cursor.fetchone() or (0,)
    return not read_only


def _place(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"


class Connections(Pool[Connection, Purpose]):
    """Opens, lends and closes connections; a forked child gets its own."""

    server = "MySQL"

    def __init__(
        self,
        address: Address,
        *,
        size: int,
        connect_timeout: float,
        statement_timeout: float,
        answer_timeout: float | None = None,
    ) -> None:
        self.address = address
        #: Seconds after which a call ends, even when the network or the server has gone silent.
        self.answer_timeout = statement_timeout + _GRACE if answer_timeout is None else answer_timeout
        #: Seconds that a connection may wait for its next statement before the server ends it, and its transaction.
        self.idle = max(_SHORTEST_IDLE, math.ceil(statement_timeout))
        self._statement_timeout = statement_timeout
        self._hosts = Hosts(address.hosts)
        #: As the last connection that was opened has said.
        self.certifies = False
        self.unsound: tuple[str, ...] = ()
        self._are_several = len(self._hosts) > 1
        super().__init__(size=size, connect_timeout=connect_timeout)

    def _start(self) -> None:
        super()._start()
        self._lent = 0

    def take(self, purpose: Purpose, *, for_user: bool = False) -> Connection:
        """A connection without a transaction; give it back."""
        connection = self._take(purpose, for_user)
        while self._are_several and not self._is_primary_still(connection):
            connection.shut()
            self.discard_idle()
            self.give_back(connection, for_user=for_user)
            connection = self._take(purpose, for_user)
        return connection

    def another(self) -> Connection:
        """A connection beside those that are lent, for one that waits for it while it has one; shut it."""
        return self._connect("write")

    def _is_primary_still(self, connection: Connection) -> bool:
        """
        False if the server has been demoted; it is asked now and then.

        One who writes learns it from the server. One who only reads would go on reading what does not change any more.
        """
        if time.monotonic() - connection.writable_at < _PRIMARY_FOR:
            return True
        try:
            found = _is_writable(connection)
        except pymysql.Error:
            return False
        connection.writable_at = time.monotonic()
        return found

    def _returned(self) -> None:
        with self._lock:
            self._lent -= 1
        super()._returned()

    def _is_free(self, connection: Connection) -> bool:
        return connection.open and not connection.in_transaction

    def _shut(self, connection: Connection) -> None:
        connection.shut()

    def _idle_one(self, purpose: Purpose) -> Connection | None:
        with self._lock:
            self._lent += 1
            # the server closes what has been idle for longer
            oldest = time.monotonic() - self.idle / 2
            stale = [connection for connection in self._idle if connection.used_at < oldest]
            fresh = [connection for connection in self._idle if connection.used_at >= oldest]
            # the one used last is the warmest
            found = next((one for one in reversed(fresh) if one.purpose == purpose), None)
            if found is not None:
                fresh.remove(found)
            elif len(fresh) + self._lent > self._size:
                stale.append(fresh.pop(0))  # it is for the other purpose, and makes room
            self._idle = fresh
        for connection in stale:
            connection.shut()
        return found

    def _connect(self, purpose: Purpose) -> Connection:
        try:
            return self._hosts.first_that(lambda host: self._connect_to(host, purpose))
        except NotConnected as error:
            cause, problem = error.cause, str(error)
        raise StoreUnavailable(f"cannot connect to MySQL at {self.address}: {problem}") from cause

    def _connect_to(self, host: tuple[str, int], purpose: Purpose) -> Connection:
        connection = self._open(host)
        try:
            self._prepare(connection, purpose)
            if self._are_several and not _is_writable(connection):
                raise NotConnected(f"{_place(host)}: it is read-only, so it is not the primary")
        except BaseException as error:
            connection.shut()
            if isinstance(error, pymysql.Error):
                raise NotConnected(self._problem(host, f"it ended the connection: {error}"), error) from error
            raise
        connection.writable_at = time.monotonic()
        return connection

    def _problem(self, host: tuple[str, int], problem: str) -> str:
        return f"{_place(host)}: {problem.strip()}" if self._are_several else problem.strip()

    def _open(self, host: tuple[str, int]) -> Connection:
        address = self.address
        # all hosts together get the time that one would
        patience = max(self._connect_timeout / len(self._hosts), 0.001)
        try:
            connection = Connection(
                host=host[0],
                port=host[1],
                user=address.user,
                password=address.password,
                database=address.database,
                connect_timeout=patience,
                read_timeout=patience,  # of the greeting
                write_timeout=self.answer_timeout,
                charset="utf8mb4",
                autocommit=True,
                program_name="ratchet",
                **address.options,
                **address.tls.settings(),
            )
            if address.tls.required and not isinstance(connection._sock, ssl.SSLSocket):
                connection.shut()  # a driver that goes on without TLS where the server offers none
                raise OSError("the server does not offer TLS, which the URL asks for")
        except (pymysql.Error, OSError, ValueError) as error:
            cause, problem = address.url.safe_cause(error), address.url.without_secrets(redacted(str(error)))
        else:
            connection._read_timeout = self.answer_timeout
            return connection
        raise NotConnected(self._problem(host, problem), cause)

    def _prepare(self, connection: Connection, purpose: Purpose) -> None:
        product = self._product(connection)
        connection.purpose = purpose
        connection.query(f"SET NAMES utf8mb4 COLLATE {_COLLATIONS[product]}")
        connection.query("SET SESSION " + ", ".join(self._settings(product)))
        level = "READ COMMITTED" if purpose == "write" else "REPEATABLE READ"
        connection.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        with connection.cursor() as cursor:
            cursor.execute(SHOW_SETTINGS)
            settings = dict(cursor.fetchall())
        connection.most = int(settings["max_allowed_packet"])
        connection.certifies = self.certifies = certifies(settings)
        if connection.certifies:
            connection.query(WAIT_FOR_OTHERS)
            with connection.cursor() as cursor:
                cursor.execute(SHOW_PROVIDER)
                self.unsound = unsound(dict(cursor.fetchall()))
        if purpose == "write":
            sign(connection, self.address.database)

    def _settings(self, product: str) -> list[str]:
        # Less than a statement may take: what waits for a lock is to say so, and not that it took too long.
        lock_wait = max(min(_LOCK_WAIT, int(self._statement_timeout * _LOCK_SHARE)), 1)
        settings = [
            f"sql_mode = '{SQL_MODE}'",
            "time_zone = '+00:00'",
            f"innodb_lock_wait_timeout = {lock_wait}",
            f"lock_wait_timeout = {lock_wait}",
            f"wait_timeout = {self.idle}",
        ]
        if product == "MariaDB":
            settings.append(f"max_statement_time = {max(self._statement_timeout, 0.001):g}")
            settings.append("in_predicate_conversion_threshold = 0")  # a list of ids stays a list of ids
        else:
            settings.append(f"max_execution_time = {max(int(self._statement_timeout * 1000), 1)}")
        return settings

    def _product(self, connection: Connection) -> str:
        found = _VERSION.match(connection.server_version)
        version = tuple(int(part) for part in found.groups()) if found else ()
        product = connection.product
        if version < _OLDEST[product]:
            oldest = ".".join(map(str, _OLDEST[product]))
            raise ConfigurationError(
                f"{self.address} is {product} {connection.server_version}; Ratchet needs {product} {oldest} or newer"
            )
        return product
