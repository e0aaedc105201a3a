"""These tests need no server: one that asks for a server is an error here and belongs into another directory."""

from __future__ import annotations

from typing import NoReturn

import pytest


def _refuse() -> NoReturn:
    pytest.fail(
        "tests/unit runs without a server; a test that needs one belongs into tests/stores or tests/integration",
        pytrace=False,
    )


@pytest.fixture
def postgresql_server() -> None:
    _refuse()


@pytest.fixture
def mariadb_server() -> None:
    _refuse()


@pytest.fixture
def mongodb_server() -> None:
    _refuse()


@pytest.fixture
def redis_server() -> None:
    _refuse()


@pytest.fixture
def pgbouncer_server() -> None:
    _refuse()
