"""The tests have a database of their own, which is gone afterwards."""

import os
import tempfile
from collections.abc import Iterator

import pytest

folder = tempfile.TemporaryDirectory()
os.environ.setdefault("EXAMPLE_URL", f"sqlite:///{folder.name}/test.db")


@pytest.fixture(scope="session", autouse=True)
def remove_database() -> Iterator[None]:
    """After the last test."""
    yield
    folder.cleanup()
