"""The harness of the MongoDB store."""

from __future__ import annotations

from datetime import timedelta

import pymongo
from pymongo import common

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores.mongo.schema import ALL_NAMES
from tests.services.mongodb import MongoDB
from tests.tck.servers import ServerHarness

#: Seconds until the driver looks again at a server that has cut a connection; half a second is for production.
LOOK_AGAIN = 0.02
DRIVERS_OWN = common.MIN_HEARTBEAT_INTERVAL


class MongodbHarness(ServerHarness):
    """A database of a MongoDB replica set."""

    #: One call may find a dead connection, connect anew and try once more, each within the handle's own deadline.
    call_deadline = timedelta(seconds=8)

    def __init__(self, url: str | None = None) -> None:
        super().__init__(MongoDB, url, port=27017)
        self.admin = pymongo.MongoClient(self.url)

    def open(self) -> JobStore:
        for name in ALL_NAMES:
            self.admin[self.name][name].delete_many({})
        return self.reopen()

    def via(self, host: str, port: int) -> JobStore:
        common.MIN_HEARTBEAT_INTERVAL = LOOK_AGAIN
        # directly: as a member of its replica set the server would be asked at its own address
        # polled: a monitor that streams notices only after half a second that it should look again
        url = f"mongodb://{host}:{port}/{self.name}?directConnection=true&serverMonitoringMode=poll"
        return self._handle(url, Options(statement_timeout=1.5, connect_timeout=1.5))

    def close(self) -> None:
        super().close()
        common.MIN_HEARTBEAT_INTERVAL = DRIVERS_OWN
