"""JSON text to values."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from ..errors import InvalidJob, RatchetError, ResultTruncated, TargetNotAllowed, TargetNotFound
from .annotations import ANY, Hint, ParameterTypes, converted, field_hints
from .classes import KINDS, StoredObject, kind_of
from .placeholders import RESULT, RESULTS
from .tagging import CUT, TAG

#: Says whether the class ``qualname`` of ``module`` may be imported to restore a stored value.
AllowType = Callable[[str, str], bool]

_TAG_TEXT = f'"{TAG}"'
_NO_TYPES = ParameterTypes()


class _Arguments(msgspec.Struct):
    args: list[Any]
    kwargs: dict[str, Any]


_read_arguments = msgspec.json.Decoder(_Arguments).decode
_read = msgspec.json.Decoder().decode


def decode(
    text: str,
    types: ParameterTypes | None = None,
    *,
    allow_type: AllowType | None = None,
    strict: bool = True,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """
    The positional and keyword arguments stored in *text*, typed as they were submitted.

    A stored class is restored if *types* mentions it or *allow_type* permits it, else
    `TargetNotAllowed` is raised; with ``strict=False``, for readers that only show the arguments,
    a `StoredObject` stands in its place. Text that was not written by `encode` is `InvalidJob`.
    """
    try:
        stored = _read_arguments(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidJob(f"the stored arguments cannot be read: {error}") from error
    # no tag and nothing to convert: the common case
    if _TAG_TEXT not in text and (types is None or types.trivial):
        return tuple(stored.args), stored.kwargs
    known = types if types is not None else _NO_TYPES
    restorer = _Restorer(known, allow_type, strict)
    args = tuple(
        restorer.restore(value, known.argument(index), f"args[{index}]")
        for index, value in enumerate(stored.args)
    )
    kwargs = {
        name: restorer.restore(value, known.keyword(name), f"kwargs[{name!r}]")
        for name, value in stored.kwargs.items()
    }
    return args, kwargs


def decode_value(
    text: str, *, name: str = "value", allow_type: AllowType | None = None, strict: bool = True
) -> Any:
    """The value that `encode_value` stored in *text*, by the rules of `decode`."""
    return _decode_one(text, name, _NO_TYPES, allow_type, strict)


def decode_result(
    text: str | None,
    types: ParameterTypes | None = None,
    *,
    allow_type: AllowType | None = None,
    strict: bool = True,
) -> Any:
    """
    The result that `encode_result` stored in *text*; None for None.

    *types* are the annotations of the target that returned it. Of a truncated result this is the
    preview, a ``str``.
    """
    if text is None:
        return None
    return _decode_one(text, "result", types if types is not None else _NO_TYPES, allow_type, strict)


def truncation(job_id: UUID, text: str | None, limit: int) -> ResultTruncated:
    """
    The error for the result in *text*, which `encode_result` had to cut.

    *limit* is named where *text* does not say what the limit was: 0.1.0 stored the beginning alone.
    """
    try:
        stored = _read(text or "null")
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        stored = None
    if type(stored) is dict and stored.get(TAG) == CUT:
        return ResultTruncated(job_id, stored.get("size"), stored.get("limit", limit))
    return ResultTruncated(job_id, None, limit)


def _decode_one(
    text: str, name: str, types: ParameterTypes, allow_type: AllowType | None, strict: bool
) -> Any:
    try:
        stored = _read(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidJob(f"the stored {name} cannot be read: {error}") from error
    if _TAG_TEXT not in text and types.returns.trivial:
        return stored
    return _Restorer(types, allow_type, strict).restore(stored, types.returns, name)


class _Restorer:
    """Turns JSON with tags back into one value."""

    def __init__(self, types: ParameterTypes, allow_type: AllowType | None, strict: bool) -> None:
        self._types = types
        self._allow_type = allow_type
        self._strict = strict

    def restore(self, value: Any, hint: Hint, path: str) -> Any:
        """*value* with its tags and *hint* applied; *path* is what messages call it."""
        try:
            return self._restored(value, hint)
        except RatchetError as error:
            raise type(error)(f"{path}: {error}") from error.__cause__
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise InvalidJob(f"{path}: the stored value is damaged: {error!r}") from error

    def _restored(self, value: Any, hint: Hint) -> Any:
        kind = type(value)
        if kind is dict and TAG in value:
            return self._tagged(value, hint)
        if hint.json is not None and kind not in hint.json and len(hint.classes) == 1:
            return self._converted(value, hint)
        return self._inside(value, hint)

    def _inside(self, value: Any, hint: Hint) -> Any:
        if type(value) is list:
            return [self._restored(item, hint.item(index)) for index, item in enumerate(value)]
        if type(value) is dict:
            inner = hint.values or ANY
            keys = hint.keys
            if keys is None or keys.json is None or str in keys.json:
                return {key: self._restored(item, inner) for key, item in value.items()}
            return {self._restored(key, keys): self._restored(item, inner) for key, item in value.items()}
        return value

    def _converted(self, value: Any, hint: Hint) -> Any:
        """The plain JSON *value* as the one class that *hint* names, or unchanged if it does not fit."""
        (cls,) = hint.classes
        inside = self._inside(value, hint)
        try:
            if cls in _ARRAYS:
                return cls(inside) if type(inside) is list else inside
            if kind_of(cls) is None or issubclass(cls, Enum):
                return converted(value, cls)
            if type(value) is dict:
                return self._built(cls, value)
        except (RatchetError, ValueError, TypeError):
            return inside
        return inside

    # --- tags

    def _tagged(self, value: dict[str, Any], hint: Hint) -> Any:
        tag = value[TAG]
        if tag in KINDS:
            return self._instance(tag, value, hint)
        if tag in _LEAVES:
            return _LEAVES[tag](value)
        if tag in _BY_NAME:
            return _BY_NAME[tag](
                self._restored(item, hint.item(index)) for index, item in enumerate(value["v"])
            )
        if tag == "dict":
            keys, inner = hint.keys or ANY, hint.values or ANY
            return {self._restored(key, keys): self._restored(item, inner) for key, item in value["v"]}
        raise InvalidJob(
            f"unknown tag {tag!r}; it was written by a newer version of Ratchet, or by something else"
        )

    def _instance(self, tag: str, value: dict[str, Any], hint: Hint) -> Any:
        name = value["t"]
        module, _, qualname = name.partition(":")
        try:
            cls = self._class(module, qualname, hint)
        except RatchetError:
            if self._strict:
                raise
            return StoredObject(name, self._restored(value["v"], ANY))
        kind = kind_of(cls)
        if kind is None or kind.tag != tag:
            raise TargetNotAllowed(f"{name} is stored as a {tag}, but it is none on this node")
        return self._built(cls, value["v"])

    def _built(self, cls: type, parts: Any) -> Any:
        kind = kind_of(cls)
        assert kind is not None
        if not kind.by_fields:
            return kind.build(cls, self._restored(parts, ANY))
        hints = field_hints(cls)
        return kind.build(
            cls, {name: self._restored(part, hints.get(name, ANY)) for name, part in parts.items()}
        )

    def _class(self, module: str, qualname: str, hint: Hint) -> type:
        mentioned = self._types.classes.get((module, qualname))
        if mentioned is not None:
            return mentioned
        # a class that has moved, or was submitted from a script's __main__
        for cls in hint.classes:
            if cls.__qualname__ == qualname:
                return cls
        if self._allow_type is None or not self._allow_type(module, qualname):
            raise TargetNotAllowed(
                f"{module}:{qualname} may not be restored here; annotate the parameter with the class, "
                f"or add its module to allow=[{module!r}]"
            )
        return _imported(module, qualname)


def _imported(module: str, qualname: str) -> type:
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise TargetNotFound(
            f"{module}:{qualname} cannot be imported on this node: {error}; deploy it here, or keep the old name "
            f"until its jobs are done"
        ) from error
    if not isinstance(found, type):
        raise TargetNotAllowed(f"{module}:{qualname} is not a class")
    return found


def _in_zone(moment: Any, value: dict[str, Any]) -> Any:
    if "z" in value:
        moment = moment.replace(tzinfo=ZoneInfo(value["z"]))
    return moment.replace(fold=1) if value.get("f") else moment


_ARRAYS = (tuple, set, frozenset)
_BY_NAME: dict[str, Callable[[Any], Any]] = {cls.__name__: cls for cls in _ARRAYS}

_LEAVES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "str": lambda value: value["v"].encode("ascii").decode("unicode_escape"),
    "int": lambda value: int(value["v"], 16),
    "float": lambda value: float(value["v"]),
    "bytes": lambda value: base64.b64decode(value["v"], validate=True),
    "bytearray": lambda value: bytearray(base64.b64decode(value["v"], validate=True)),
    "datetime": lambda value: _in_zone(datetime.fromisoformat(value["v"]), value),
    "date": lambda value: date.fromisoformat(value["v"]),
    "time": lambda value: _in_zone(time.fromisoformat(value["v"]), value),
    "timedelta": lambda value: timedelta(*value["v"]),
    "uuid": lambda value: UUID(value["v"]),
    "decimal": lambda value: Decimal(value["v"]),
    CUT: lambda value: value["v"],
    RESULT.name.lower(): lambda value: RESULT,
    RESULTS.name.lower(): lambda value: RESULTS,
}
