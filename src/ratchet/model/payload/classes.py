"""
Classes whose instances are stored by name and fields: enums, dataclasses, models.

Instances are rebuilt from their fields, without running ``__init__`` or ``__post_init__`` where
the kind allows it, as ``copy`` would: a ``__post_init__`` that is not idempotent must not run twice.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag
from functools import lru_cache
from typing import Any

import msgspec

from ..errors import InvalidJob, TargetNotAllowed
from ..script import importable_name

#: Bases that have contents of their own beside their fields, which would be lost.
_WITH_CONTENTS = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    list,
    dict,
    set,
    frozenset,
    tuple,
    BaseException,
)
#: What may be called to make the default of a field: nothing of it is anybody's own code.
_PLAIN_FACTORIES = (
    list, dict, set, frozenset, tuple, str, int, float, bool, bytes, bytearray, deque, OrderedDict, Counter, defaultdict
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a reader gets in place of an instance whose class it may not, or cannot, import."""

    type: str
    value: Any

    def __repr__(self) -> str:
        fields = self.value
        if isinstance(fields, dict) and all(isinstance(name, str) and name.isidentifier() for name in fields):
            return f"{self.type}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
        return f"{self.type}({fields!r})"


@dataclass(frozen=True, slots=True)
class ClassKind:
    """
    How the instances of one kind of class are taken apart and built again.

    Where ``by_fields`` is true the parts are a dict of field values, each stored by its own rules;
    otherwise they are JSON of the class's own making.
    """

    tag: str
    take_apart: Callable[[Any], Any]
    build: Callable[[type, Any], Any]
    by_fields: bool = True


@lru_cache(maxsize=4096)
def kind_of(cls: type) -> ClassKind | None:
    """The kind of *cls*, or None if its instances cannot be stored."""
    if issubclass(cls, Enum):
        return ENUM
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make"):
        return NAMEDTUPLE
    if issubclass(cls, _WITH_CONTENTS):
        return None
    if issubclass(cls, msgspec.Struct):
        return STRUCT
    if _is_pydantic(cls):
        return PYDANTIC
    if dataclasses.is_dataclass(cls):
        return DATACLASS
    if isinstance(cls.__dict__.get("__attrs_attrs__"), tuple):
        return ATTRS
    return None


def name_of(cls: type) -> str:
    """The name under which *cls* is stored: ``module:qualname``, for a class of the started script as others import it."""
    return f"{importable_name(cls.__module__)}:{cls.__qualname__}"


def is_importable(cls: type) -> bool:
    """True if the name of *cls* leads back to it."""
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def _is_pydantic(cls: type) -> bool:
    # only a process that has imported pydantic can hold one of its models
    pydantic = sys.modules.get("pydantic")
    model = getattr(pydantic, "BaseModel", None)
    return isinstance(model, type) and issubclass(cls, model) and hasattr(cls, "model_validate_json")


def require_no_factory(cls: type, parts: Any) -> None:
    """Refuse *parts* that lack a field of *cls* whose default is made by code of its own."""
    if not isinstance(parts, Mapping):
        return
    for name, factory in _factories(cls).items():
        if name not in parts:
            raise TargetNotAllowed(
                f"the stored {name_of(cls)} has no field {name!r}, whose default {factory!r:.100} would make; that is called "
                f"only for a class in the target's annotations: annotate the parameter with the class, or give the field "
                f"a plain default"
            )


@lru_cache(maxsize=4096)
def _factories(cls: type) -> Mapping[str, Any]:
    """The fields whose defaults are made by calling something that is not plain."""
    found: dict[str, Any] = {}
    if dataclasses.is_dataclass(cls):
        found = {field.name: field.default_factory for field in dataclasses.fields(cls)}
    elif issubclass(cls, msgspec.Struct):
        found = {field.name: field.default_factory for field in msgspec.structs.fields(cls)}
    elif _is_pydantic(cls):
        found = {
            field.alias or name: field.default_factory or dataclasses.MISSING
            for name, field in cls.model_fields.items()  # type: ignore[attr-defined]  # a pydantic model
        }
    else:
        for field in getattr(cls, "__attrs_attrs__", ()):
            found[field.name] = getattr(field.default, "factory", dataclasses.MISSING)
    none = (dataclasses.MISSING, msgspec.NODEFAULT)
    return {
        name: factory
        for name, factory in found.items()
        if factory not in none and factory not in _PLAIN_FACTORIES
    }


