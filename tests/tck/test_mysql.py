"""MySQL (on MariaDB) fulfils every contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_classes
from tests.services.mariadb import MariaDB
from tests.tck.mysql import MysqlHarness

pytest_plugins = ["ratchet.tck.fixtures"]

globals().update(contract_classes())


@pytest.fixture(scope="module")
def ratchet_harness(mariadb_server: MariaDB) -> Iterator[MysqlHarness]:
    url = mariadb_server.create_database()
    harness = MysqlHarness(url)
    yield harness
    harness.shutdown()
    mariadb_server.drop_database(url)
