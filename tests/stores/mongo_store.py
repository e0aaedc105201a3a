"""A MongoDB store to test on, more handles on the same data, what they send, and faults that the server plays by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import monitoring

from ratchet.model.options import Options
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.store import MongoStore
from ratchet.tck.steps import Steps


class Commands(monitoring.CommandListener):
    """Notes the names of the commands that are sent, and counts the documents that come back."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.documents = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        cursor = event.reply.get("cursor", {})
        self.documents += len(cursor.get("firstBatch", ())) + len(cursor.get("nextBatch", ()))

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing to note."""

    def forget(self) -> None:
        """Begin again."""
        self.names.clear()
        self.documents = 0


class MongoSteps(Steps):
    """The words of the conformance kit on one MongoDB store."""

    store: MongoStore

    def __init__(self, url: str) -> None:
        self.url = url
        self._handles: list[MongoStore] = []
        self.store = self.another()
        self.store.migrate()

    def another(self, **options: Any) -> MongoStore:
        """Another handle, as another node would have."""
        self._handles.append(MongoStore(self.url, Options(**options)))
        return self._handles[-1]

    def listened(self) -> Commands:
        """From now on the steps are those of a node that has just started; what it sends."""
        commands = Commands()
        self.store = self.another()
        database: Any = self.store.database
        make = database.make_client
        database.make_client = lambda **changes: make(event_listeners=[commands], **changes)
        return commands

    @property
    def collections(self) -> Collections:
        """The collections, to look behind the store's back."""
        return self.store.database.collections()

    @contextmanager
    def failing(self, command: str, times: int, **data: Any) -> Iterator[None]:
        """The next *times* commands of this name go wrong as *data* says (the server's own test commands)."""
        admin = self.store.database.client().admin
        mode = {"times": times}
        admin.command(
            "configureFailPoint", "failCommand", mode=mode, data={"failCommands": [command], **data}
        )
        try:
            yield
        finally:
            admin.command("configureFailPoint", "failCommand", mode="off")

    def close(self) -> None:
        for handle in self._handles:
            handle.close()


@contextmanager
def opened(url: str) -> Iterator[MongoSteps]:
    """A store in an empty database."""
    steps = MongoSteps(url)
    try:
        yield steps
    finally:
        steps.close()
