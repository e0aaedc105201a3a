"""
Names in the database that lead to code: which are names at all, and what they reach.

Whoever can write to the database can write any name there. A name is therefore a plain one, leads through classes
only, and is read in their own ``__dict__``: ``getattr`` would run descriptors, and passing through an imported module
would reach anything. Whether a name may be followed is asked before, of the target policy.
"""

from __future__ import annotations

import importlib
import re
import sys
import types
from typing import Any, Final

from ratchet.model.script import MAIN, is_script

_NAME: Final = r"[^\W\d]\w*"
#: ``module:qualname``, of plain names only.
STORED: Final = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME}(?:\.{_NAME})*)")


def has_dunder(name: str) -> bool:
    """True if *name* reaches into attributes that belong to Python."""
    module, _, qualname = name.partition(":")
    parts = qualname.split(".") + ([] if module == MAIN else module.split("."))
    return any(part.startswith("__") for part in parts)


def imported_module(module: str) -> types.ModuleType:
    """
    The module of that name; importing it runs its code, so ask the policy first.

    The started script is never imported a second time: its code has run already, as ``__main__``.
    """
    loaded = loaded_script(module)
    # Also for a loaded module: another thread may be in the middle of importing it.
    return importlib.import_module(module) if loaded is None else loaded


def loaded_module(module: str) -> types.ModuleType | None:
    """The module of that name, if it is loaded already."""
    return loaded_script(module) or sys.modules.get(module)


def loaded_script(module: str) -> types.ModuleType | None:
    """The started script, if that is what *module* names."""
    return sys.modules.get(MAIN) if is_script(module) else None


def classes_along(module: types.ModuleType, classes: list[str]) -> list[type] | None:
    """The classes inside one another that these names lead to, outermost first; None if one is no class."""
    holders: list[type] = []
    for name in classes:
        inner: Any = vars(holders[-1] if holders else module).get(name)
        if not isinstance(inner, type):
            return None
        holders.append(inner)
    return holders
