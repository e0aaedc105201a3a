"""
Connections to a MongoDB replica set, and the collections behind them.

A process that was forked from one that used them gets connections of its own. A server that is no replica
set is refused with what makes it one.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pymongo
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database as DriverDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.process import process_name
from ratchet.model.store_url import StoreUrl
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.errors import translated
from ratchet.stores.transport import note_unverified

Client = MongoClient[Document]

DEFAULT_DATABASE: Final = "ratchet"
_PORT: Final = re.compile(r":\d*$")
MAJORITY: Final = ReadConcern("majority")
DURABLE: Final = WriteConcern(w="majority", j=True)
CODEC: Final = CodecOptions[Document](uuid_representation=UuidRepresentation.STANDARD, tz_aware=True)

STANDALONE: Final = (
    "the MongoDB server at {address} is a standalone, which has no transactions; make it a replica set of one: "
    "start it with `mongod --replSet rs0`, then once `mongosh --eval 'rs.initiate()'`"
)


class Collections:
    """The collections of one database, as one client sees them."""

    def __init__(self, database: DriverDatabase[Document]) -> None:
        self.database = database
        self._made: dict[str, Collection[Document]] = {}

    def __getitem__(self, name: str) -> Collection[Document]:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self.database[name]
        return found


class Connections:
    """The clients of this process: one for the store's own work, and one for transactions that run users' code."""

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._options = options
        self._parts = StoreUrl.of(url)
        self.name = self._parts.path or DEFAULT_DATABASE
        self._given = {name.lower() for name, _ in self._parts.parameters}
        if not {"tls", "ssl"} & self._given and self._parts.scheme == "mongodb":  # an SRV record brings TLS
            for host in self._parts.hosts.split(","):
                note_unverified(
                    "MongoDB", _PORT.sub("", host), "tls=true&tlsCAFile=/path/to/ca.pem", "tls=false"
                )
        self.where = f"{self.name} at {self._parts.hosts}"  # for messages
        self._connect_timeout, self.answer_timeout, _ = options.timeouts()
        self._own_name = f"ratchet {self.name}"
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._callers: Client | None = None
        self._process: int | None = None
        self._collections: Collections | None = None

    def patiently(self) -> AbstractContextManager[None]:
        """Inside the block, all calls together end after `Options.failover_patience`, with what the driver repeats."""
        patience = self._options.failover_patience
        return nullcontext() if patience is None else pymongo.timeout(patience.total_seconds())

    def client(self) -> Client:
        """The driver's client of this process; connections are made when they are needed."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._callers = None
                self._client = self.make_client()
                self._collections = Collections(self._database_of(self._client))
                self._process = os.getpid()
            return self._client

    def _caller_client(self) -> Client:
        """The client of transactions that run users' code: these may be idle for long, ours may not."""
        with self._lock:
            self.client()
            if self._callers is None:
                self._callers = self.make_client(appname=self.caller_client_name(process_name()))
            return self._callers

    def caller_client_name(self, process: str) -> str | None:
        """What that client of a process is called on the server; None where the URL has a name for all."""
        return None if "appname" in self._given else f"{self._own_name} transaction {process}"

    def make_client(self, **changes: Any) -> Client:
        """A client of its own."""
        settings: dict[str, Any] = {
            "appname": self._own_name,
            "maxPoolSize": self._options.pool_size,
            "connectTimeoutMS": _milliseconds(self._connect_timeout),
            "serverSelectionTimeoutMS": _milliseconds(self._connect_timeout),
            "socketTimeoutMS": _milliseconds(self.answer_timeout),
            **changes,
        }
        settings = {name: value for name, value in settings.items() if name.lower() not in self._given}
        try:
            return MongoClient(
                self._url,
                document_class=dict,
                tz_aware=True,
                uuidRepresentation="standard",
                readPreference="primary",
                retryWrites=True,
                retryReads=True,
                w="majority",
                journal=True,
                **settings,
            )
        except (PyMongoError, ValueError, TypeError) as error:
            cause, problem = self._parts.safe_cause(error), self._parts.without_secrets(str(error))
        wrong = ConfigurationError(f"the MongoDB URL or an option in it is wrong: {problem}")
        raise wrong from cause

    def collections(self, session: ClientSession | None = None) -> Collections:
        """The collections; those of the session's own client, where it is a caller's."""
        client = self.client()
        assert self._collections is not None
        if session is not None and session.client is not client:
            return Collections(self._database_of(session.client))
        return self._collections

    def close(self) -> None:
        """Free every connection; the next call opens new ones."""
        with self._lock:
            clients = [client for client in (self._client, self._callers) if client is not None]
            self._client = self._callers = self._collections = None
        for client in clients if self._process == os.getpid() else ():
            client.close()

    def _database_of(self, client: Client) -> DriverDatabase[Document]:
        return client.get_database(
            self.name,
            codec_options=CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=DURABLE,
            read_concern=MAJORITY,
        )

    def _refuse_standalone(self) -> None:
        try:
            hello = self.client().admin.command("hello")
        except PyMongoError as error:
            if (standalone := self._find_standalone()) is not None:
                raise ConfigurationError(standalone) from error
            raise translated(error, self.where) from error
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            address = self.client().address or ("?", 0)
            raise ConfigurationError(STANDALONE.format(address=f"{address[0]}:{address[1]}"))

    def _find_standalone(self) -> str | None:
        """What is wrong with a server that answers, but is no member of the replica set that the URL names."""
        for host, port in parse_uri(self._url, validate=False, warn=False)["nodelist"]:
            address = f"{host}:{port}"
            try:
                direct: Client
                with MongoClient(
                    host, port, directConnection=True, serverSelectionTimeoutMS=500, socketTimeoutMS=1000
                ) as direct:
                    hello = direct.admin.command("hello")
            except PyMongoError:
                continue
            if hello.get("isreplicaset"):
                return f"the replica set at {address} is not initiated; run once `mongosh --eval 'rs.initiate()'`"
            if "setName" not in hello and hello.get("msg") != "isdbgrid":
                return STANDALONE.format(address=address)
        return None


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
