"""A scheduler on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet import Options, Scheduler
from tests.support.store_urls import KINDS, fresh_url


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, on each kind of database in turn."""
    return fresh_url(request.param, request, tmp_path)


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """A scheduler that is not running yet."""
    made = Scheduler(url, allow=["tests.lifecycle"], options=Options(concurrency=8))
    yield made
    made.close()
