"""From name to object: what a plain name leads to, through modules and classes only."""

from __future__ import annotations

import inspect
import sys
import types
from dataclasses import dataclass
from typing import Any

from ratchet.api.targets.names import is_function
from ratchet.model.errors import TargetNotFound
from ratchet.model.script import MAIN, importable_name
from ratchet.model.stored_names import classes_along, imported_module


@dataclass(frozen=True, slots=True)
class Found:
    """What a plain name leads to: the entry in the ``__dict__`` of a module or class."""

    entry: Any
    #: The class on which the name was looked up, if any, and the name there.
    holder: type | None
    attribute: str

    @property
    def is_instance_method(self) -> bool:
        """True if it needs an instance to be called on."""
        return self.holder is not None and inspect.isfunction(self.entry)

    @property
    def value(self) -> Any:
        """The function to call; a class method comes bound to the class it was looked up on."""
        if isinstance(self.entry, staticmethod):
            return self.entry.__func__
        if isinstance(self.entry, classmethod):
            return self.entry.__get__(None, self.holder)
        return self.entry

    def is_same(self, target: Any) -> bool:
        """True if *target* is this very function, bound or not."""
        return getattr(self.value, "__func__", self.value) is getattr(target, "__func__", target)

    def origins(self) -> tuple[str, ...]:
        """Where the function and the class around it were really defined."""
        function = getattr(self.value, "__func__", self.value)
        module = importable_name(str(getattr(function, "__module__", None)))
        origins = [f"{module}:{getattr(function, '__qualname__', self.attribute)}"]
        code = getattr(inspect.unwrap(function), "__globals__", {}).get("__name__")
        if isinstance(code, str) and importable_name(code) != module:
            # the function's __module__ was rewritten
            origins.append(f"{importable_name(code)}:{self.attribute}")
        if self.holder is not None:
            origins.append(f"{importable_name(self.holder.__module__)}:{self.holder.__qualname__}")
        return tuple(origins)


def imported(target: str, module: str) -> types.ModuleType:
    """The module of *target*. Importing it runs its code, so ask the policy first."""
    try:
        return imported_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise TargetNotFound(
                f"{target} cannot run here: there is no module {error.name!r} on this node; "
                f"deploy it, or declare the job's new place with @scheduler.job(aliases=[{target!r}])"
            ) from error
        raise _import_failed(target, module, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(target, module, error) from error


def _import_failed(target: str, module: str, error: BaseException) -> TargetNotFound:
    return TargetNotFound(
        f"{target} cannot run here: importing {module!r} raised {type(error).__name__}: {error}; "
        f"see that `python -c 'import {module}'` works on this node"
    )


def find(target: str, module: types.ModuleType, qualname: str) -> Found:
    """The function or method *qualname* of *module*; `TargetNotFound` if it has none."""
    found = _find_in(module, qualname)
    if found is None or not is_function(found.value):
        where = (
            "the script this node was started from"
            if module is sys.modules.get(MAIN)
            else f"module {module.__name__!r}"
        )
        raise TargetNotFound(
            f"{target} cannot run here: {where} has no function or method {qualname!r}; "
            f"deploy the version that has it, or declare its new name with @scheduler.job(aliases=[{target!r}])"
        )
    return found


def find_in_loaded(module: str, qualname: str) -> Found | None:
    """What *qualname* leads to in a module that is already loaded; None if nothing."""
    loaded = sys.modules.get(module)
    return None if loaded is None else _find_in(loaded, qualname)


def _find_in(module: types.ModuleType, qualname: str) -> Found | None:
    *classes, attribute = qualname.split(".")
    holders = classes_along(module, classes)
    if holders is None:
        return None
    if not holders:
        if attribute not in vars(module):
            return None
        return Found(vars(module)[attribute], None, attribute)
    for base in holders[-1].__mro__:
        if attribute in vars(base):
            return Found(vars(base)[attribute], holders[-1], attribute)
    return None
