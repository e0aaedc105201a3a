"""RESULT and RESULTS: arguments whose value is known only when the job runs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from ..errors import InvalidJob


class Placeholder:
    """Stands in the arguments of a job for a value that its parents will have made."""

    __slots__ = ("name", "stands_for")

    def __init__(self, name: str, stands_for: str) -> None:
        self.name = name
        self.stands_for = stands_for

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        # the global of that name: copies and pickles stay the singleton
        return self.name


#: Stands for the parent's result in the arguments of a chain step or branch.
RESULT: Final = Placeholder("RESULT", "the parent's result")
#: Stands for the list of results of all joined parents.
RESULTS: Final = Placeholder("RESULTS", "the results of the joined jobs")

_ABSENT: Final = object()


def placeholders_in(value: object) -> frozenset[Placeholder]:
    """The placeholders that *value* holds, at any depth."""
    return frozenset(_found(value, ()))


def _found(value: object, above: tuple[int, ...]) -> Iterator[Placeholder]:
    if isinstance(value, Placeholder):
        yield value
        return
    children = _children(value)
    # a structure that holds itself is refused when it is encoded, with its path
    if not children or id(value) in above:
        return
    for child in children:
        yield from _found(child, (*above, id(value)))


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return []


def substitute(value: Any, *, result: object = _ABSENT, results: object = _ABSENT) -> Any:
    """
    *value* with RESULT and RESULTS replaced, at any depth of containers and dataclasses.

    Nothing is changed in place; what holds no placeholder is returned as it is. A placeholder
    without a value is refused as `InvalidJob`.
    """
    if not placeholders_in(value):
        return value
    return _replaced(value, {RESULT: result, RESULTS: results})


def _replaced(value: Any, values: dict[Placeholder, object]) -> Any:
    if isinstance(value, Placeholder):
        found = values[value]
        if found is _ABSENT:
            raise InvalidJob(f"{value!r} stands for {value.stands_for}, but this job has none")
        return found
    if not placeholders_in(value):
        return value
    if isinstance(value, dict):
        return {_replaced(key, values): _replaced(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, values) for item in value]
    if isinstance(value, tuple):
        items = [_replaced(item, values) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    if isinstance(value, set | frozenset):
        return type(value)(_replaced(item, values) for item in value)
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        object.__setattr__(changed, field.name, _replaced(getattr(value, field.name), values))
    return changed
