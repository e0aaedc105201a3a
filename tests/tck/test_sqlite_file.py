"""SQLite in a file fulfils every contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_classes
from tests.tck.sqlite import SqliteFileHarness

pytest_plugins = ["ratchet.tck.fixtures"]

globals().update(contract_classes())


@pytest.fixture(scope="module")
def ratchet_harness() -> Iterator[SqliteFileHarness]:
    harness = SqliteFileHarness()
    yield harness
    harness.shutdown()
