"""The kinds of store that end-to-end tests run on, in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.model.options import Options
from ratchet.stores import open_store

#: Every test that takes `fresh_url` runs on each of these.
KINDS = ("sqlite", "postgresql", "mysql", "mongodb")

_FIXTURES = {"postgresql": "postgresql_url", "mysql": "mysql_url", "mongodb": "mongodb_url"}


def empty_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty store of this kind, without a schema."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'jobs.db'}"
    url: str = request.getfixturevalue(_FIXTURES[kind])
    return url


def fresh_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty store of this kind, with its schema."""
    url = empty_url(kind, request, folder)
    store = open_store(url, Options())
    store.migrate()
    store.close()
    return url
