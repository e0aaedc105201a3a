"""
The ``harness`` fixture that contracts use.

It comes from ``ratchet_harness``, which is made from ``--ratchet-harness``. A test module that runs the
contracts itself sets ``pytest_plugins = ["ratchet.tck.fixtures"]`` and defines its own ``ratchet_harness``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ratchet.tck.harness import Harness, missing_capabilities
from ratchet.tck.steps import START


def load_harness(path: str) -> Harness:
    """The harness that ``pkg.module:Class`` names; modules in the current directory can be imported."""
    module_name, _, class_name = path.partition(":")
    if not class_name:
        raise pytest.UsageError(f"--ratchet-harness is {path!r}; write it as pkg.module:Class")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        cls = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--ratchet-harness {path!r} cannot be imported: {error}") from error
    if not (isinstance(cls, type) and issubclass(cls, Harness)):
        raise pytest.UsageError(f"--ratchet-harness {path!r} is not a subclass of ratchet.tck.Harness")
    return cls()


@pytest.fixture(scope="session")
def ratchet_harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """The harness of the whole run, from ``--ratchet-harness``."""
    path: str | None = request.config.getoption("--ratchet-harness")
    if path is None:
        raise pytest.UsageError("say which store to test: --ratchet-harness pkg.module:Class")
    harness = load_harness(path)
    yield harness
    harness.shutdown()


@pytest.fixture
def harness(ratchet_harness: Harness, request: pytest.FixtureRequest) -> Iterator[Harness]:
    """The store under test, open and empty; skips a contract that needs what the store does not declare."""
    missing = sorted(set(missing_capabilities(ratchet_harness, request.cls, request.function)))
    if missing:
        pytest.skip(f"the store declares no {', '.join(missing)}")
    ratchet_harness.now = START
    ratchet_harness.store = ratchet_harness.open()
    try:
        yield ratchet_harness
    finally:
        ratchet_harness.close()
