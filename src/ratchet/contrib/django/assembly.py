"""The scheduler of a Django project: its store is in the project's database, its submissions join ``atomic()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ratchet.contrib.django.connections import fresh_connections
from ratchet.contrib.django.database_url import is_in_memory, url_of
from ratchet.contrib.django.settings import Settings
from ratchet.model.clock import Clock
from ratchet.model.errors import ConfigurationError
from ratchet.model.events import JobDeadLettered
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core, LazyStore
from ratchet.scheduler.parts import Parts
from ratchet.spi.store import JobStore
from ratchet.stores import open_store


class AtomicBlock:
    """The transaction of one database alias that the calling thread is in."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def current(self) -> object | None:
        """Django's connection, if ``atomic()`` is open on it, or autocommit is off."""
        wrapper = connections[self._alias]
        if wrapper.in_atomic_block or (wrapper.connection is not None and not wrapper.autocommit):
            return wrapper  # type: ignore[no-any-return]
        return None

    def on_commit(self, action: Callable[[], object]) -> None:
        """Django calls *action* after the outermost block; where autocommit is off, it does not know when."""
        if connections[self._alias].in_atomic_block:
            transaction.on_commit(action, using=self._alias, robust=True)


class FollowingStore(LazyStore):
    """
    The store in the database that an alias names now.

    A test runner changes the name of the database after the application was imported. A store that was opened before would go on
    writing to the database of the application.
    """

    def __init__(self, alias: str, core: Core) -> None:
        self._alias = alias
        self._core = core
        self._place: Any = None
        self._opened: JobStore | None = None
        self._checked: JobStore | None = None
        super().__init__(self._open, core.clock)

    @property
    def opened(self) -> JobStore | None:
        """The store, if it was opened."""
        if self._opened is not None and self._place != self._named():
            old, self._opened, self._checked = self._opened, None, None
            old.close()
        return self._opened

    @opened.setter
    def opened(self, store: JobStore | None) -> None:
        self._opened = store

    @property
    def checked(self) -> JobStore | None:
        """The store, if its schema was found right."""
        _refuse_where_tests_do(self._alias)
        return None if self.opened is None else self._checked

    @checked.setter
    def checked(self, store: JobStore | None) -> None:
        self._checked = store

    def _named(self) -> tuple[Any, ...]:
        entry = connections.settings[self._alias]
        return entry["NAME"], entry.get("HOST"), entry.get("PORT"), entry.get("USER")

    def _open(self) -> JobStore:
        _refuse_where_tests_do(self._alias)
        entry = connections.settings[self._alias]
        self._place = self._named()
        _close_before_drop(connections[self._alias].creation, self._core)
        if is_in_memory(entry):
            self._core.url = None
            return _borrowing(self._alias, self._core.options)
        self._core.url = url_of(self._alias, entry)
        return open_store(self._core.url, self._core.options)


def _refuse_where_tests_do(alias: str) -> None:
    """
    Let a test that may not use this database hear so, in the words of what forbids it.

    ``SimpleTestCase`` and pytest-django (without its mark) put something in the place of Django's methods. Our own connections
    would not notice; and before there is a test database, they lead to the database of the application.
    """
    wrapper = connections[alias]
    if (
        "cursor" in vars(wrapper)
        or type(wrapper).ensure_connection.__module__ != BaseDatabaseWrapper.__module__
    ):
        wrapper.cursor().close()


def _close_before_drop(creation: Any, core: Core) -> None:
    """A test database with open connections cannot be dropped; Django closes its own, and has no signal for ours."""
    destroy = creation.destroy_test_db
    if hasattr(destroy, "closes_store"):
        return

    def closing(*args: Any, **kwargs: Any) -> Any:
        core.close()
        return destroy(*args, **kwargs)

    closing.closes_store = True  # type: ignore[attr-defined]  # said once for each connection
    creation.destroy_test_db = closing


def _borrowing(alias: str, options: Options) -> JobStore:
    """A store on Django's own connection: a database in memory, as its tests have it, cannot be opened a second time."""
    from ratchet.stores.sql.dialects.sqlite.borrowed import BorrowedSqlite
    from ratchet.stores.sql.store import SqlStore

    def connection() -> Any:
        wrapper = connections[alias]
        wrapper.ensure_connection()
        return wrapper.connection

    return SqlStore(BorrowedSqlite(connection, options), options)


class DjangoCore(Core):
    """A core whose store is found by a database alias."""

    def __init__(self, alias: str, **given: Any) -> None:
        super().__init__(open_store=None, **given)
        self.alias = alias
        self._lazy = FollowingStore(alias, self)
        self.now = self._lazy.now
        self.surrounding = AtomicBlock(alias)

    def use_store(self, url: str, options: Options) -> None:
        """Refused: a job in another database could not be part of the project's transactions."""
        raise ConfigurationError(
            f"the scheduler of a Django project keeps its jobs in DATABASES[{self.alias!r}]; choose the database with "
            f"settings.RATCHET['database'], or make a Scheduler of your own"
        )


class DjangoScheduler(Scheduler):
    """The `Scheduler` that a project's settings describe; made once, as ``ratchet.contrib.django.scheduler``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__(allow=settings.allow, imports=settings.imports, options=settings.options)
        self.around(fresh_connections)

    def _make_core(
        self,
        store: JobStore | str | None,
        options: Options,
        parts: Parts,
        clock: Clock | None,
        alert: Callable[[JobDeadLettered], None] | None,
    ) -> Core:
        # RATCHET_URL does not count: ``manage.py ratchet`` sets it to this same database.
        return DjangoCore(self._settings.database, options=options, parts=parts, clock=clock, alert=alert)

    @property
    def database(self) -> str:
        """The alias of the database that keeps the jobs."""
        return self._settings.database

    @property
    def dashboard(self) -> str | None:
        """Where the settings say that the dashboard is."""
        return self._settings.dashboard

    @property
    def url(self) -> str:
        """The URL of that database; it may hold a password: never print it."""
        return url_of(self.database, connections.settings[self.database])
