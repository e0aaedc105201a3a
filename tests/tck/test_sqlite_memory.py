"""SQLite in memory fulfils every contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_classes
from tests.tck.sqlite import SqliteMemoryHarness

pytest_plugins = ["ratchet.tck.fixtures"]

globals().update(contract_classes())


@pytest.fixture(scope="module")
def ratchet_harness() -> Iterator[SqliteMemoryHarness]:
    harness = SqliteMemoryHarness()
    yield harness
    harness.shutdown()
