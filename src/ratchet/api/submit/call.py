"""`call`: a function with its arguments, as one typed value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A target and its arguments; accepted wherever a target is."""

    __slots__ = ("args", "kwargs", "target")

    def __init__(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.target = target
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> R_co:
        """Call the target here and now, as a function without arguments would be."""
        result: R_co = self.target(*self.args, **self.kwargs)
        return result

    def __repr__(self) -> str:
        name = getattr(self.target, "__qualname__", repr(self.target))
        shown = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.kwargs.items())]
        return f"call({', '.join([name, *shown])})"


def call(target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
    """
    ``target(*args, **kwargs)`` as a value, checked by the type checker and not called.

    For verbs that have keywords of their own: ``.when(is_slow, call(flag, order=7), order=1)``.
    """
    return Call(target, args, kwargs)
