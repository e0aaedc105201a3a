"""The harness of the MongoDB store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pymongo
from pymongo import common

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.mongo.schema import ALL_NAMES
from ratchet.tck import Harness
from tests.services.mongodb import MongoDB

#: Seconds until the driver looks again at a server that has cut a connection; half a second is for production.
LOOK_AGAIN = 0.02
DRIVERS_OWN = common.MIN_HEARTBEAT_INTERVAL


class MongodbHarness(Harness):
    """One database for the whole run, emptied before every contract."""

    #: One call may find a dead connection, connect anew and try once more, each within the handle's own deadline.
    call_deadline = timedelta(seconds=8)

    def __init__(self, url: str | None = None) -> None:
        self.service = None if url else MongoDB.resolve().start()
        self.url = url or self.service.create_database()  # type: ignore[union-attr]  # one of the two is there
        parts = urlsplit(self.url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 27017)
        self.name = parts.path.removeprefix("/")
        self.handles: list[JobStore] = []
        store = self.reopen()
        store.migrate()
        self.capabilities = store.capabilities
        self.close()
        self.admin: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(self.url)

    def open(self) -> JobStore:
        for name in ALL_NAMES:
            self.admin[self.name][name].delete_many({})
        return self.reopen()

    def reopen(self) -> JobStore:
        return self._handle(self.url, Options())

    def via(self, host: str, port: int) -> JobStore:
        common.MIN_HEARTBEAT_INTERVAL = LOOK_AGAIN
        # directly: as a member of its replica set the server would be asked at its own address
        # polled: a monitor that streams notices only after half a second that it should look again
        url = f"mongodb://{host}:{port}/{self.name}?directConnection=true&serverMonitoringMode=poll"
        return self._handle(url, Options(statement_timeout=1.5, connect_timeout=1.5))

    def _handle(self, url: str, options: Options) -> JobStore:
        store = open_store(url, options)
        self.handles.append(store)
        return store

    def close(self) -> None:
        while self.handles:
            self.handles.pop().close()
        common.MIN_HEARTBEAT_INTERVAL = DRIVERS_OWN

    def shutdown(self) -> None:
        self.admin.close()
        if self.service is not None:
            self.service.drop_database(self.url)
