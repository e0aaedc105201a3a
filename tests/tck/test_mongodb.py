"""MongoDB fulfils every contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_classes
from tests.services.mongodb import MongoDB
from tests.tck.mongodb import MongodbHarness

pytest_plugins = ["ratchet.tck.fixtures"]

globals().update(contract_classes())


@pytest.fixture(scope="module")
def ratchet_harness(mongodb_server: MongoDB) -> Iterator[MongodbHarness]:
    url = mongodb_server.create_database()
    harness = MongodbHarness(url)
    yield harness
    harness.shutdown()
    mongodb_server.drop_database(url)
