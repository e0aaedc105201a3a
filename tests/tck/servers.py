"""What the harnesses of stores on a server have in common: one database, and handles that are closed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.tck import Harness
from tests.services.server import Server


class ServerHarness(Harness):
    """One database for the whole run, on the server of the tests or at a given URL; emptied before every contract."""

    admin: Any  # a connection of the driver, to empty the database

    def __init__(self, server: type[Server], url: str | None, port: int) -> None:
        self.service: Any = None if url else server.resolve().start()
        self.url: str = url or self.service.create_database()
        parts = urlsplit(self.url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or port)
        self.name = parts.path.strip("/")
        self.handles: list[JobStore] = []
        store = self.reopen()
        store.migrate()
        self.capabilities = store.capabilities
        self.close()

    def reopen(self) -> JobStore:
        return self._handle(self.url, Options())

    def _handle(self, url: str, options: Options) -> JobStore:
        store = open_store(url, options)
        self.handles.append(store)
        return store

    def close(self) -> None:
        while self.handles:
            self.handles.pop().close()

    def shutdown(self) -> None:
        self.admin.close()
        if self.service is not None:
            self.service.drop_database(self.url)


class SqlServerHarness(ServerHarness):
    """The same for stores of SQL servers, whose connections have a timeout of their own."""

    #: Seconds after which a call finds its connection dead; five are for production.
    answer_timeout = 2.0

    def via(self, host: str, port: int) -> JobStore:
        parts = urlsplit(self.url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        url = parts._replace(netloc=f"{user}{host}:{port}").geturl()
        store: Any = self._handle(url, Options(statement_timeout=1, connect_timeout=1))
        store.database.dialect._connections.answer_timeout = self.answer_timeout
        return store
