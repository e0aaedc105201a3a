"""Without its fence no statement passes the fencing contracts: each one is tried, in turn."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import ratchet.stores.sql
from ratchet.tck.contracts import fencing
from tests.services.postgresql import PostgreSQL
from tests.tck.direct import first_failure
from tests.tck.postgresql import PostgresqlHarness
from tests.tck.sqlite import SqliteMemoryHarness

FENCE = re.compile(r"/\* fence \*/(.*?)/\* end fence \*/", re.DOTALL)
PACKAGE = ratchet.stores.sql


def sql_modules() -> list[str]:
    """Every module of the SQL stores."""
    return [info.name for info in walk_packages(PACKAGE.__path__, f"{PACKAGE.__name__}.")]


def fenced_constants() -> Iterator[tuple[str, str]]:
    """Module and name of every SQL constant that has a fence, where it is defined."""
    for module_name in sql_modules():
        module = import_module(module_name)
        for name, value in vars(module).items():
            if (
                name.isupper()
                and isinstance(value, str)
                and FENCE.search(value)
                and _defines(module_name, name)
            ):
                yield module_name, name


def _defines(module_name: str, constant: str) -> bool:
    source = Path(str(sys.modules[module_name].__file__)).read_text()
    return re.search(rf"^{constant}\b.*=", source, re.MULTILINE) is not None


CONSTANTS = sorted(fenced_constants())


@pytest.fixture(scope="module")
def sqlite() -> SqliteMemoryHarness:
    return SqliteMemoryHarness()


@pytest.fixture(scope="module")
def postgresql(postgresql_server: PostgreSQL) -> Iterator[PostgresqlHarness]:
    url = postgresql_server.create_database()
    harness = PostgresqlHarness(url)
    yield harness
    harness.shutdown()
    postgresql_server.drop_database(url)


def strip_fence(monkeypatch: pytest.MonkeyPatch, module_name: str, constant: str) -> None:
    """Let the constant accept any claim, in every module that has imported it."""
    fenced = getattr(sys.modules[module_name], constant)
    # the comparison stays, so that every bind is still used
    stripped = FENCE.sub(lambda found: f"({found.group(1)} OR true)", fenced)
    assert stripped != fenced
    for name in sql_modules():
        module = sys.modules[name]
        for attribute, value in list(vars(module).items()):
            if value is fenced:
                monkeypatch.setattr(module, attribute, stripped)


def fences_in_the_source(module_name: str) -> int:
    """How many fences stand in a module, its docstring aside, which may show what one looks like."""
    source = Path(str(sys.modules[module_name].__file__)).read_text()
    docstring = ast.get_docstring(ast.parse(source), clean=False) or ""
    return len(FENCE.findall(source.replace(docstring, "")))


def test_the_fences_are_found() -> None:
    """There are several, and every fence in the source is one of them."""
    assert len(CONSTANTS) >= 7
    marked = sum(map(fences_in_the_source, sql_modules()))
    assert marked == sum(len(FENCE.findall(getattr(sys.modules[m], name))) for m, name in CONSTANTS)


def test_with_all_fences_the_contracts_hold(
    sqlite: SqliteMemoryHarness, postgresql: PostgresqlHarness
) -> None:
    """Nothing else makes them fail."""
    assert first_failure(fencing, sqlite) is None
    assert first_failure(fencing, postgresql) is None


@pytest.mark.parametrize(("module_name", "constant"), CONSTANTS)
def test_without_this_fence_they_do_not(
    monkeypatch: pytest.MonkeyPatch,
    sqlite: SqliteMemoryHarness,
    request: pytest.FixtureRequest,
    module_name: str,
    constant: str,
) -> None:
    """A fencing contract fails on SQLite or, for a statement that only PostgreSQL runs, on PostgreSQL."""
    strip_fence(monkeypatch, module_name, constant)
    failure = first_failure(fencing, sqlite)
    if failure is None:
        failure = first_failure(fencing, request.getfixturevalue("postgresql"))
    assert failure is not None, f"{module_name}.{constant} without its fence passes every fencing contract"
