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

from bson.errors import BSONError
from pymongo import ASCENDING, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from ratchet.model.errors import (
    CommitUnknown,
    ConfigurationError,
    Conflict,
    RatchetError,
    StoreError,
)
from ratchet.model.options import Options
from ratchet.spi.loop_bound import unbound
from ratchet.spi.shield import bracketed, undisturbed
from ratchet.spi.store.audit import pending_entry
from ratchet.stores.auditing import carry_out, counted
from ratchet.stores.installation import Installation, another_database
from ratchet.stores.mongo.abandoned_transactions import end_idle_transactions
from ratchet.stores.mongo.claiming.many_streams import StreamsWithJobs
from ratchet.stores.mongo.connections import CODEC, DURABLE, Collections, Connections
from ratchet.stores.mongo.documents.audit_entries import append_entry
from ratchet.stores.mongo.documents.stream_registry import StreamRegistry
from ratchet.stores.mongo.errors import (
    UNKNOWN_COMMIT,
    ConnectionLost,
    aborted,
    blame,
    is_conflict,
    translated,
)
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.successes import LinkedJobs
from ratchet.stores.mongo.transaction.work import Work

T = TypeVar("T")

SNAPSHOT: Final = ReadConcern("snapshot")

#: What the driver raises: its own errors, those of its encoder, and Python's for half a surrogate pair.
_DRIVER: Final = (PyMongoError, BSONError, UnicodeError)

log = logging.getLogger("ratchet.stores.mongo")


