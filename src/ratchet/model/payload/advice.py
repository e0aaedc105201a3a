"""What to pass, or to return, instead of a value that cannot be stored."""

from __future__ import annotations

import collections.abc
import io
import os
import threading
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any


def advice_for(value: Any) -> str:
    """The second half of the refusal of *value*."""
    for condition, advice in _ADVICE:
        if condition(value):
            return advice
    return (
        "pass plain values (ids, text, numbers), a dataclass or a pydantic model, and make or load the object "
        "inside the job"
    )


def _is(*classes: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, classes)


def advice_for_result(value: Any) -> str:
    """The second half of the refusal of a result, which holds *value*."""
    for condition, advice in _RESULT_ADVICE:
        if condition(value):
            return advice
    for condition, advice in _ADVICE:
        if condition(value) and advice.startswith("pass "):
            return "return " + advice.removeprefix("pass ")
    return (
        "return plain values (ids, text, numbers), a dataclass or a pydantic model, and keep the object itself "
        "where others find it"
    )


_ADVICE: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (_is(str), "pass str(value)"),
    (_is(int), "pass int(value)"),
    (_is(float), "pass float(value)"),
    (_is(bytes, bytearray, memoryview), "pass bytes(value)"),
    (_is(Decimal), "pass Decimal(value)"),
    (_is(dict, collections.abc.Mapping), "pass dict(value)"),
    (_is(tuple), "pass tuple(value)"),
    (_is(os.PathLike), "pass str(value)"),
    (_is(io.IOBase), "pass the path and open the file inside the job"),
    (
        _is(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, collections.abc.Iterator),
        "it can be used only once and only here: pass list(value)",
    ),
    (
        _is(types.FunctionType, types.BuiltinFunctionType, types.MethodType, type),
        "pass its name, or submit it as the target of a job of its own",
    ),
    (_is(BaseException), "pass str(error)"),
    (
        _is(
            type(threading.Lock()),
            type(threading.RLock()),
            threading.Event,
            threading.Condition,
            threading.Semaphore,
        ),
        "it exists in this process only: make it inside the job",
    ),
    (
        lambda value: hasattr(value, "_sa_instance_state") or hasattr(type(value), "_meta"),
        "pass its primary key and load the row inside the job, where it is current",
    ),
    (_is(list, set, frozenset, collections.abc.Collection), "pass list(value)"),
)

_RESULT_ADVICE: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (_is(io.IOBase), "return the path of the file"),
    (
        _is(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, collections.abc.Iterator),
        "it can be used only once and only here: return list(value)",
    ),
    (_is(types.FunctionType, types.BuiltinFunctionType, types.MethodType, type), "return its name"),
    (
        lambda value: hasattr(value, "_sa_instance_state") or hasattr(type(value), "_meta"),
        "return its primary key, with which others load the row",
    ),
)
