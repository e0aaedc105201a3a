"""What differs between databases is known in `stores` alone: no module above it names a product in its code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ratchet

SOURCE = Path(ratchet.__file__).parent
#: What is not above `stores`: `model` reads URLs and has the names of options, the kit stands apart, and `contrib`
#: brings together what other people's packages call by name.
ELSEWHERE = ("model", "stores", "tck", "contrib")
PRODUCT = re.compile(r"sqlite|postgres|psycopg|mysql|mariadb|mongo", re.IGNORECASE)


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """
    Where code names a product: in an identifier, an import, or text that a program reads.

    Text with a space in it is for people: docstrings, help and advice may name what they explain. Comments are not code.
    """
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = [] if " " in node.value.strip() else [node.value]
        elif isinstance(node, ast.Name):
            words = [node.id]
        elif isinstance(node, ast.Attribute):
            words = [node.attr]
        elif isinstance(node, ast.arg | ast.keyword):
            words = [node.arg or ""]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = [node.name]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            words = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
        yield from ((node.lineno, word) for word in words if PRODUCT.search(word))


def modules() -> list[Path]:
    return [
        path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in ELSEWHERE
    ]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_above_the_stores_names_a_product(path: Path) -> None:
    """Ask a store what it can do (`Capabilities`), or give it an operation; do not ask which one it is."""
    tree = ast.parse(path.read_text())
    found = [f"{path.relative_to(SOURCE)}:{line}: {word}" for line, word in named(tree)]
    assert not found, "\n".join(found)


def test_the_rule_sees_what_it_is_for() -> None:
    """Identifiers, comparisons and URLs are seen; a sentence is not."""
    seen = "if store.name == 'sqlite': open(f'sqlite:///{x}')\nimport pymongo\ndef for_mysql(): 'On MySQL: nothing'"
    assert {word for _, word in named(ast.parse(seen))} == {"for_mysql", "sqlite", "pymongo", "sqlite:///"}
