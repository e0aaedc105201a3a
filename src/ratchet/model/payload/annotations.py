"""
What a target's annotations say about its arguments.

Annotations do two things when arguments are read back: the classes they mention may be restored
without asking a policy, and a plain JSON value (written by another program, or by an older
version of this one) becomes the type they name. A value that fits no annotation stays as it is:
annotations are hints, in Python and here.
"""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from ..script import importable_name
from .classes import kind_of

_JSON = {str: (str,), int: (int,), float: (float, int), bool: (bool,), type(None): (type(None),)}
_CONVERTIBLE = (datetime, date, time, timedelta, UUID, Decimal, bytes, bytearray, tuple, set, frozenset)
_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_ARRAYS = (tuple, set, frozenset, collections.abc.Set)


@dataclass(frozen=True, slots=True)
class Hint:
    """One annotation, reduced to what reading a JSON value back needs to know."""

    #: JSON types that are right as they are; None where everything is.
    json: frozenset[type] | None = None
    #: Classes that the annotation names here, other than JSON's own.
    classes: tuple[type, ...] = ()
    #: The annotations of what is inside: list items (fixed positions for a tuple), keys, values.
    items: tuple[Hint, ...] = ()
    repeated: bool = True
    keys: Hint | None = None
    values: Hint | None = None

    @property
    def trivial(self) -> bool:
        """True if no JSON value would be changed by this annotation."""
        inside = (*self.items, self.keys, self.values)
        return not self.classes and all(hint is None or hint.trivial for hint in inside)

    def item(self, index: int) -> Hint:
        """The annotation of the list item at *index*."""
        if self.repeated:
            return self.items[0] if self.items else ANY
        return self.items[index] if index < len(self.items) else ANY


ANY = Hint()


@dataclass(frozen=True, slots=True)
class ParameterTypes:
    """The annotations of one target, ready for `decode`."""

    positional: tuple[Hint, ...] = ()
    rest: Hint = ANY
    named: Mapping[str, Hint] = field(default_factory=dict)
    named_rest: Hint = ANY
    returns: Hint = ANY
    #: Every class the annotations mention, directly or in the fields of another, by its name.
    classes: Mapping[tuple[str, str], type] = field(default_factory=dict)
    trivial: bool = True

    @staticmethod
    def of(target: Callable[..., Any], *, skip_first: bool = False) -> ParameterTypes:
        """
        The annotations of *target*; with ``skip_first`` without its first parameter.

        Skip it for a function taken from a class, whose instance is not among the stored
        arguments. Annotations that cannot be resolved count as ``Any``. Answers are cached.
        """
        return _parameter_types(target, skip_first)

    def argument(self, index: int) -> Hint:
        return self.positional[index] if index < len(self.positional) else self.rest

    def keyword(self, name: str) -> Hint:
        return self.named.get(name, self.named_rest)


@lru_cache(maxsize=4096)
def _parameter_types(target: Callable[..., Any], skip_first: bool) -> ParameterTypes:
    try:
        parameters = list(inspect.signature(target).parameters.values())[1 if skip_first else 0 :]
    except (TypeError, ValueError, NameError):  # some builtins have no signature; 3.14 evaluates late
        return ParameterTypes()
    found = annotations_of(inspect.unwrap(getattr(target, "__func__", target)))
    hints = {name: hint_for(annotation) for name, annotation in found.items()}
    positional: list[Hint] = []
    named: dict[str, Hint] = {}
    rest = named_rest = ANY
    for parameter in parameters:
        hint = hints.get(parameter.name, ANY)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = hint
        elif parameter.kind is parameter.VAR_KEYWORD:
            named_rest = hint
        else:
            if parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append(hint)
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                named[parameter.name] = hint
    classes: dict[tuple[str, str], type] = {}
    for annotation in found.values():
        _collect(annotation, classes)
    everything = (*positional, rest, *named.values(), named_rest)
    return ParameterTypes(
        positional=tuple(positional),
        rest=rest,
        named=named,
        named_rest=named_rest,
        returns=hints.get("return", ANY),
        classes=classes,
        trivial=all(hint.trivial for hint in everything),
    )


# --- resolving ------------------------------------------------------------------------------------


def annotations_of(owner: Any) -> dict[str, Any]:
    """
    The annotations of a function or class that can be resolved; the others are left out.

    One name that exists only for type checkers must not cost the other parameters theirs.
    """
    try:
        return typing.get_type_hints(owner)
    except Exception:
        return dict(_one_by_one(owner))


