"""All contracts of the kit: found in `ratchet.tck.contracts` and compared with the list in ``contracts.txt``."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.resources import files
from pkgutil import walk_packages

import pytest

from ratchet.tck import contracts as package

_PACKAGE = package.__name__
_MODULES = sorted(module.name for module in walk_packages(package.__path__, f"{_PACKAGE}."))

for _name in _MODULES:
    if _name not in sys.modules:
        # so that a failing contract shows the values it compared
        pytest.register_assert_rewrite(_name)


def contract_classes() -> dict[str, type]:
    """Every contract class by its name; put them into a module's globals, and pytest collects them."""
    found: dict[str, type] = {}
    for name in _MODULES:
        module = import_module(name)
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and value.__name__.startswith("Test")
                and value.__module__ == module.__name__
            ):
                assert value.__name__ not in found, f"two contract classes are called {value.__name__}"
                found[value.__name__] = value
    return found


def contract_name(cls: type, method: str) -> str:
    """The name of a contract in the list: noun, class, method. The file inside a noun's folder is not part of it."""
    noun = cls.__module__.removeprefix(f"{_PACKAGE}.").partition(".")[0]
    return f"{noun}.{cls.__name__}.{method}"


def written_contracts() -> list[str]:
    """The contracts that are in the code, sorted."""
    return sorted(
        contract_name(cls, method)
        for cls in contract_classes().values()
        for method in vars(cls)
        if method.startswith("test_")
    )


def listed_contracts() -> list[str]:
    """The contracts that a store must pass, as ``contracts.txt`` lists them."""
    text = files("ratchet.tck").joinpath("contracts.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def differences() -> list[str]:
    """The differences between the list and the code; empty if they agree."""
    listed, written = listed_contracts(), written_contracts()
    problems = [f"listed but not written: {name}" for name in sorted(set(listed) - set(written))]
    problems += [f"written but not listed: {name}" for name in sorted(set(written) - set(listed))]
    if len(set(listed)) != len(listed):
        problems.append("the list names a contract twice")
    return problems
