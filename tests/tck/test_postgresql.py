"""PostgreSQL fulfils every contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_classes
from tests.services.postgresql import PostgreSQL
from tests.tck.postgresql import PostgresqlHarness

pytest_plugins = ["ratchet.tck.fixtures"]

globals().update(contract_classes())


@pytest.fixture(scope="module")
def ratchet_harness(postgresql_server: PostgreSQL) -> Iterator[PostgresqlHarness]:
    url = postgresql_server.create_database()
    harness = PostgresqlHarness(url)
    yield harness
    harness.shutdown()
    postgresql_server.drop_database(url)
