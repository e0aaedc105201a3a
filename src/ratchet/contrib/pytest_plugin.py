"""
Fixtures for tests of applications that use Ratchet.

pytest loads this module wherever Ratchet is installed, so it imports nothing of it before a fixture is asked for. The
ini option ``ratchet_schedulers`` names the schedulers that ``ratchet_isolated`` isolates: ``shop.jobs:scheduler``, one on each line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ratchet.scheduler import Scheduler
    from ratchet.testing import Isolation, ManualClock, ManualScheduler

OPTION = "ratchet_schedulers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option."""
    parser.addini(
        OPTION, "schedulers that ratchet_isolated isolates, as package.module:name", type="linelist"
    )


@pytest.fixture
def ratchet_clock() -> ManualClock:
    """A manual clock."""
    from ratchet.testing import ManualClock

    return ManualClock()


@pytest.fixture
def ratchet_scheduler(ratchet_clock: ManualClock) -> Iterator[ManualScheduler]:
    """A manual scheduler on `ratchet_clock`."""
    from ratchet.testing import manual_scheduler

    scheduler = manual_scheduler(clock=ratchet_clock)
    yield scheduler
    scheduler.close()


@pytest.fixture
def ratchet_isolated(request: pytest.FixtureRequest, ratchet_clock: ManualClock) -> Iterator[Isolation]:
    """The schedulers of the ini option ``ratchet_schedulers``, in memory and on `ratchet_clock`."""
    from ratchet.testing import isolated

    names = request.config.getini(OPTION)
    if not names:
        pytest.fail(f"set the ini option {OPTION} to the schedulers of your application: shop.jobs:scheduler")
    with isolated(*(_scheduler(name) for name in names), clock=ratchet_clock) as isolation:
        yield isolation


def _scheduler(name: str) -> Scheduler:
    """The scheduler that *name* stands for."""
    from importlib import import_module

    from ratchet.scheduler import Scheduler

    module, _, attribute = name.partition(":")
    found = getattr(import_module(module), attribute or "scheduler", None)
    if not isinstance(found, Scheduler):
        pytest.fail(f"{OPTION}: {name} is no scheduler; write package.module:name")
    return found
