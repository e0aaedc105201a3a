"""Fixtures every test may use. A server starts when the first test asks for it (see tests/services)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.services.scratch import Scratch
from tests.services.shared import RUN_DIRECTORY, SharedServers
from tests.support.durations import Durations

if TYPE_CHECKING:
    from tests.services.mariadb import MariaDB
    from tests.services.mongodb import MongoDB
    from tests.services.pgbouncer import PgBouncer
    from tests.services.postgresql import PostgreSQL
    from tests.services.redis import Redis

# How long one example takes says something about the machine only, which may be busy with other tests.
settings.register_profile("ratchet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ratchet")

RUN = pytest.StashKey[SharedServers]()
SCRATCH = pytest.StashKey[Scratch | None]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations())
    if RUN_DIRECTORY not in os.environ:  # xdist's workers inherit it from the process that owns the servers
        config.stash[SCRATCH] = Scratch.begin()
        config.stash[RUN] = SharedServers.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if servers := config.stash.get(RUN, None):
        servers.end()
    if scratch := config.stash.get(SCRATCH, None):
        scratch.end()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with servers ask on the loop what came of it, as no application should; unit tests must not need to."""
    for item in items:
        if "unit" not in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore::ratchet.BlocksEventLoopWarning"))


@pytest.fixture(scope="session")
def postgresql_server() -> PostgreSQL:
    return SharedServers.current().get("postgresql")


@pytest.fixture(scope="session")
def mariadb_server() -> MariaDB:
    return SharedServers.current().get("mariadb")


@pytest.fixture(scope="session")
def mongodb_server() -> MongoDB:
    return SharedServers.current().get("mongodb")


@pytest.fixture(scope="session")
def redis_server() -> Redis:
    return SharedServers.current().get("redis")


@pytest.fixture(scope="session")
def pgbouncer_server(postgresql_server: PostgreSQL) -> PgBouncer:
    return SharedServers.current().get("pgbouncer", upstream=postgresql_server.url)


@pytest.fixture
def postgresql_url(postgresql_server: PostgreSQL) -> Iterator[str]:
    """A new, empty PostgreSQL database."""
    url = postgresql_server.create_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
def pgbouncer_url(pgbouncer_server: PgBouncer) -> Iterator[str]:
    """A new, empty PostgreSQL database, seen through PgBouncer in transaction mode."""
    url = pgbouncer_server.create_database()
    yield url
    pgbouncer_server.drop_database(url)


@pytest.fixture
def mysql_url(mariadb_server: MariaDB) -> Iterator[str]:
    """A new, empty MariaDB database."""
    url = mariadb_server.create_database()
    yield url
    mariadb_server.drop_database(url)


@pytest.fixture
def mongodb_url(mongodb_server: MongoDB) -> Iterator[str]:
    """A new, empty database of a MongoDB replica set."""
    url = mongodb_server.create_database()
    yield url
    mongodb_server.drop_database(url)


@pytest.fixture
def redis_url(redis_server: Redis) -> Iterator[str]:
    """A new, empty Redis database; its channels are shared with all the others."""
    url = redis_server.create_database()
    yield url
    redis_server.drop_database(url)
