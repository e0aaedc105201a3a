"""A database whose roles are those that `ratchet db grants` prints, with a user for each of them."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymongo
import pymysql
from pymongo.errors import OperationFailure

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.grants import Role, RoleGrants, grants_for
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL

PASSWORD = "for-tests"


class Granted:
    """One empty database: `grant` runs the statements of roles, `url` is that of a role's user."""

    def __init__(self, url: str) -> None:
        self.admin_url = url
        self.prefix = f"ratchet_{uuid.uuid4().hex[:8]}"
        self.stores: list[JobStore] = []

    def grant(self, *roles: Role) -> None:
        for grants in grants_for(self.admin_url, roles or tuple(Role), prefix=self.prefix):
            self.run(grants)

    def run(self, grants: RoleGrants) -> None:
        raise NotImplementedError

    def users(self) -> None:
        """Make a user for each role, called as the role with _user behind it."""
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError

    def url(self, role: Role) -> str:
        parts = urlsplit(self.admin_url)
        return parts._replace(
            netloc=f"{self.prefix}_{role}_user:{PASSWORD}@{parts.hostname}:{parts.port}"
        ).geturl()

    def store(self, role: Role) -> JobStore:
        store = open_store(self.url(role), Options())
        self.stores.append(store)
        return store

    def prepare(self) -> None:
        """The order that the docs tell: the migrator, the schema, the others."""
        self.grant(Role.MIGRATOR)
        self.users()
        with closing(open_store(self.url(Role.MIGRATOR), Options())) as store:
            store.migrate()
        self.grant(Role.WORKER, Role.SUBMITTER, Role.READER)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.drop()


class OnPostgresql(Granted):
    def _execute(self, *statements: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def run(self, grants: RoleGrants) -> None:
        self._execute("\n".join(grants.statements))

    def users(self) -> None:
        for role in Role:
            name = f"{self.prefix}_{role}"
            self._execute(
                f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN CREATE ROLE {name}; END IF; END $$",
                f"CREATE ROLE {name}_user LOGIN PASSWORD '{PASSWORD}' IN ROLE {name}",
                f"ALTER ROLE {name}_user SET role = {name}",  # what the migrator makes is the role's
            )

    def drop(self) -> None:
        names = [f"{self.prefix}_{role}{end}" for role in Role for end in ("_user", "")]
        self._execute(f"DROP OWNED BY {', '.join(names)} CASCADE", *(f"DROP ROLE {name}" for name in names))


class OnMysql(Granted):
    def _execute(self, *statements: str) -> None:
        parts = urlsplit(self.admin_url)
        with (
            closing(
                pymysql.connect(
                    host=parts.hostname,
                    port=parts.port or 3306,
                    user=parts.username or "root",
                    password=parts.password or "",
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)

    def run(self, grants: RoleGrants) -> None:
        self._execute(*grants.statements)

    def users(self) -> None:
        for role in Role:
            name = f"{self.prefix}_{role}"
            self._execute(
                f"CREATE ROLE IF NOT EXISTS {name}",
                f"CREATE USER {name}_user IDENTIFIED BY '{PASSWORD}'",
                f"GRANT {name} TO {name}_user",
                f"SET DEFAULT ROLE {name} FOR {name}_user",
            )

    def drop(self) -> None:
        for role in Role:
            name = f"{self.prefix}_{role}"
            self._execute(f"DROP USER {name}_user", f"DROP ROLE {name}")


class GuardedMongoDB(MongoDB):
    """A replica set that asks who somebody is."""

    def prepare(self) -> None:
        super().prepare()
        key = self.directory / "key"
        key.write_text(secrets.token_hex(32))
        key.chmod(0o600)
        owner = self.directory.stat()
        os.chown(key, owner.st_uid, owner.st_gid)

    def command(self) -> list[str]:
        return [*super().command(), "--auth", "--keyFile", str(self.directory / "key")]

    def private_url(self) -> str:
        return f"mongodb://root:{PASSWORD}@127.0.0.1:{self.port}/?replicaSet=rs0&authSource=admin"

    def answers(self) -> bool:
        if not super().answers():
            return False
        direct: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(f"mongodb://127.0.0.1:{self.port}/", directConnection=True) as direct:
            try:
                direct.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
            except OperationFailure as refusal:
                return refusal.code in (13, 51003)  # somebody is there already
        return True


class OnMongodb(Granted):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url)
        self._database = self._client[urlsplit(url).path.strip("/")]

    def run(self, grants: RoleGrants) -> None:
        """What the printed script does: make the role if it is not there, then say what it may do."""
        assert grants.privileges is not None
        if not self._database.command("rolesInfo", grants.name)["roles"]:
            self._database.command("createRole", grants.name, privileges=[], roles=[])
        self._database.command("updateRole", grants.name, privileges=grants.privileges)

    def users(self) -> None:
        for role in Role:
            name = f"{self.prefix}_{role}"
            if not self._database.command("rolesInfo", name)["roles"]:
                self._database.command("createRole", name, privileges=[], roles=[])
            self._database.command("createUser", f"{name}_user", pwd=PASSWORD, roles=[name])

    def url(self, role: Role) -> str:
        name = urlsplit(self.admin_url).path.strip("/")
        return f"{super().url(role)}".replace("authSource=admin", f"authSource={name}")

    def drop(self) -> None:
        self._client.close()


@contextmanager
def granted(kind: str, server: PostgreSQL | MariaDB | MongoDB) -> Iterator[Granted]:
    """A new database of *server*, with roles and users; both are gone at the end."""
    url = server.create_database()
    made = {"postgresql": OnPostgresql, "mysql": OnMysql, "mongodb": OnMongodb}[kind](url)
    try:
        made.prepare()
        yield made
    finally:
        made.close()
        server.drop_database(url)
