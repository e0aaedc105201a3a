"""
Wakeups on MongoDB: a change stream over a small collection.

A message is a document that says only "look"; the server removes it after a minute. Watching the jobs
themselves would send every document of every submission to every node.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pymongo import WriteConcern
from pymongo.change_stream import CollectionChangeStream
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from ratchet.spi.broadcast import BroadcastCoordinator
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.schema import Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.connections import Client
    from ratchet.stores.mongo.database import Database

#: How long the server holds back the answer "nothing new"; `stop` waits no longer.
AWAIT_MS: Final = 500
#: How long a connection may be silent: the server says "nothing new" ten times in that.
SILENCE_MS: Final = 5_000

#: A lost message costs time but no job, so the sender does not wait until a majority has it.
_FAST: Final = WriteConcern(w=1)


def mongo_wakeups(database: Database) -> BroadcastCoordinator:
    """The coordinator of the installation in this database; it has connections of its own."""
    return BroadcastCoordinator(ChangeStreamMedium(database))


def wake_with(collection: Collection[Document], session: ClientSession | None) -> None:
    """Wake all nodes when the transaction of *session* commits, and not if it is aborted."""
    collection.insert_one({"at": datetime.now(UTC)}, session=session)


class ChangeStreamMedium:
    """Messages in one collection of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = uuid4().hex

    @property
    def sent_by(self) -> str:
        """What our own messages carry; a forked child has its own."""
        return f"{self._name}-{os.getpid()}"

    def sender(self) -> MessageSender:
        """A connection to send on."""
        client = self._client()
        return MessageSender(client, client[self._database.name][Names.WAKEUPS], self.sent_by)

    def receiver(self) -> MessageReceiver:
        """A change stream that has begun."""
        client = self._client()
        try:
            return MessageReceiver(client, client[self._database.name][Names.WAKEUPS], self.sent_by)
        except BaseException:
            client.close()
            raise

    def _client(self) -> Client:
        return self._database.make_client(
            maxPoolSize=2, socketTimeoutMS=SILENCE_MS, serverSelectionTimeoutMS=SILENCE_MS
        )


class MessageSender:
    """Writes one small document per message."""

    def __init__(self, client: Client, collection: Collection[Document], sent_by: str) -> None:
        self._client = client
        self._collection = collection.with_options(write_concern=_FAST)
        self._sent_by = sent_by

    def send(self) -> None:
        """One message, in one round trip."""
        self._collection.insert_one({"at": datetime.now(UTC), "sent_by": self._sent_by})

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class MessageReceiver:
    """Waits for documents of others."""

    def __init__(self, client: Client, collection: Collection[Document], sent_by: str) -> None:
        self._client = client
        self._interrupted = threading.Event()
        news = [{"$match": {"operationType": "insert", "fullDocument.sent_by": {"$ne": sent_by}}}]
        self._stream: CollectionChangeStream[Document] = collection.watch(
            [*news, {"$project": {"_id": 1}}], max_await_time_ms=AWAIT_MS
        )

    def wait(self) -> bool:
        """True if another process has sent something."""
        if self._interrupted.is_set():
            return False
        return self._stream.try_next() is not None

    def interrupt(self) -> None:
        """End the wait when the server has answered."""
        self._interrupted.set()

    def close(self) -> None:
        """Close the stream and its connection."""
        try:
            self._stream.close()
        except PyMongoError:
            pass  # the connection is gone, and the stream with it
        self._client.close()
