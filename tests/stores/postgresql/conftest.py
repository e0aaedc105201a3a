"""A store on PostgreSQL, in a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.stores.sql.store import SqlStore, open_store


@pytest.fixture
def store(postgresql_url: str) -> Iterator[SqlStore]:
    """Migrated and empty."""
    made = open_store(postgresql_url)
    made.migrate()
    yield made
    made.close()