class Database(Connections):
    """
    Runs work in transactions.

    Safe to use from many threads. A process that was forked from one that used it gets connections
    of its own.
    """

    #: How often *work* is tried when other transactions win.
    TRIES = 40
    #: Seconds after which no further try begins.
    RETRY_FOR = 10.0
    #: Seconds of conflicts after which a process may have died with its transaction open.
    SUSPICIOUS = 1.0
    #: Seconds of idleness between two statements that a transaction of ours never reaches.
    ABANDONED = 3.0

    def __init__(self, url: str, options: Options) -> None:
        super().__init__(url, options)
        self.notify = options.notify  # wake other nodes with the commit of a caller's transaction
        self._swept_at = 0.0
        self._prepare: Callable[[], object] | None = None
        self._prepared_in: int | None = None
        self._preparing = threading.Lock()
        self._installation = Installation(lambda: self.read(_installed_at), lambda: self.where)
        self.streams = StreamRegistry(self)
        self.streams_with_jobs = StreamsWithJobs(self.streams)
        self.linked_jobs = LinkedJobs()

    def close(self) -> None:
        """Free every connection; the next call opens new ones."""
        self._prepared_in = None
        super().close()

    def clock(self) -> datetime:
        """The primary's clock."""

        def ask(collections: Collections) -> datetime:
            admin = collections.database.client.admin
            found: datetime = admin.command("hello", codec_options=CODEC)["localTime"]
            return found

        return self.read(ask)

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

    # --- work -----------------------------------------------------------------------------------

    def run(
        self, work: Callable[[Work], T], *, within: object | None = None, retry_for: float = RETRY_FOR
    ) -> T:
        """
        What *work* returns, after its one transaction has committed; it may be called several times.

        With *within* it runs in the caller's transaction: once, and nothing is committed. `Conflict`
        when other transactions won every try, `StoreUnavailable` when the server cannot be reached,
        `CommitUnknown` when it is not known whether the commit was made.
        """
        with undisturbed(), self.patiently():
            self._ready()
            if within is not None:
                return self._join(work, self._caller_session(within))
            return self._try(lambda: self._transact(work), retry_for)

    def read(self, query: Callable[[Collections], T]) -> T:
        """What *query* returns; it reads what a majority has, and may be called twice."""
        with undisturbed(), self.patiently():
            self._ready()
            return self._try(lambda: self._ask(query), self.RETRY_FOR)

    def write(self, change: Callable[[Collections], T]) -> T:
        """What *change* returns: one statement that is whole by itself. `CommitUnknown` where its answer was lost."""
        with undisturbed(), self.patiently():
            self._ready()
            try:
                return change(self.collections())
            except _DRIVER as error:
                raise translated(error, self.where, unknown=True) from error

    def unprepared(self, change: Callable[[Collections], T]) -> T:
        """The same before the schema is there; safe to repeat."""
        self._refuse_standalone()
        return self._try(lambda: self._ask(change), self.RETRY_FOR)

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
            yield self._caller_session(within)
            return
        with self._caller_client().start_session(causal_consistency=False) as session:
            self._start(session)
            try:
                yield session
            except BaseException as error:
                blame(error)
                self._abort(session)
                raise
            if not session.in_transaction:
                raise StoreError(
                    "the transaction of this block has been ended inside it; leave that to the block"
                )
            self._commit(session)

    def _caller_session(self, within: object) -> ClientSession:
        """The caller's session, if it is in a transaction, in this store's database."""
        session = caller_session(within)
        client = session.client
        if (
            client is not self._client
            and client is not self._callers
            and not self._installation.knows(client)
        ):
            # Outside of the caller's transaction, which may have begun before this store was installed.
            theirs = None
            try:
                theirs = _installed_at(self.collections(session))
                if theirs is None:
                    raise another_database(
                        f"{_address(client)}; it has no collections of Ratchet", self.where
                    )
            except OperationFailure as error:  # the caller may not read it
                log.debug("the version of %s cannot be read: %s", _address(client), error)
            except PyMongoError as error:
                raise translated(error, self.where) from error
            self._installation.require_same(client, "", theirs, _address(client))
        return session

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
            raise translated(error, self.where) from error

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
            raise translated(error, self.where) from error

    def _join(self, work: Callable[[Work], T], session: ClientSession) -> T:
        try:
            doing = Work(self, session)
            answer = work(doing)
            doing.flush()
            return answer
        except _DRIVER as error:
            if is_conflict(error):
                raise aborted(error, submission=False) from error
            raise translated(error, self.where) from error

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
        until = time.monotonic() + self.answer_timeout
        while True:
            try:
                with self.patiently():
                    session.commit_transaction()
                return
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN_COMMIT):
                    raise translated(error, self.where) from error
                if time.monotonic() > until:
                    raise CommitUnknown(
                        f"the connection was lost while committing, and the server does not say what became of "
                        f"it: {error}"
                    ) from error
                log.info("the answer to a commit was lost; asking again")
                time.sleep(random.uniform(0.01, 0.1))

    def _try(self, attempt: Callable[[], T], retry_for: float) -> T:
        reconnected = False
        started = time.monotonic()
        for tries in range(1, self.TRIES + 1):
            try:
                return attempt()
            except Conflict:
                waited = time.monotonic() - started
                if tries == self.TRIES or waited > retry_for:
                    raise
                if waited > self.SUSPICIOUS:
                    self._end_abandoned()
                # full jitter: two transactions that conflicted once should not do so again
                time.sleep(random.uniform(0, min(0.002 * 2 ** min(tries, 8), 0.3)))
            except ConnectionLost:
                # not after a server that does not answer at all: the driver has waited and tried again already
                if reconnected or time.monotonic() - started > self.answer_timeout:
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
            "appName": self._own_name,
            "transaction.timeInactiveMicros": {"$gt": int(self.ABANDONED * 1_000_000)},
        }
        try:
            if ended := end_idle_transactions(self.client(), idle):
                log.warning("%d transactions of processes that have died are aborted", ended)
        except PyMongoError as error:
            log.debug("abandoned transactions are left to the server: %s", error)


class MongoPart:
    """One noun of the store: methods over the database that all nouns share."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def change(
        self,
        work: Callable[[Work], T],
        within: object | None = None,
        *,
        count: Callable[[T], int] = counted,
    ) -> T:
        """What *work* returns: a change by hand, with its entry in the audit log. *count* says how much was changed."""

        def run(whole: Callable[[Work], T]) -> T:
            return self.database.run(whole, within=within)

        return carry_out(run, work, append_entry, count)

    def counted(self, statement: Callable[[Collections], int]) -> int:
        """How many documents *statement* changes; if a person asked for it, their entry is brought up to date right after it."""
        count = self.database.write(statement)
        if count and pending_entry.get() is not None:
            self.change(lambda work: count)
        return count


def _installed_at(collections: Collections) -> datetime | None:
    """When the first step of the schema was applied; None if none was."""
    version = collections[Names.VERSION].with_options(read_preference=ReadPreference.PRIMARY)
    first = version.find_one(sort=[("applied_at", ASCENDING)])
    return None if first is None else first.get("applied_at")


def _address(client: Any) -> str:
    """Where a client's servers are, for messages."""
    return ", ".join(sorted(f"{host}:{port}" for host, port in client.nodes)) or "an unknown server"


def caller_session(within: object) -> ClientSession:
    """The caller's session, if it is in a transaction."""
    if not isinstance(within, ClientSession):
        cls = type(unbound(within))
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
