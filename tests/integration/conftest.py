"""A scheduler without threads on each kind of store; `tests/support/store_urls.py` lists the kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet import ManualClock
from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.support.store_urls import KINDS, fresh_url


class Stores:
    """Handles on one and the same database: each `open` is another node's."""

    def __init__(self, url: str | None, clock: ManualClock) -> None:
        self.url = url
        self._memory = MemoryStore(clock.now) if url is None else None
        self._opened: list[JobStore] = []

    def open(self) -> JobStore:
        """A handle of its own; in memory there is only one."""
        if self._memory is not None:
            return self._memory
        assert self.url is not None
        self._opened.append(open_store(self.url, Options()))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture(params=("memory", *KINDS))
def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Stores]:
    """An empty store, of each kind in turn."""
    url = None if request.param == "memory" else fresh_url(request.param, request, tmp_path)
    opened = Stores(url, clock)
    yield opened
    opened.close()


@pytest.fixture
def scheduler(stores: Stores, clock: ManualClock) -> Iterator[ManualScheduler]:
    made = ManualScheduler(store=stores.open(), clock=clock)
    yield made
    made.close()
