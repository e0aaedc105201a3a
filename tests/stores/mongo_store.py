"""A MongoDB store to test on, more handles on the same data, and faults that the server plays by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ratchet.model.options import Options
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.store import MongoStore
from ratchet.tck.steps import Steps


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
