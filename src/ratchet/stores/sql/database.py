"""
Transactions on a SQL database, without the differences between the products.

**SQL text** is written once for all dialects and translated once per dialect (cached). It has
``:name`` binds, bare table names, and macros in braces for what differs:

=====================================  ==========================================================
``job_id {in ids uuid}``               membership; ``ids`` is a list bind (empty is fine).
``job_id {not in ids uuid}``           Kinds: uuid time bool int real text
``FROM {rows r (job_id, delta int)}``  a row set named ``r`` from the bind ``r``: a list of tuples. The kind
                                       of a schema column is known, others are named
``{for update}``                       also ``{for update skip locked}``, ``{for update of q}``,
                                       ``{for update of q skip locked}``, ``{for share}``; nothing on SQLite.
                                       ``of`` takes an alias, never a table name
``CAST(:x AS {time})``                 the product's name of a kind. Needed where a bind can be NULL and
                                       nothing else tells its type: ``CAST(:x AS {time}) IS NULL``
``{greatest}(a, b)`` ``{least}(a, b)`` arguments must not be NULL (SQLite answers NULL, PostgreSQL skips it)
``{instr}(text, :part) > 0``           position of a part, case-sensitive everywhere
``{clock}``                            the server's clock, a time: ``SELECT {clock} AS now_at``
``{priorities}``                       a row set ``p`` whose ``p.column1`` is each priority, highest first
``{current}``                          at the end of a SELECT that must see what others have committed, although
                                       the caller's transaction (``within=``) may have an older snapshot
``{short text}``                       the type of a column that is a key
=====================================  ==========================================================

``true``, ``false``, ``NOT flag``, ``LIMIT :n``, ``RETURNING``, ``ON CONFLICT (…) DO NOTHING | DO UPDATE``,
``WITH x AS MATERIALIZED (SELECT …)`` and ``UPDATE … FROM`` can be used everywhere. Not portable: a WITH
that changes data (send two statements), ``::`` casts, arithmetic on times (do it in Python), a qualified
column on the left of SET. SQLite needs ``WHERE true`` in ``INSERT … SELECT … ON CONFLICT``.
A literal brace or an unknown macro is an error. In an f-string write ``{{in ids uuid}}``.

**Values in**: UUID, aware datetime, bool, int, float, str, enums of str and int, None, and lists of
these for ``{in}`` and ``{rows}``.

**Values out** are decoded by the *label of the result column*: UUID, aware UTC datetime with
microseconds, bool. A label that is a column of the schema has that column's kind (`columns.KINDS`), so
plain columns just work. An expression takes the label of such a column, or one that ends in ``_at``
(time) or ``_uuid``, or begins with ``is_`` or ``has_`` (bool)::

    SELECT q.job_id, min(q.scheduled_time) AS scheduled_time, count(*) AS jobs,
           EXISTS (SELECT 1 FROM scheduler_queue) AS is_known
      FROM scheduler_job_queue q ...

Beware of the reverse: ``count(*) AS paused`` would come out as a bool. Rows are plain tuples::

    for job_id, due_at, jobs, known in session.rows(FIND, {"limit": 10}):
        ...

**Retries**: `Database.run` may call its *work* again from the start after a deadlock, a serialization
failure or a connection that was lost before the commit. *work* therefore must not change Python state
that outlives it, except what it returns.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ratchet.model.errors import Conflict, SchemaOutOfDate, StoreError, StoreUnavailable
from ratchet.spi.shield import bracketed, current_shield
from ratchet.stores.auditing import carry_out, counted
from ratchet.stores.installation import Installation, another_database
from ratchet.stores.sql.audit_entries import append_entry
from ratchet.stores.sql.caller_transaction import driver_of
from ratchet.stores.sql.errors import ConnectionLost, ReadOnlyServer

if TYPE_CHECKING:
    from ratchet.stores.sql.dialect import Dialect
    from ratchet.stores.sql.rows.stream_registry import StreamRegistry

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]
#: When the first migration was applied here: which installation this is.
INSTALLED = "SELECT MIN(applied_at) FROM ratchet_schema_version"
NO_PARAMS: Mapping[str, object] = {}

log = logging.getLogger("ratchet.stores.sql")


class Session(ABC):
    """
    One transaction on one connection.

    `Database.run` and `Database.read` make and end it. An enlisted one runs on the caller's own
    transaction and never ends it.
    """

    dialect: Dialect
    enlisted: bool = False  # on a caller's transaction, which commits when the caller says so
    #: Where a caller's connection is now: what decides which tables it finds. None: it is the store's own database.
    place: tuple[str, ...] | None = None

    @abstractmethod
    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        """Run one statement; the number of rows it changed."""

    @abstractmethod
    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        """Run one statement (a SELECT, or one with RETURNING); all its rows, decoded."""

    @abstractmethod
    def insert_rows(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        on_conflict_do_nothing: bool = False,
    ) -> int:
        """Insert many rows in the product's fastest way; the number of rows inserted."""

    def insert_columns(self, table: str, names: Sequence[str], columns: Sequence[Sequence[object]]) -> int:
        """`insert_rows` for values that are given column by column."""
        return self.insert_rows(table, names, list(zip(*columns, strict=True)))

    @abstractmethod
    def update_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        """Set columns of many rows in the product's fastest way, found by the first column; the number of rows changed."""

    def backdated(self, stream_ids: Iterable[int]) -> None:
        """
        Jobs of these streams came into the queue with a due time that claims may have passed already.

        For a product whose claims do not always start at the beginning of a stream.
        """
        return

    def confirm(self) -> None:
        """
        Let the commit of this transaction, which has written nothing, wait for what others have committed before.

        For a product where one can read what a synchronous standby does not have yet.
        """
        return

    def hold(self, table: str, column: str, keys: Iterable[object]) -> None:
        """
        Rows of *table* that this transaction has locked, and by which it decides without changing all of them.

        Say so after the lock, and before anything is read that others change under the same lock. It is for a product
        where a lock of a row holds on one of several servers, and what two transactions have changed is compared when
        they commit. Everywhere else the lock is enough, and this does nothing, and does not look at *keys*.
        """
        return

    @abstractmethod
    def on_commit(self, action: Callable[[], None]) -> None:
        """Call *action* after this transaction has committed; dropped on rollback and on an enlisted session."""

    @property
    @abstractmethod
    def connection(self) -> Any:
        """The driver's connection of this transaction."""

    def row(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> Row | None:
        """The first row of `rows`; None if there is none."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def value(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> Any:
        """The first column of the first row; None if there is none."""
        found = self.rows(sql, params)
        return found[0][0] if found else None


class Database:
    """
    Runs work in transactions; the only place that retries.

    Safe to use from many threads. A process that was forked from one that used it gets connections
    of its own.
    """

    #: How often *work* is tried when the database reports a conflict with another transaction.
    TRIES = 8
    #: Seconds after which no further try begins; waiting for locks may have taken them.
    RETRY_FOR = 10.0

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._prepare: Callable[[], object] | None = None
        self._prepared_in: int | None = None
        self._preparing = threading.Lock()
        self._installation = Installation(self._installed_at, dialect.where)

    def prepare_with(self, action: Callable[[], object]) -> None:
        """Call *action* before the first transaction of this process; one that fails is called again."""
        self._prepare = action

    def run(self, work: Callable[[Session], T], *, within: object | None = None, claiming: bool = False) -> T:
        """
        What *work* returns, after its one write transaction has committed.

        With *within* it runs on the caller's transaction instead: once, without retries, and
        nothing is committed. `Conflict` when other transactions won every try, `StoreUnavailable`
        when the database cannot be reached, `CommitUnknown` when the connection was lost while
        committing. *claiming* is for the claim alone: it holds the planner to the claim's index.
        """
        return self.call(self._run, work, within, claiming)

    def autocommit(
        self, sql: str, params: Mapping[str, object], *, harmless: bool = False
    ) -> list[Row] | None:
        """The rows of one statement of a claim, as `Autocommit.claim` says; None: use `run` or `read`."""
        if self.dialect.autocommit is None:
            return None
        return self.call(self.dialect.autocommit.claim, sql, params, harmless=harmless)

    def attempt(self, transaction: Callable[[], T]) -> T:
        """What *transaction*, a whole write transaction of the dialect's own making, returns; tried again as in `run`."""
        return self.call(self._try, transaction)

    def call(self, operation: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What *operation* returns; inside of a job, no interruption of the job breaks into it."""
        shield = current_shield.get()
        if shield is None:
            self._ready()
            return operation(*args, **kwargs)
        with shield.shielded():
            self._ready()
            return operation(*args, **kwargs)

    def is_ready(self) -> bool:
        """True if the next transaction has nothing to prepare first."""
        return self._prepared_in == os.getpid() or self._prepare is None

    def read(self, work: Callable[[Session], T]) -> T:
        """What *work* returns, read in one transaction that takes no write lock."""

        def attempt() -> T:
            with self.dialect.reading() as session:
                return work(session)

        return self.call(self._try, attempt)

    def begin(self, *, within: object | None = None) -> AbstractContextManager[Any]:
        """
        A transaction whose driver connection the caller may use: commits at the end, rolls back on an error.

        With *within*, that same connection, already in the caller's transaction.
        """
        return bracketed(self._begin(within))

    def close(self) -> None:
        """Free every connection; the next call opens new ones."""
        self._prepared_in = None
        self.dialect.close()

    def _ready(self) -> None:
        if self._prepared_in == (process := os.getpid()) or self._prepare is None:
            return
        with self._preparing:
            if self._prepared_in != process:
                self._prepare()
                self._prepared_in = process

    @contextmanager
    def _begin(self, within: object | None) -> Iterator[Any]:
        self._ready()
        if within is not None:
            with self._enlisted(within) as session:
                yield session.connection
        else:
            with self.dialect.writing(for_user=True) as session:
                self._installation.own(session.connection)
                yield session.connection

    @contextmanager
    def _enlisted(self, within: object) -> Iterator[Session]:
        """A session on the caller's transaction, if that is in this store's database."""
        with self.dialect.enlist(within) as session:
            place, connection = session.place, driver_of(session.connection)
            if place is None or self._installation.knows(connection, place):
                yield session
                return
        self._refuse_another(within, connection, place)
        with self.dialect.enlist(within) as session:
            yield session

    def _refuse_another(self, within: object, connection: object, place: tuple[str, ...]) -> None:
        """
        Refuse a connection that leads to another database than this store's.

        In a savepoint of its own: where the caller may not read the version, its transaction goes on.
        """
        described = ", ".join(place)
        try:
            with self.dialect.enlist(within) as session:
                theirs = session.value(INSTALLED)
        except SchemaOutOfDate as error:
            raise another_database(
                f"{described}; it has no tables of Ratchet", self.dialect.where()
            ) from error
        except StoreUnavailable:
            raise
        except StoreError:
            theirs = None
        self._installation.require_same(connection, place, theirs, described)

    def _installed_at(self) -> datetime | None:
        with self.dialect.reading() as session:
            found: datetime | None = session.value(INSTALLED)
            return found

    def _run(self, work: Callable[[Session], T], within: object | None, claiming: bool) -> T:
        if within is not None:
            with self._enlisted(within) as session:
                return work(session)
        return self._try(lambda: self._transact(work, claiming))

    def _transact(self, work: Callable[[Session], T], claiming: bool) -> T:
        with self.dialect.writing(claiming=claiming) as session:
            return work(session)

    def _try(self, attempt: Callable[[], T]) -> T:
        reconnected = False
        started = time.monotonic()
        for tries in range(1, self.TRIES + 1):
            try:
                return attempt()
            except Conflict:
                if tries == self.TRIES or time.monotonic() - started > self.RETRY_FOR:
                    raise
                # full jitter: two transactions that were in conflict once should not be so again
                time.sleep(random.uniform(0, min(0.005 * 2**tries, 0.5)))
            except ConnectionLost as error:
                # That the server has closed an idle connection shows only when it is used.
                if reconnected:
                    raise
                reconnected = True
                if not isinstance(error, ReadOnlyServer):
                    log.info("the connection was lost before the commit; trying once more on a new one")
        raise StoreError("unreachable: the last try returns or raises")


class SqlPart:
    """What the noun classes have in common: the database they run on, and the ids of streams."""

    def __init__(self, database: Database, stream_registry: StreamRegistry) -> None:
        self.database = database
        self.stream_registry = stream_registry

    def change(
        self,
        work: Callable[[Session], T],
        within: object | None = None,
        *,
        count: Callable[[T], int] = counted,
        wakes: bool = True,
    ) -> T:
        """
        What *work* returns: a change by hand, with its entry in the audit log.

        It may be made in the caller's transaction; then its commit wakes nodes as well, if the change *wakes*. *count* says
        how much was changed, by the answer.
        """
        if within is None:
            return carry_out(self.database.run, work, append_entry, count)

        def announced(session: Session) -> T:
            answer = work(session)
            if answer:
                session.dialect.announce(session)
            return answer

        def run(whole: Callable[[Session], T]) -> T:
            return self.database.run(whole, within=within)

        return carry_out(run, announced if wakes else work, append_entry, count)