# --- enums ----------------------------------------------------------------------------------------


def _enum_parts(value: Enum) -> Any:
    # a combination of flags has no name of its own
    return value.value if isinstance(value, Flag) else value.name


def _build_enum(cls: Any, parts: Any) -> Any:
    try:
        return cls(parts) if issubclass(cls, Flag) else cls.__members__[parts]
    except (KeyError, ValueError, TypeError):
        raise InvalidJob(
            f"{name_of(cls)} has no member {parts!r}, it has {', '.join(cls.__members__)}; "
            f"keep the old name as an alias until its jobs are done"
        ) from None


# --- records --------------------------------------------------------------------------------------


def _dataclass_parts(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _build_dataclass(cls: Any, parts: Mapping[str, Any]) -> Any:
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        if field.name in parts:
            value = parts[field.name]
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            raise _missing_field(cls, field.name)
        object.__setattr__(made, field.name, value)
    return made


def _attrs_parts(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}


def _build_attrs(cls: Any, parts: Mapping[str, Any]) -> Any:
    made = object.__new__(cls)
    for field in cls.__attrs_attrs__:
        if field.name in parts:
            value = parts[field.name]
        elif hasattr(field.default, "factory"):
            value = field.default.factory(made) if field.default.takes_self else field.default.factory()
        elif repr(field.default) != "NOTHING":
            value = field.default
        else:
            raise _missing_field(cls, field.name)
        object.__setattr__(made, field.name, value)
    return made


def _struct_parts(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _namedtuple_parts(value: Any) -> dict[str, Any]:
    return dict(zip(value._fields, value, strict=True))


def _build_by_keywords(cls: Any, parts: Mapping[str, Any]) -> Any:
    names = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else cls._fields
    try:
        return cls(**{name: parts[name] for name in names if name in parts})
    except TypeError as error:
        raise InvalidJob(f"{name_of(cls)} cannot be built from the stored fields: {error}") from error


def _missing_field(cls: type, name: str) -> InvalidJob:
    return InvalidJob(
        f"the stored {name_of(cls)} has no field {name!r}; a field that is added while jobs are waiting needs a default"
    )


# --- pydantic -------------------------------------------------------------------------------------


def _pydantic_parts(value: Any) -> Any:
    # The model's own JSON, which knows its aliases and special types. It can lose something
    # (SecretStr is masked, a subclass in a field is cut down), so it is read back and compared.
    for by_alias in (True, False):
        try:
            text = value.model_dump_json(round_trip=True, by_alias=by_alias, warnings=False)
            again = type(value).model_validate_json(text)
        except ValueError:
            continue
        if again.__dict__ == value.__dict__ and again.__pydantic_extra__ == value.__pydantic_extra__:
            return msgspec.json.decode(text)
    raise ValueError("does not survive its own model_dump_json() and model_validate_json()")


def _build_pydantic(cls: Any, parts: Any) -> Any:
    try:
        return cls.model_validate_json(msgspec.json.encode(parts))
    except ValueError as error:
        raise InvalidJob(f"{name_of(cls)} refuses the stored fields: {error}") from error


ENUM = ClassKind("enum", _enum_parts, _build_enum, by_fields=False)
DATACLASS = ClassKind("dataclass", _dataclass_parts, _build_dataclass)
ATTRS = ClassKind("attrs", _attrs_parts, _build_attrs)
STRUCT = ClassKind("struct", _struct_parts, _build_by_keywords)
NAMEDTUPLE = ClassKind("namedtuple", _namedtuple_parts, _build_by_keywords)
PYDANTIC = ClassKind("pydantic", _pydantic_parts, _build_pydantic, by_fields=False)

KINDS = {kind.tag: kind for kind in (ENUM, DATACLASS, ATTRS, STRUCT, NAMEDTUPLE, PYDANTIC)}