def _one_by_one(owner: Any) -> Iterator[tuple[str, Any]]:
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    names = {**vars(module)} if module else {}
    bases = reversed(owner.__mro__) if isinstance(owner, type) else (owner,)
    for base in bases:
        for name, annotation in _raw_annotations(base).items():
            single = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                yield name, typing.get_type_hints(single, globalns=names)[name]
            except Exception:
                continue


def _raw_annotations(owner: Any) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(owner, format=annotationlib.Format.FORWARDREF)
    else:
        return inspect.get_annotations(owner)


# --- reducing -------------------------------------------------------------------------------------


def hint_for(annotation: Any) -> Hint:
    """*annotation* reduced to a `Hint`; `ANY` for what this module does not know."""
    try:
        return _hint_for(annotation)
    except (TypeError, RecursionError):  # unhashable, or an alias that contains itself
        return ANY


@lru_cache(maxsize=4096)
def _hint_for(annotation: Any) -> Hint:
    annotation = _unwrapped(annotation)
    if annotation is None:
        annotation = type(None)
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union([_hint_for(option) for option in arguments])
    if not isinstance(origin, type):
        return ANY
    if origin in _JSON:
        return Hint(json=frozenset(_JSON[origin]))
    if origin in _LISTS:
        return Hint(json=frozenset((list,)), items=tuple(_hint_for(a) for a in arguments[:1]))
    if origin in _MAPPINGS and len(arguments) == 2:
        key, value = arguments
        return Hint(json=frozenset((dict,)), keys=_hint_for(key), values=_hint_for(value))
    if origin in _MAPPINGS or typing.is_typeddict(origin):
        return Hint(json=frozenset((dict,)))
    if origin in _ARRAYS:
        named = (set if origin is collections.abc.Set else origin,)
        repeated = origin is not tuple or (len(arguments) == 2 and arguments[1] is ...)
        items = tuple(_hint_for(a) for a in arguments if a is not ...)
        return Hint(json=frozenset(), classes=named, items=items, repeated=repeated or not items)
    if origin in _CONVERTIBLE or kind_of(origin) is not None:
        return Hint(json=frozenset(), classes=(origin,))
    return ANY


def _union(options: list[Hint]) -> Hint:
    json: frozenset[type] | None = frozenset()
    for option in options:
        json = None if json is None or option.json is None else json | option.json
    items = [option for option in options if option.items]
    mappings = [option for option in options if option.values is not None]
    return Hint(
        json=json,
        classes=tuple(dict.fromkeys(cls for option in options for cls in option.classes)),
        # two alternatives with contents cannot be told apart by looking at a list or a dict
        items=items[0].items if len(items) == 1 else (),
        repeated=items[0].repeated if len(items) == 1 else True,
        keys=mappings[0].keys if len(mappings) == 1 else None,
        values=mappings[0].values if len(mappings) == 1 else None,
    )


def _unwrapped(annotation: Any) -> Any:
    """*annotation* without Annotated, NewType, `type` aliases and Final."""
    while True:
        origin = typing.get_origin(annotation)
        if origin in (typing.Annotated, typing.Final, typing.Required, typing.NotRequired):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif type(origin).__name__ == "TypeAliasType":
            annotation = origin.__value__
        else:
            return annotation


def _collect(annotation: Any, into: dict[tuple[str, str], type]) -> None:
    annotation = _unwrapped(annotation)
    for argument in typing.get_args(annotation):
        _collect(argument, into)
    origin = typing.get_origin(annotation) or annotation
    if not isinstance(origin, type):
        return
    name = (importable_name(origin.__module__), origin.__qualname__)
    if name in into or not (kind_of(origin) is not None or typing.is_typeddict(origin)):
        return
    into[name] = origin
    for inner in annotations_of(origin).values():
        _collect(inner, into)


@lru_cache(maxsize=4096)
def field_hints(cls: type) -> Mapping[str, Hint]:
    """The annotations of the fields of *cls*, by name."""
    return {name: hint_for(annotation) for name, annotation in annotations_of(cls).items()}


def converted(value: Any, cls: type) -> Any:
    """The JSON *value* as a *cls*, for the types that have one common JSON form; else `ValueError`."""
    return msgspec.convert(value, cls)
