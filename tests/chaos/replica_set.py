"""A MongoDB replica set of three, whose primary can be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from tests.services.mongodb import MongoDB
from tests.services.server import database_name, with_database
from tests.support.waiting import until

PATIENCE = 90.0
#: Milliseconds after which the members elect another primary. MongoDB's default is 10,000, and then that is the recovery.
ELECTION = 3000


class Member(MongoDB):
    """One of the three; it is told by `ReplicaSet` that it is one."""

    def answers(self) -> bool:
        try:
            self.hello()
        except PyMongoError:
            return False
        return True

    def hello(self) -> dict[str, Any]:
        """What the member says of itself."""
        return self.command_direct("hello")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP for this member; SIGCONT at the end."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def command_direct(self, name: str, value: Any = 1, **more: Any) -> dict[str, Any]:
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(
            f"mongodb://127.0.0.1:{self.port}/", directConnection=True, serverSelectionTimeoutMS=500
        ) as client:
            return dict(client.admin.command(name, value, **more))


class ReplicaSet(MongoDB):
    """Looks like one server; the parts of it that die are its members."""

    def __init__(self) -> None:
        super().__init__()
        self.members = [Member() for _ in range(3)]

    def start(self) -> ReplicaSet:
        for member in self.members:
            member.start()
        hosts = [f"127.0.0.1:{member.port}" for member in self.members]
        members = [{"_id": number, "host": host} for number, host in enumerate(hosts)]
        self.members[0].command_direct(
            "replSetInitiate",
            {"_id": "rs0", "members": members, "settings": {"electionTimeoutMillis": ELECTION}},
        )
        self.url = f"mongodb://{','.join(hosts)}/?replicaSet=rs0"
        self.wait_until_whole()
        return self

    def create_database(self) -> str:
        return with_database(self.url, database_name())

    def close(self) -> None:
        for member in self.members:
            member.close()

    def kill_primary(self) -> Member:
        """Kill -9 for the member that takes writes now; which one it was."""
        primary = self.primary()
        primary.kill()
        return primary

    def primary(self) -> Member:
        """The member that takes writes now."""
        found: list[Member] = []

        def is_found() -> bool:
            found[:] = [member for member in self.members if self._says(member, "isWritablePrimary")]
            return len(found) == 1

        until(is_found, PATIENCE, "there is not one primary")
        return found[0]

    def wait_until_whole(self) -> None:
        """Until there is one primary, and the two others follow it."""
        until(self._is_whole, PATIENCE, "the replica set has not come together")

    def _is_whole(self) -> bool:
        primaries = [member for member in self.members if self._says(member, "isWritablePrimary")]
        followers = [member for member in self.members if self._says(member, "secondary")]
        return len(primaries) == 1 and len(followers) == 2

    @staticmethod
    def _says(member: Member, word: str) -> bool:
        try:
            return bool(member.running and member.hello().get(word))
        except PyMongoError:
            return False
