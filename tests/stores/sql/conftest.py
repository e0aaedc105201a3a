"""SQL stores for these tests: of each kind in turn, of those that several nodes can open, and of one product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.counting import Statements
from tests.stores.sql_stores import KINDS, SqlSteps, opened


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store of each kind in turn."""
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=["file", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store that several nodes can open."""
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store on PostgreSQL."""
    with opened("postgresql", request, tmp_path) as found:
        yield found


@pytest.fixture
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store on SQLite, in memory."""
    with opened("memory", request, tmp_path) as found:
        yield found


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Counts the statements of a call."""
    return Statements(monkeypatch)
