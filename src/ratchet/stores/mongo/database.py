"""
Transactions on a MongoDB replica set; the only place that retries.

Whatever belongs together is one transaction with a snapshot, committed by a majority and journaled. A
conflict with another transaction is reported by the server at once and the work is done again from its
start. A commit whose answer was lost is sent again on the same session, which the server answers with
what became of it.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database as DriverDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from ratchet.model.errors import (
    CommitUnknown,
    ConfigurationError,
    Conflict,
    RatchetError,
    StoreError,
)
from ratchet.model.options import Options
from ratchet.model.process import process_name
from ratchet.spi.shield import bracketed, undisturbed
from ratchet.stores.mongo.documents import Document
from ratchet.stores.mongo.errors import (
    UNKNOWN_COMMIT,
    ConnectionLost,
    aborted,
    is_conflict,
    translated,
)
from ratchet.stores.mongo.streams import StreamRegistry
from ratchet.stores.mongo.work import Work

T = TypeVar("T")

Client = MongoClient[Document]

DEFAULT_DATABASE: Final = "ratchet"
SNAPSHOT: Final = ReadConcern("snapshot")
MAJORITY: Final = ReadConcern("majority")
DURABLE: Final = WriteConcern(w="majority", j=True)
CODEC: Final = CodecOptions[Document](uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)

STANDALONE: Final = (
    "the MongoDB server at {address} is a standalone, which has no transactions; make it a replica set of one: "
    "start it with `mongod --replSet rs0`, then once `mongosh --eval 'rs.initiate()'`"
)

#: What the driver raises: its own errors, those of its encoder, and Python's for half a surrogate pair.
_DRIVER: Final = (PyMongoError, BSONError, UnicodeError)

log = logging.getLogger("ratchet.stores.mongo")


class Collections:
    """The collections of one database, as one client sees them."""

    def __init__(self, database: DriverDatabase[Document]) -> None:
        self.database = database
        self._made: dict[str, Collection[Document]] = {}

    def __getitem__(self, name: str) -> Collection[Document]:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self.database[name]
        return found


class Database:
    """
    Runs work in transactions.

    Safe to use from many threads. A process that was forked from one that used it gets connections
    of its own.
    """

    #: How often *work* is tried when other transactions win.
    TRIES = 40
    #: Seconds after which no further try begins.
    PATIENCE = 10.0
    #: Seconds of conflicts after which somebody may have died with his transaction open.
    SUSPICIOUS = 1.0
    #: Seconds that a transaction of ours is never idle between two of its statements.
    ABANDONED = 3.0

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._options = options
        parts = urlsplit(url)
        self.name = unquote(parts.path.removeprefix("/")) or DEFAULT_DATABASE
        self._given = {name.lower() for name in parse_qs(parts.query, keep_blank_values=True)}
        self._own_name = f"ratchet {self.name}"
        self._swept_at = 0.0
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._guests: Client | None = None
        self._process: int | None = None
        self._collections: Collections | None = None
        self._prepare: Callable[[], object] | None = None
        self._prepared_in: int | None = None
        self._preparing = threading.Lock()
        self.streams = StreamRegistry(self)

    # --- connections ----------------------------------------------------------------------------

    def client(self) -> Client:
        """The driver's client of this process; connections are made when they are needed."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._guests = None
                self._client = self.make_client()
                self._collections = Collections(self._database_of(self._client))
                self._process = os.getpid()
            return self._client

    def _guest_client(self) -> Client:
        """The client of transactions that run users' code: these may be idle for long, ours may not."""
        with self._lock:
            self.client()
            if self._guests is None:
                self._guests = self.make_client(appname=self.guest_name(process_name()))
            return self._guests

    def guest_name(self, process: str) -> str | None:
        """What that client of a process is called on the server; None where the URL has a name for all."""
        return None if "appname" in self._given else f"{self._own_name} transaction {process}"

    def make_client(self, **changes: Any) -> Client:
        """A client of its own."""
        settings: dict[str, Any] = {
            "appname": self._own_name,
            "maxPoolSize": self._options.pool_size,
            "connectTimeoutMS": _milliseconds(self._options.connect_timeout),
            "serverSelectionTimeoutMS": _milliseconds(self._options.connect_timeout),
            "socketTimeoutMS": _milliseconds(self._options.statement_timeout),
            **changes,
        }
        settings = {name: value for name, value in settings.items() if name.lower() not in self._given}
        try:
            return MongoClient(
                self._url,
                document_class=dict,
                tz_aware=True,
                uuidRepresentation="standard",
                readPreference="primary",
                retryWrites=True,
                retryReads=True,
                w="majority",
                journal=True,
                **settings,
            )
        except (PyMongoError, ValueError, TypeError) as error:
            raise ConfigurationError(f"the MongoDB URL or an option in it is wrong: {error}") from error

    def collections(self, session: ClientSession | None = None) -> Collections:
        """The collections; those of the session's own client, where it is a caller's."""
        client = self.client()
        assert self._collections is not None
        if session is not None and session.client is not client:
            return Collections(self._database_of(session.client))
        return self._collections

    def close(self) -> None:
        """Free every connection; the next call opens new ones."""
        with self._lock:
            clients = [client for client in (self._client, self._guests) if client is not None]
            self._client = self._guests = self._collections = None
            self._prepared_in = None
        for client in clients if self._process == os.getpid() else ():
            client.close()

    def clock(self) -> datetime:
        """The primary's clock."""

        def ask(collections: Collections) -> datetime:
            admin = collections.database.client.admin
            found: datetime = admin.command("hello", codec_options=CODEC)["localTime"]
            return found

        return self.read(ask)

    def _database_of(self, client: Client) -> DriverDatabase[Document]:
        return client.get_database(
            self.name,
            codec_options=CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=DURABLE,
            read_concern=MAJORITY,
        )

    # --- getting ready --------------------------------------------------------------------------

    def prepare_with(self, action: Callable[[], object]) -> None:
        """Call *action* before the first use in this process; one that fails is called again."""
        self._prepare = action

    def _ready(self) -> None:
        if self._prepared_in == (process := os.getpid()):
            return
        with self._preparing:
            if self._prepared_in != process:
                self._refuse_standalone()
                if self._prepare is not None:
                    self._prepare()
                self._prepared_in = process

    def _refuse_standalone(self) -> None:
        try:
            hello = self.client().admin.command("hello")
        except PyMongoError as error:
            if (standalone := self._find_standalone()) is not None:
                raise ConfigurationError(standalone) from error
            raise translated(error) from error
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            address = self.client().address or ("?", 0)
            raise ConfigurationError(STANDALONE.format(address=f"{address[0]}:{address[1]}"))

    def _find_standalone(self) -> str | None:
        """What is wrong with a server that answers, but is no member of the replica set that the URL names."""
        for host, port in parse_uri(self._url, validate=False, warn=False)["nodelist"]:
            address = f"{host}:{port}"
            try:
                direct: Client
                with MongoClient(
                    host, port, directConnection=True, serverSelectionTimeoutMS=500, socketTimeoutMS=1000
                ) as direct:
                    hello = direct.admin.command("hello")
            except PyMongoError:
                continue
            if hello.get("isreplicaset"):
                return f"the replica set at {address} is not initiated; run once `mongosh --eval 'rs.initiate()'`"
            if "setName" not in hello and hello.get("msg") != "isdbgrid":
                return STANDALONE.format(address=address)
        return None

    # --- work -----------------------------------------------------------------------------------

    def run(
        self, work: Callable[[Work], T], *, within: object | None = None, patience: float = PATIENCE
    ) -> T:
        """
        What *work* returns, after its one transaction has committed; it may be called several times.

        With *within* it runs in the caller's transaction: once, and nothing is committed. `Conflict`
        when other transactions won every try, `StoreUnavailable` when the server cannot be reached,
        `CommitUnknown` when nobody knows whether the commit was made.
        """
        with undisturbed():
            self._ready()
            if within is not None:
                return self._join(work, enlisted(within))
            return self._try(lambda: self._transact(work), patience)

    def read(self, query: Callable[[Collections], T]) -> T:
        """What *query* returns; it reads what a majority has, and may be called twice."""
        with undisturbed():
            self._ready()
            return self._try(lambda: self._ask(query), self.PATIENCE)

    def look(self, work: Callable[[Work], T]) -> T:
        """What *work* returns, which only reads, and not in one snapshot."""
        with undisturbed():
            self._ready()
            return self._try(lambda: self._ask(lambda _: work(Work(self, None))), self.PATIENCE)

    def write(self, change: Callable[[Collections], T]) -> T:
        """What *change* returns: one statement that is whole by itself. `CommitUnknown` where its answer was lost."""
        with undisturbed():
            self._ready()
            try:
                return change(self.collections())
            except _DRIVER as error:
                raise translated(error, unknown=True) from error

    def unprepared(self, change: Callable[[Collections], T]) -> T:
        """The same before the schema is there; safe to repeat."""
        self._refuse_standalone()
        return self._try(lambda: self._ask(change), self.PATIENCE)

    def begin(self, *, within: object | None = None) -> AbstractContextManager[ClientSession]:
        """
        A session in a transaction: commits at the end, aborts on an error.

        With *within*, that same session, in the caller's transaction.
        """
        return bracketed(self._begin(within))

    @contextmanager
    def _begin(self, within: object | None) -> Iterator[ClientSession]:
        self._ready()
        if within is not None:
            yield enlisted(within)
            return
        with self._guest_client().start_session(causal_consistency=False) as session:
            self._start(session)
            try:
                yield session
            except BaseException:
                self._abort(session)
                raise
            if not session.in_transaction:
                raise StoreError(
                    "the transaction of this block has been ended inside it; leave that to the block"
                )
            self._commit(session)

    @contextmanager
    def trial(self) -> Iterator[ClientSession]:
        """A session in a transaction that changes nothing: it is aborted at the end."""
        self._ready()
        with self.client().start_session(causal_consistency=False) as session:
            self._start(session)
            try:
                yield session
            finally:
                self._abort(session)

    # --- one transaction ------------------------------------------------------------------------

    def _ask(self, query: Callable[[Collections], T]) -> T:
        try:
            return query(self.collections())
        except _DRIVER as error:
            raise translated(error) from error

    def _transact(self, work: Callable[[Work], T]) -> T:
        try:
            with self.client().start_session(causal_consistency=False) as session:
                self._start(session)
                try:
                    doing = Work(self, session)
                    answer = work(doing)
                    doing.flush()
                except BaseException:
                    self._abort(session)
                    raise
                if doing.wrote:
                    self._commit(session)
                else:
                    self._abort(session)
                return answer
        except _DRIVER as error:
            if isinstance(error, RatchetError):
                raise
            raise translated(error) from error

    def _join(self, work: Callable[[Work], T], session: ClientSession) -> T:
        try:
            doing = Work(self, session)
            answer = work(doing)
            doing.flush()
            return answer
        except _DRIVER as error:
            if is_conflict(error):
                raise aborted(error, submission=False) from error
            raise translated(error) from error

    @staticmethod
    def _start(session: ClientSession) -> None:
        session.start_transaction(
            read_concern=SNAPSHOT, write_concern=DURABLE, read_preference=ReadPreference.PRIMARY
        )

    @staticmethod
    def _abort(session: ClientSession) -> None:
        if session.in_transaction:
            try:
                session.abort_transaction()
            except PyMongoError:
                pass  # the server forgets it by itself

    def _commit(self, session: ClientSession) -> None:
        """Commit, and ask again while the answer is unknown: the session tells the server which commit is meant."""
        until = time.monotonic() + self._options.statement_timeout.total_seconds()
        while True:
            try:
                session.commit_transaction()
                return
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN_COMMIT):
                    raise translated(error) from error
                if time.monotonic() > until:
                    raise CommitUnknown(
                        f"the connection was lost while committing, and the server does not say what became of "
                        f"it: {error}"
                    ) from error
                log.info("the answer to a commit was lost; asking again")
                time.sleep(random.uniform(0.01, 0.1))

    def _try(self, attempt: Callable[[], T], patience: float) -> T:
        reconnected = False
        started = time.monotonic()
        for tries in range(1, self.TRIES + 1):
            try:
                return attempt()
            except Conflict:
                waited = time.monotonic() - started
                if tries == self.TRIES or waited > patience:
                    raise
                if waited > self.SUSPICIOUS:
                    self._end_abandoned()
                # full jitter: two transactions that met once should not meet again
                time.sleep(random.uniform(0, min(0.002 * 2 ** min(tries, 8), 0.3)))
            except ConnectionLost:
                # not after a server that does not answer at all: the driver has waited and tried again already
                if (
                    reconnected
                    or time.monotonic() - started > self._options.statement_timeout.total_seconds()
                ):
                    raise
                reconnected = True
                log.info("the connection was lost before the commit; trying once more on a new one")
        raise StoreError("unreachable: the last try returns or raises")

    def _end_abandoned(self) -> None:
        """
        Abort transactions whose process was killed: the server would keep their locks for a minute.

        One of ours that is merely slow loses nothing, it is done again. Those that run users' code have
        another application name, and are never touched.
        """
        if "appname" in self._given or time.monotonic() - self._swept_at < self.SUSPICIOUS:
            return
        self._swept_at = time.monotonic()
        idle = {
            "type": "idleSession",
            "appName": self._own_name,
            "transaction.timeInactiveMicros": {"$gt": int(self.ABANDONED * 1_000_000)},
        }
        admin = self.client().admin
        try:
            with admin.aggregate([{"$currentOp": {"idleSessions": True}}, {"$match": idle}]) as found:
                sessions = [{"id": one["lsid"]["id"]} for one in found]
            if sessions:
                log.warning("%d transactions of processes that have died are aborted", len(sessions))
                admin.command("killSessions", sessions, codec_options=CODEC)
        except PyMongoError as error:
            log.debug("abandoned transactions are left to the server: %s", error)


def enlisted(within: object) -> ClientSession:
    """The caller's session, if it is in a transaction."""
    if not isinstance(within, ClientSession):
        cls = type(within)
        raise ConfigurationError(
            f"within= got a {cls.__module__}.{cls.__qualname__}, which cannot join a transaction of the mongodb "
            f"store; pass a pymongo ClientSession in a transaction (what begin() yields, or your own)"
        )
    if not within.in_transaction:
        raise ConfigurationError(
            "within= got a ClientSession without an open transaction, so that each write would be made by "
            "itself; call its start_transaction() first"
        )
    return within


def _milliseconds(duration: Any) -> int:
    return max(1, int(duration.total_seconds() * 1000))
