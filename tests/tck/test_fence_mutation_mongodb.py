"""
Without its fence no change of a run passes the fencing contracts on MongoDB: each one is tried, in turn.

A line that ends with ``# fence`` compares a claim's token: in a filter that the server compares, or in a rule
about a document of the transaction's snapshot. Here each is rebuilt without the comparison.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import pytest

import ratchet.stores.memory
import ratchet.stores.mongo
from ratchet.tck.contracts import fencing
from tests.services.mongodb import MongoDB
from tests.tck.direct import first_failure
from tests.tck.mongodb import MongodbHarness

MARK = "# fence"
TOKENS = ("claim_id", "token")

Definition = ast.FunctionDef | ast.ClassDef


def modules() -> list[ModuleType]:
    """The modules of the MongoDB store, and those whose rules it follows."""
    packages = (ratchet.stores.mongo, ratchet.stores.memory)
    return [
        import_module(info.name)
        for package in packages
        for info in walk_packages(package.__path__, f"{package.__name__}.")
    ]


def source_of(module: ModuleType) -> str:
    """A module's text."""
    return Path(str(module.__file__)).read_text()


def fences() -> Iterator[tuple[str, int]]:
    """Module and line of each fence."""
    for module in modules():
        for number, line in enumerate(source_of(module).splitlines(), 1):
            if line.endswith(MARK):
                yield module.__name__, number


#: Named by their order in the module, so that the names of the tests do not change with every line.
FENCES = [
    pytest.param(name, line, id=f"{name.removeprefix('ratchet.stores.')}-{order}")
    for order, (name, line) in enumerate(fences(), 1)
]


class _Without(ast.NodeTransformer):
    """Takes the comparison of the token out of one line."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.removed = 0

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        kept = [pair for pair in zip(node.keys, node.values, strict=True) if not self._is_token(pair[0])]
        node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        return node

    def _is_token(self, key: ast.expr | None) -> bool:
        if not isinstance(key, ast.Constant) or key.lineno != self.line:
            return False
        found = str(key.value).rpartition(".")[2] in TOKENS
        self.removed += found
        return found

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if node.lineno != self.line or not any(token in ast.unparse(node) for token in TOKENS):
            return node
        self.removed += 1
        return ast.copy_location(ast.Constant(value=isinstance(node.ops[0], ast.Eq | ast.In)), node)


def strip_fence(monkeypatch: pytest.MonkeyPatch, module_name: str, line: int) -> None:
    """Rebuild the function around this line without its fence, and put it everywhere the old one is used."""
    module = sys.modules[module_name]
    owner, definition = _around(ast.parse(source_of(module)), line)
    without = _Without(line)
    changed = ast.fix_missing_locations(ast.Module(body=[without.visit(definition)], type_ignores=[]))
    assert without.removed == 1
    code = compile(
        changed, f"{module_name} without its fence", "exec", dont_inherit=True, flags=_annotations()
    )
    made: dict[str, Any] = {}
    exec(code, vars(module), made)  # in the module's own names, where nothing is left of it
    function = made[definition.name]
    if owner is not None:
        monkeypatch.setattr(vars(module)[owner], definition.name, function)
        return
    old = vars(module)[definition.name]
    for each in modules():
        for attribute, value in list(vars(each).items()):
            if value is old:
                monkeypatch.setattr(each, attribute, function)


def _annotations() -> int:
    import __future__

    return __future__.annotations.compiler_flag


def _around(tree: ast.Module, line: int) -> tuple[str | None, ast.FunctionDef]:
    """The class, if any, and the function that a line is in."""
    (outer,) = (
        node
        for node in tree.body
        if isinstance(node, Definition) and node.lineno <= line <= (node.end_lineno or 0)
    )
    if isinstance(outer, ast.FunctionDef):
        return None, outer
    (method,) = (
        node
        for node in outer.body
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    )
    return outer.name, method


@pytest.fixture(scope="module")
def mongodb(mongodb_server: MongoDB) -> Iterator[MongodbHarness]:
    url = mongodb_server.create_database()
    harness = MongodbHarness(url)
    yield harness
    harness.shutdown()
    mongodb_server.drop_database(url)


def test_the_fences_are_found() -> None:
    """The rules' own, and those of the statements that go without a transaction."""
    found = [name for name, _ in fences()]
    assert found.count("ratchet.stores.memory.completion") == 1
    assert {"ratchet.stores.mongo.transitions", "ratchet.stores.mongo.permits"} <= set(found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("module_name", "line"), FENCES)
def test_without_this_fence_the_contracts_do_not_hold(
    monkeypatch: pytest.MonkeyPatch, mongodb: MongodbHarness, module_name: str, line: int
) -> None:
    """A fencing contract fails; with all fences they hold, as the conformance tests of the store say."""
    strip_fence(monkeypatch, module_name, line)
    # the shortest ones first: they fail for what the others never come to
    failure = first_failure(fencing, mongodb, beginning="TestSettleFence")
    assert failure is not None, f"{module_name}:{line} without its fence passes every fencing contract"
