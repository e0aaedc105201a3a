"""Expressions: what the symbolic evaluator keeps on its stack instead of values."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import FunctionType
from typing import Any, Final
from uuid import UUID

#: What an f-string may hold: formatting these runs no user code.
_PLAIN: Final = (str, int, float, bool, type(None), Decimal, UUID, date, datetime, time, timedelta)


class Refusal(Exception):
    """Why a lambda cannot be captured."""


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """The one call a lambda consists of; *function* is whatever stood before the parentheses."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Expression:
    """Something on the symbolic stack that has a value for a given lambda."""

    __slots__ = ()

    def value(self, function: FunctionType) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    constant: Any

    def value(self, function: FunctionType) -> Any:
        return self.constant


@dataclass(frozen=True, slots=True)
class Closure(Expression):
    name: str
    index: int

    def value(self, function: FunctionType) -> Any:
        cells = function.__closure__ or ()
        try:
            return cells[self.index].cell_contents
        except ValueError:
            raise Refusal(f"the variable {self.name!r} has no value yet") from None


@dataclass(frozen=True, slots=True)
class Global(Expression):
    name: str

    def value(self, function: FunctionType) -> Any:
        try:
            return function.__globals__[self.name]
        except KeyError:
            pass
        try:
            return getattr(builtins, self.name)
        except AttributeError:
            raise Refusal(f"the name {self.name!r} is not defined") from None


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A parameter, which stands for its default: ``lambda i=i: f(i)`` is how loops bind a value."""

    name: str
    position: int
    keyword_only: bool

    def value(self, function: FunctionType) -> Any:
        if self.keyword_only:
            return (function.__kwdefaults__ or {})[self.name]
        return (function.__defaults__ or ())[self.position]


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    owner: Expression
    name: str

    def value(self, function: FunctionType) -> Any:
        owner = self.owner.value(function)
        try:
            return getattr(owner, self.name)
        except Exception as error:
            raise Refusal(f"reading .{self.name} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Item(Expression):
    owner: Expression
    key: Expression

    def value(self, function: FunctionType) -> Any:
        owner, key = self.owner.value(function), self.key.value(function)
        try:
            return owner[key]
        except Exception as error:
            raise Refusal(f"reading [{key!r}] raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Spread(Expression):
    """``*items`` inside a call or a display."""

    items: Expression

    def value(self, function: FunctionType) -> Any:
        items = self.items.value(function)
        if type(items) not in (tuple, list, set, frozenset):
            raise Refusal(f"* takes a tuple, list or set here, not {type(items).__name__}")
        return items


@dataclass(frozen=True, slots=True)
class Sequence(Expression):
    """A tuple, list or set display."""

    kind: Callable[[Iterable[Any]], Any]
    parts: tuple[Expression, ...]

    def value(self, function: FunctionType) -> Any:
        items: list[Any] = []
        for part in self.parts:
            if isinstance(part, Spread):
                items.extend(part.value(function))
            else:
                items.append(part.value(function))
        return _built(self.kind, items)


@dataclass(frozen=True, slots=True)
class Mapping(Expression):
    """A dict display; a part without a key is ``**mapping``."""

    parts: tuple[tuple[Expression | None, Expression], ...]
    #: The keywords of a call: names, each given once.
    keywords: bool = False

    def value(self, function: FunctionType) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, part in self.parts:
            value = part.value(function)
            if key is not None:
                value = _built(dict, [(key.value(function), value)])
            elif type(value) is not dict:
                raise Refusal(f"** takes a dict here, not {type(value).__name__}")
            if self.keywords:
                _require_new_names(result, value)
            result.update(value)
        return result


@dataclass(frozen=True, slots=True)
class Formatted(Expression):
    """One ``{value!conversion:spec}`` of an f-string."""

    part: Expression
    conversion: Callable[[object], str] | None
    spec: Expression | None = None

    def value(self, function: FunctionType) -> str:
        value = self.part.value(function)
        if type(value) not in _PLAIN:
            raise Refusal(f"an f-string here may hold plain values only, not {type(value).__name__}")
        if self.conversion is not None:
            value = self.conversion(value)
        spec = "" if self.spec is None else self.spec.value(function)
        try:
            return format(value, spec)
        except (ValueError, TypeError) as error:
            raise Refusal(
                f"formatting {value!r} with {spec!r} raised {type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """An f-string."""

    parts: tuple[Expression, ...]

    def value(self, function: FunctionType) -> str:
        return "".join(part.value(function) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """The call itself. It has parts but no value: nothing is called here."""

    function: Expression
    args: Expression
    kwargs: Expression

    def call(self, function: FunctionType) -> CapturedCall:
        args = self.args.value(function)
        return CapturedCall(self.function.value(function), tuple(args), self.kwargs.value(function))


class Null(Expression):
    """The empty slot that the interpreter keeps beside a callable."""

    __slots__ = ()


NULL: Final = Null()
NO_ARGUMENTS: Final = Mapping((), keywords=True)


def _built(kind: Callable[[Any], Any], items: list[Any]) -> Any:
    try:
        return kind(items)
    except TypeError as error:  # an unhashable element or key
        raise Refusal(str(error)) from error


def _require_new_names(present: dict[Any, Any], added: dict[Any, Any]) -> None:
    for name in added:
        if not isinstance(name, str):
            raise Refusal(f"keywords must be strings, not {name!r}")
        if name in present:
            raise Refusal(f"the keyword {name!r} is given twice")
