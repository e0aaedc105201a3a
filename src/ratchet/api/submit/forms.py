"""
What type checkers know about targets beyond `Callable`.

A method that is passed through its class needs no instance: ``enqueue(Orders.process, 1)``. For a type checker it is a
function whose first argument is left out, and so is ``enqueue(add)`` with a forgotten one. The type of that argument tells
them apart: a plain value is never the instance of a method. `ArgumentMissing` is what such a call returns: a coroutine
that nobody awaits is an error for every type checker, and has no ``submit()``.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

PlainT = TypeVar(
    "PlainT",
    bound=int
    | float
    | complex
    | str
    | bytes
    | date
    | time
    | timedelta
    | Decimal
    | UUID
    | list[Any]
    | dict[Any, Any]
    | tuple[Any, ...]
    | set[Any]
    | frozenset[Any]
    | None,
)


class AnArgumentIsMissing:
    """Read this name in the message of your type checker: the target needs one more argument."""


ArgumentMissing: TypeAlias = Coroutine[Any, Any, AnArgumentIsMissing]
