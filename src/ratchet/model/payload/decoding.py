"""JSON text to values."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from ..errors import RatchetError, ResultTruncated, TargetNotAllowed, UnreadablePayload
from ..script import importable_name
from .annotations import ANY, Hint, ParameterTypes, converted, field_hints
from .bounds import READ_LIMIT, SHALLOW, Effort, refuse_size, require_depth
from .class_lookup import AllowType, class_named
from .classes import KINDS, StoredObject, kind_of, require_no_factory
from .envelope import refuse_sealed
from .placeholders import RESULT, RESULTS
from .tagging import CUT, DAMAGED, TAG

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
    limit: int = READ_LIMIT,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """
    The positional and keyword arguments stored in *text*, typed as they were submitted.

    A stored class is restored if *types* mentions it or *allow_type* permits it, else
    `TargetNotAllowed` is raised; with ``strict=False``, for readers that only show the arguments,
    nothing is imported, and a `StoredObject` stands in the place of what cannot be restored.
    Text that was not written by `encode`, or is out of bounds, is an `UnreadablePayload`.
    """
    if len(text) > limit:
        refuse_size(text, limit, "arguments")
    try:
        stored = _read_arguments(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        refuse_sealed(text, "arguments")
        raise UnreadablePayload(f"the stored arguments cannot be read: {error}") from error
    if len(text) >= SHALLOW:
        require_depth(text, stored, "arguments")
    # no tag and nothing to convert: the common case
    if _TAG_TEXT not in text and (types is None or types.trivial):
        return tuple(stored.args), stored.kwargs
    known = types if types is not None else _NO_TYPES
    restorer = _Restorer(known, allow_type, strict, len(text))
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
    text: str,
    *,
    name: str = "value",
    allow_type: AllowType | None = None,
    strict: bool = True,
    limit: int = READ_LIMIT,
) -> Any:
    """The value that `encode_value` stored in *text*, by the rules of `decode`."""
    return _decode_one(text, name, _NO_TYPES, allow_type, strict, limit)


def decode_result(
    text: str | None,
    types: ParameterTypes | None = None,
    *,
    allow_type: AllowType | None = None,
    strict: bool = True,
    limit: int = READ_LIMIT,
) -> Any:
    """
    The result that `encode_result` stored in *text*; None for None.

    *types* are the annotations of the target that returned it. Of a truncated result this is the
    preview, a ``str``.
    """
    if text is None:
        return None
    return _decode_one(text, "result", types if types is not None else _NO_TYPES, allow_type, strict, limit)


def truncation(job_id: UUID, text: str | None, limit: int) -> ResultTruncated:
    """
    The error for the result in *text*, which `encode_result` had to cut.

    *limit* is named where *text* does not say what the limit was: 0.1.0 stored the beginning alone.
    """
    try:
        stored = read_json(text or "null")
    except UnreadablePayload:
        stored = None
    if type(stored) is dict and stored.get(TAG) == CUT:
        return ResultTruncated(job_id, stored.get("size"), stored.get("limit", limit))
    return ResultTruncated(job_id, None, limit)


def read_json(text: str, name: str = "value", limit: int = READ_LIMIT) -> Any:
    """The JSON in *text* as it stands, tags and all; `UnreadablePayload` if it is none, or out of bounds."""
    if len(text) > limit:
        refuse_size(text, limit, name)
    try:
        stored = _read(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadablePayload(f"the stored {name} cannot be read: {error}") from error
    if len(text) >= SHALLOW:
        require_depth(text, stored, name)
    return stored


def _decode_one(
    text: str,
    name: str,
    types: ParameterTypes,
    allow_type: AllowType | None,
    strict: bool,
    limit: int,
) -> Any:
    stored = read_json(text, name, limit)
    if _TAG_TEXT not in text and types.returns.trivial:
        return stored
    refuse_sealed(text, name)
    return _Restorer(types, allow_type, strict, len(text)).restore(stored, types.returns, name)


class _Restorer:
    """Turns JSON with tags back into one value."""

    def __init__(self, types: ParameterTypes, allow_type: AllowType | None, strict: bool, size: int) -> None:
        self._types = types
        self._allow_type = allow_type
        self._strict = strict
        self._effort = Effort(size, strict=strict)

    def restore(self, value: Any, hint: Hint, path: str) -> Any:
        """*value* with its tags and *hint* applied; *path* is what messages call it."""
        try:
            return self._restored(value, hint)
        except RatchetError as error:
            raise type(error)(f"{path}: {error}") from error.__cause__
        except (
            KeyError,
            TypeError,
            ValueError,
            ArithmeticError,
            AttributeError,
            RecursionError,
            OSError,
        ) as error:
            # OSError: the name of a time zone that is a folder of the zone database
            raise UnreadablePayload(f"{path}: the stored value is damaged: {error!r:.300}") from error

    def _restored(self, value: Any, hint: Hint) -> Any:
        kind = type(value)
        if kind is dict and TAG in value:
            return self._tagged(value, hint)
        if hint.json is not None and kind not in hint.json and len(hint.classes) == 1:
            return self._converted(value, hint)
        return self._inside(value, hint)

    def _inside(self, value: Any, hint: Hint) -> Any:
        if type(value) is list:
            self._effort.spend(len(value))
            return [self._restored(item, hint.item(index)) for index, item in enumerate(value)]
        if type(value) is dict:
            self._effort.spend(len(value))
            inner = hint.values or ANY
            keys = hint.keys
            if keys is None or keys.json is None or str in keys.json:
                return {key: self._restored(item, inner) for key, item in value.items()}
            return self._effort.dict_of(
                [(self._restored(key, keys), self._restored(item, inner)) for key, item in value.items()]
            )
        return value

    def _converted(self, value: Any, hint: Hint) -> Any:
        """The plain JSON *value* as the one class that *hint* names, or unchanged if it does not fit."""
        (cls,) = hint.classes
        inside = self._inside(value, hint)
        try:
            if cls in _ARRAYS:
                return self._array(cls, inside) if type(inside) is list else inside
            if kind_of(cls) is None or issubclass(cls, Enum):
                return converted(value, cls)
            if type(value) is dict:
                return self._built(cls, value, named_here=True)
        except UnreadablePayload:
            raise
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
            items = value["v"]
            self._effort.spend(len(items))
            return self._array(
                _BY_NAME[tag], [self._restored(item, hint.item(index)) for index, item in enumerate(items)]
            )
        if tag == "dict":
            keys, inner = hint.keys or ANY, hint.values or ANY
            return self._effort.dict_of(
                [(self._restored(key, keys), self._restored(item, inner)) for key, item in value["v"]]
            )
        if tag == DAMAGED:
            raise UnreadablePayload(str(value["v"]))
        raise UnreadablePayload(
            f"unknown tag {tag!r}; it was written by a newer version of Ratchet, or by something else"
        )

    def _array(self, cls: Any, items: list[Any]) -> Any:
        return tuple(items) if cls is tuple else self._effort.set_of(cls, items)

    def _instance(self, tag: str, value: dict[str, Any], hint: Hint) -> Any:
        if self._strict:
            return self._restored_instance(tag, value, hint)
        try:
            return self._restored_instance(tag, value, hint)
        except UnreadablePayload:
            raise
        except Exception:  # nobody allows it, it is gone or not loaded, or its own code refuses these fields
            return StoredObject(str(value["t"]), self._restored(value["v"], ANY))

    def _restored_instance(self, tag: str, value: dict[str, Any], hint: Hint) -> Any:
        name = value["t"]
        module, _, qualname = name.partition(":")
        cls = self._mentioned(module, qualname, hint)
        named_here = cls is not None
        if cls is None:
            cls = class_named(module, qualname, self._allow_type, importing=self._strict)
        kind = kind_of(cls)
        if kind is None or kind.tag != tag:
            raise TargetNotAllowed(f"{name} is stored as a {tag}, but it is none on this node")
        return self._built(cls, value["v"], named_here=named_here)

    def _built(self, cls: type, parts: Any, *, named_here: bool) -> Any:
        """
        An instance of *cls*; *named_here* says that the target's annotations name the class.

        Only for those a default may be made by calling something: a row must not choose what is called.
        """
        kind = kind_of(cls)
        assert kind is not None
        if not named_here:
            require_no_factory(cls, parts)
        if not kind.by_fields:
            return kind.build(cls, self._restored(parts, ANY))
        hints = field_hints(cls)
        return kind.build(
            cls, {name: self._restored(part, hints.get(name, ANY)) for name, part in parts.items()}
        )

    def _mentioned(self, module: str, qualname: str, hint: Hint) -> type | None:
        """The class, if the annotations of the target mention it."""
        mentioned = self._types.classes.get((importable_name(module), qualname))
        if mentioned is not None:
            return mentioned
        # a class that has moved, or was submitted from a script's __main__
        return next((cls for cls in hint.classes if cls.__qualname__ == qualname), None)


def _in_zone(moment: Any, value: dict[str, Any]) -> Any:
    if "z" in value:
        from zoneinfo import ZoneInfo

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
