"""From object to name: whether a function or method can be stored, and the plain name a worker would import."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ratchet.api.submit.capture import is_lambda
from ratchet.model.errors import InvalidTarget
from ratchet.model.script import importable_name
from ratchet.model.stored_names import STORED, has_dunder

#: The longest name a store keeps.
NAME_LIMIT: Final = 500
#: Where a qualified name passes through the inside of a function.
LOCALS: Final = "<locals>"
_BUILTINS: Final = (types.BuiltinFunctionType, types.BuiltinMethodType)


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A target of which only the name is known here; it runs in a thread, with the defaults of a plain function."""

    name: str

    @classmethod
    def of(cls, name: str) -> NamedTarget:
        """*name* as a target, if it can be one: ``module:function``, or a name given with ``@scheduler.job(name=…)``."""
        if not isinstance(name, str) or not name.strip():
            raise InvalidTarget(f"{_shown(name)} is not the name of a job; write 'shop.jobs:charge'")
        if len(name) > NAME_LIMIT:
            raise InvalidTarget(
                f"{name[:60]}… is longer than {NAME_LIMIT} characters; no job has such a name"
            )
        if not name.isprintable() or (":" in name and (not STORED.fullmatch(name) or has_dunder(name))):
            raise InvalidTarget(
                f"{_shown(name)} is not the name of a job; write module and function, such as 'shop.jobs:charge'"
            )
        return cls(name)

    def __repr__(self) -> str:
        return self.name


def default_name(function: Callable[..., Any]) -> str:
    """The name under which *function* is stored unless it is declared with another."""
    return f"{importable_name(function.__module__)}:{function.__qualname__}"


def cache_key(target: Any) -> object:
    """What equal targets have in common: Python makes a new bound method at each lookup."""
    if inspect.ismethod(target):
        owner = target.__self__
        return (owner if isinstance(owner, type) else type(owner), target.__func__, isinstance(owner, type))
    return target


def require_storable(target: Any) -> None:
    """Refuse everything but a function or method that has a name, showing the form that works."""
    if isinstance(target, functools.partial):
        inner = getattr(target.func, "__qualname__", "function")
        raise InvalidTarget(
            f"functools.partial cannot be stored; pass function and arguments: enqueue({inner}, …) "
            f"or enqueue(lambda: {inner}(…))"
        )
    if isinstance(target, type):
        raise InvalidTarget(
            f"{target.__qualname__} is a class; pass one of its methods, enqueue({target.__qualname__}.method, …), "
            f"or a function that makes the instance"
        )
    if inspect.iscoroutine(target):
        target.close()  # it will not run; say so once, not again as a "never awaited" warning
        raise InvalidTarget(
            f"{target.__qualname__}(…) was already called; pass the function and its arguments: "
            f"enqueue({target.__qualname__}, …)"
        )
    if is_lambda(target):
        raise InvalidTarget(
            "a lambda can be a target only as a direct argument and as one call, enqueue(lambda: orders.process(order_id)); "
            "write a function at module level here"
        )
    if not is_function(target):
        kind = type(target).__qualname__
        hint = (
            f"it is an object of class {kind}; pass a function or a named method: enqueue({kind}.method, …)"
            if callable(target)
            else "it cannot be called; did you call the function? Write enqueue(function, argument)"
        )
        raise InvalidTarget(f"{_shown(target)} cannot become a job: {hint}")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidTarget(
            f"{target.__qualname__} yields, so calling it runs nothing; write a function that consumes it"
        )


def is_function(target: object) -> bool:
    """True for functions and methods, also those written in C."""
    return inspect.isfunction(target) or inspect.ismethod(target) or isinstance(target, _BUILTINS)


def address(target: Any) -> tuple[str, str]:
    """Module and qualified name of a function or method."""
    if inspect.ismethod(target):
        owner = target.__self__ if isinstance(target.__self__, type) else type(target.__self__)
        return owner.__module__, f"{owner.__qualname__}.{target.__name__}"
    module = getattr(target, "__module__", None)
    receiver = getattr(target, "__self__", None)
    if not isinstance(module, str) or (receiver is not None and not isinstance(receiver, types.ModuleType)):
        raise InvalidTarget(
            f"{_shown(target)} is a method of a built-in object; write a function at module level that calls it"
        )
    return module, target.__qualname__


def require_plain(name: str, target: Any) -> None:
    """Refuse a name that no worker could import, showing the form that works."""
    if LOCALS in name:
        raise InvalidTarget(
            f"{name} is defined inside a function, where no worker can find it; move it to module level, "
            f"pass what it needs as arguments: enqueue({target.__name__}, …), or declare it with @scheduler.job"
        )
    if not STORED.fullmatch(name) or has_dunder(name):
        raise InvalidTarget(
            f"{name} is not a plain name that a worker could import; write a function around it"
        )
    if len(name) > NAME_LIMIT:
        raise InvalidTarget(
            f"{name[:60]}… is longer than {NAME_LIMIT} characters; declare it with @scheduler.job(name=…)"
        )


def _shown(target: object) -> str:
    try:
        text = repr(target)
    except Exception:  # a user's __repr__ may raise; the refusal matters more
        text = f"an object of class {type(target).__qualname__}"
    return text if len(text) <= 120 else text[:119] + "…"
