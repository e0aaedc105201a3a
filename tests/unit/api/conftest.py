"""A scheduler on a manual clock; modules that are written, imported and forgotten by a test."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ratchet import ManualClock
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.unit.api.target_samples import ShopMaker


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[ManualScheduler]:
    """A scheduler in memory."""
    made = manual_scheduler(clock=clock)
    yield made
    made.close()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable directory whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def shop(package: Path) -> ShopMaker:
    """Writes the module ``shopjobs``, and imports it unless told otherwise."""

    def make(source: str, *, load: bool = True) -> ModuleType:
        (package / "shopjobs.py").write_text(textwrap.dedent(source))
        return __import__("shopjobs") if load else ModuleType("not loaded")

    return make
