"""Empty databases of each kind, several in one test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet import ManualClock, Options
from ratchet.stores import open_store
from tests.moves import samples

#: Makes an empty database of a kind; its URL.
MakeUrl = Callable[[str], str]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Every call makes another database; they are dropped at the end."""
    made = 0

    def make(kind: str) -> str:
        nonlocal made
        made += 1
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'jobs-{made}.db'}"
        server = request.getfixturevalue({"mysql": "mariadb_server"}.get(kind, f"{kind}_server"))
        url: str = server.create_database()
        request.addfinalizer(lambda: server.drop_database(url))
        return url

    return make


@pytest.fixture
def filled(make_url: MakeUrl, clock: ManualClock) -> str:
    """The URL of a SQLite store with everything in it."""
    url = make_url("sqlite")
    store = open_store(url, Options())
    samples.fill(store, clock)
    store.close()
    return url
