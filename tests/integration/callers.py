"""Applications with a transaction of their own: one for each kind of connection that ``within=`` takes."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import unquote, urlsplit

import aiosqlite
import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.services.mysqlclient import mysqldb
from tests.stores.mysql_server import connect as pymysql_connection

#: A statement that every database refuses.
WRONG = "SELECT nothing FROM nowhere_at_all"


class Caller:
    """A connection, as the application has it; sync ones answer at once, but are awaited all the same."""

    #: The store it belongs to.
    store: str
    #: True: only the await face takes it.
    is_async = False

    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        self.url = url
        self.autocommit = autocommit
        self.connection: Any = None

    @property
    def within(self) -> Any:
        """What is passed."""
        return self.connection

    async def open(self) -> None:
        """Connect, and begin if it does not begin by itself."""
        raise NotImplementedError

    async def run(self, statement: str) -> None:
        """Run a statement of the application's own."""
        cursor = self.connection.cursor()
        cursor.execute(statement)
        cursor.close()

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()

    async def close(self) -> None:
        self.connection.close()


def path_of(url: str) -> str:
    """The file of an SQLite URL."""
    return url.removeprefix("sqlite:///")


class Sqlite3(Caller):
    store = "sqlite"

    async def open(self) -> None:
        level: Any = {"isolation_level": None} if self.autocommit else {}
        self.connection = sqlite3.connect(path_of(self.url), **level)


class Aiosqlite(Caller):
    store = "sqlite"
    is_async = True

    async def open(self) -> None:
        level: Any = {"isolation_level": None} if self.autocommit else {}
        self.connection = await aiosqlite.connect(path_of(self.url), **level)
        self.connection.row_factory = aiosqlite.Row  # the application's own, not ours

    async def run(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class Psycopg(Caller):
    store = "postgresql"

    async def open(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=self.autocommit)


class PsycopgAsync(Aiosqlite):
    store = "postgresql"

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=self.autocommit)


class Asyncpg(Aiosqlite):
    store = "postgresql"

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        await self._begin()

    async def _begin(self) -> None:
        if not self.autocommit:
            self._transaction = self.connection.transaction()
            await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()
        await self._begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self._begin()


class AsyncpgPool(Asyncpg):
    """What a pool of asyncpg lends."""

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.connection = await self.pool.acquire()
        await self._begin()

    async def close(self) -> None:
        await self.pool.release(self.connection)
        await self.pool.close()


class Pymysql(Caller):
    store = "mysql"

    async def open(self) -> None:
        self.connection = pymysql_connection(self.url, autocommit=self.autocommit)


class MysqlclientCaller(Caller):
    store = "mysql"

    async def open(self) -> None:
        parts = urlsplit(self.url)
        self.connection = mysqldb().connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/"),
            charset="utf8mb4",
            autocommit=self.autocommit,
        )


class AlchemySession(Caller):
    """A Session of SQLAlchemy; the subclass says on which driver."""

    driver: str

    async def open(self) -> None:
        if self.driver.endswith("mysqldb"):
            mysqldb()
        scheme, rest = self.url.split(":", 1)
        given: Any = {"isolation_level": "AUTOCOMMIT"} if self.autocommit else {}
        self.engine = create_engine(f"{scheme}+{self.driver}:{rest}", **given)
        self.connection = Session(self.engine)

    async def run(self, statement: str) -> None:
        self.connection.execute(text(statement))

    async def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class AlchemySqlite(AlchemySession):
    store, driver = "sqlite", "pysqlite"


class AlchemyPsycopg(AlchemySession):
    store, driver = "postgresql", "psycopg"


class AlchemyPymysql(AlchemySession):
    store, driver = "mysql", "pymysql"


class AlchemyMysqlclient(AlchemySession):
    store, driver = "mysql", "mysqldb"


class AlchemyAsyncSession(AlchemySession):
    """An AsyncSession."""

    is_async = True

    async def open(self) -> None:
        scheme, rest = self.url.split(":", 1)
        given: Any = {"isolation_level": "AUTOCOMMIT"} if self.autocommit else {}
        self.async_engine = create_async_engine(f"{scheme}+{self.driver}:{rest}", **given)
        self.connection = await self._connected()

    async def _connected(self) -> Any:
        return AsyncSession(self.async_engine)

    async def run(self, statement: str) -> None:
        await self.connection.execute(text(statement))

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()
        await self.async_engine.dispose()


class AsyncSessionAiosqlite(AlchemyAsyncSession):
    store, driver = "sqlite", "aiosqlite"


class AsyncSessionAsyncpg(AlchemyAsyncSession):
    store, driver = "postgresql", "asyncpg"


class AsyncSessionPsycopg(AlchemyAsyncSession):
    store, driver = "postgresql", "psycopg"


class AsyncConnectionAsyncpg(AlchemyAsyncSession):
    store, driver = "postgresql", "asyncpg"

    async def _connected(self) -> Any:
        return await self.async_engine.connect()


CALLERS: dict[str, type[Caller]] = {
    "sqlite3": Sqlite3,
    "aiosqlite": Aiosqlite,
    "Session on sqlite3": AlchemySqlite,
    "AsyncSession on aiosqlite": AsyncSessionAiosqlite,
    "psycopg": Psycopg,
    "psycopg async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "asyncpg pool": AsyncpgPool,
    "Session on psycopg": AlchemyPsycopg,
    "AsyncSession on psycopg": AsyncSessionPsycopg,
    "AsyncSession on asyncpg": AsyncSessionAsyncpg,
    "AsyncConnection on asyncpg": AsyncConnectionAsyncpg,
    "PyMySQL": Pymysql,
    "mysqlclient": MysqlclientCaller,
    "Session on PyMySQL": AlchemyPymysql,
    "Session on mysqlclient": AlchemyMysqlclient,
}
