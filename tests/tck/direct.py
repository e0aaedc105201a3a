"""Contracts called directly, case by case, without a pytest run of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from ratchet.tck.harness import Harness
from ratchet.tck.steps import START

Case = Callable[[Harness], None]


def cases(module: ModuleType) -> Iterator[tuple[str, Case]]:
    """Every case of every contract of a module, by its name."""
    for cls in vars(module).values():
        if isinstance(cls, type) and cls.__name__.startswith("Test") and cls.__module__ == module.__name__:
            for name in vars(cls):
                if name.startswith("test_"):
                    yield from _expanded(f"{cls.__name__}.{name}", getattr(cls(), name))


def _expanded(name: str, method: Any) -> Iterator[tuple[str, Case]]:
    marks = [mark.args for mark in getattr(method, "pytestmark", []) if mark.name == "parametrize"]
    for choice in product(*(list(values) for _, values in marks)):
        arguments: dict[str, Any] = {}
        for (names, _), values in zip(marks, choice, strict=True):
            several = getattr(values, "values", values) if not isinstance(values, dict) else values
            if isinstance(names, str):
                arguments[names] = several[0] if several is not values else values
            else:
                arguments.update(zip(names, several, strict=True))
        yield f"{name}{list(arguments.values()) or ''}", partial(_call, method, arguments)


def _call(method: Any, arguments: dict[str, Any], harness: Harness) -> None:
    harness.now = START
    harness.store = harness.open()
    try:
        method(harness=harness, **arguments)
    finally:
        harness.close()


def first_failure(module: ModuleType, harness: Harness, *, beginning: str = "") -> str | None:
    """The first case that the store does not fulfil, and how; None if it fulfils them all. Those of *beginning* go first."""
    for name, case in sorted(cases(module), key=lambda one: not one[0].startswith(beginning)):
        try:
            case(harness)
        except (Exception, pytest.fail.Exception) as error:
            return f"{name}: {type(error).__name__}: {error}"
    return None
