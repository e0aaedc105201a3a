"""A small store with jobs in many states, and the command line on it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner, Result

from ratchet.cli.app import app
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from tests.unit.cli import errands


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they need to be: pytest-xdist tells its workers a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    made = Scheduler(url, allow=["tests.unit.cli.errands"], options=Options(concurrency=2))
    made.migrate()
    yield made
    made.close()


@dataclass
class World:
    """Jobs by what became of them."""

    succeeded: UUID
    failed: UUID
    pending: UUID
    paused: UUID
    canceled: UUID


@pytest.fixture
def world(scheduler: Scheduler) -> World:
    """One job in each of five states."""
    later = timedelta(hours=1)
    succeeded = scheduler.enqueue(errands.greet, "ann").with_tags("hello").submit()
    failed = scheduler.enqueue(errands.fail, "broken").with_tags("billing").submit()
    pending = scheduler.schedule(later, errands.greet, "bob").submit()
    paused = scheduler.schedule(later, errands.greet, "cid").submit()
    canceled = scheduler.schedule(later, errands.greet, "dot").submit()
    scheduler.pause_job(paused.id)
    scheduler.cancel_job(canceled.id, reason="not today")
    with scheduler:
        succeeded.wait(timeout=20)
        failed.wait(timeout=20)
    return World(succeeded.id, failed.id, pending.id, paused.id, canceled.id)


class CommandLine:
    """``ratchet`` with a store already named."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = CliRunner()

    def __call__(self, *words: object, code: int = 0) -> Result:
        """Run a command; its exit code must be *code*."""
        result = self._runner.invoke(app, [*(str(word) for word in words), "--url", self._url])
        assert result.exit_code == code, f"{result.exit_code}: {result.output} {result.exception!r}"
        assert errands.SECRET not in result.output
        return result

    def json(self, *words: object, code: int = 0) -> Any:
        """The one JSON document that a command prints."""
        return json.loads(self(*words, "--json", code=code).stdout)


@pytest.fixture
def ratchet(url: str) -> CommandLine:
    return CommandLine(url)


@pytest.fixture
def bare() -> Callable[..., Result]:
    """``ratchet`` as it is, without a store."""

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    return invoke


@pytest.fixture
def reset_logging() -> Iterator[None]:
    """Undo what a command did to the root logger."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
