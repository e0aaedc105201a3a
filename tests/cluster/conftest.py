"""A store that several processes share, and workers on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.scheduler import Scheduler
from tests.cluster.workers import Worker
from tests.support.store_urls import KINDS, fresh_url

StartWorker = Callable[..., Worker]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store with its schema, on each kind of database in turn."""
    return fresh_url(request.param, request, tmp_path)


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """A scheduler that submits and looks on, and runs nothing itself."""
    made = Scheduler(url, allow=["tests.cluster.shop"])
    yield made
    made.close()


@pytest.fixture
def start_worker(url: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers, and ends them whatever happens."""
    workers: list[Worker] = []

    def start(name: str, *arguments: str, **more: Any) -> Worker:
        worker = Worker(url, tmp_path, name, *arguments, **more)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """Where jobs write down what they do."""
    return str(tmp_path / "ledger")
