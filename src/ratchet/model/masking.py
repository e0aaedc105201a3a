"""
Masking: which values people do not see. Code gets them.

A path names an argument, a param, or ``result``, and may go on into it: ``card``, ``customer.card``, ``*.card`` (anywhere in any of them), ``*``
(all arguments). The paths of a job are stored with it, so that a process without its code, such as a command line with nothing but a
URL, knows them too.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ratchet.model.errors import ConfigurationError, InvalidJob, UnreadablePayload
from ratchet.model.payload import StoredObject, read_json
from ratchet.model.payload.tagging import TAG

logger = logging.getLogger("ratchet")

#: What people see instead of a value.
MASK: Final = "•••"
#: The param that keeps the paths of a job; reserved, like all that begin with ``ratchet:``.
MASKED_PARAM: Final = "ratchet:masked"
#: The path of everything that a job is called with.
EVERYTHING: Final = "*"
RESULT_PATH: Final = "result"
#: Shorter texts are not looked for in messages: they would be found everywhere.
SHORTEST_HIDDEN: Final = 4
_MOST_HIDDEN: Final = 100
_DEEPEST: Final = 50


#: Paths for the jobs of all targets, or a function that is given the name of a target and returns them.
MaskingRule: TypeAlias = Sequence[str] | Callable[[str], Iterable[str]]


class Masking:
    """The policy of a scheduler: paths that are masked in the jobs of all targets, or a function that says which, for a target."""

    def __init__(self, given: MaskingRule) -> None:
        self._of_target = given if callable(given) else None
        self._paths = () if callable(given) else checked_paths(given, "masking")

    def paths(self, target: str) -> tuple[str, ...]:
        """The paths for the jobs of *target*; if the policy fails, all of their arguments."""
        if self._of_target is None:
            return self._paths
        try:
            return checked_paths(self._of_target(target), "masking")
        except Exception as error:
            logger.warning(
                "masking failed for %s, so all its arguments are masked: %s", target, type(error).__name__
            )
            return (EVERYTHING, RESULT_PATH)


def checked_paths(given: Any, name: str) -> tuple[str, ...]:
    """*given* as paths; `ConfigurationError` if it is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{name} is a list of names and paths, such as ['card', 'customer.iban'], not {type(given).__name__}"
        )
    found = tuple(given)
    for path in found:
        if not isinstance(path, str) or not path or len(path) > 255 or not all(path.split(".")):
            raise ConfigurationError(
                f"{name} has a path that is none: write 'card', 'customer.card' or '*.card'"
            )
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def stored_paths(
    function: Callable[..., Any], paths: tuple[str, ...], skip_self: bool = False
) -> tuple[str, ...]:
    """*paths*, each also by the position of its parameter: arguments are stored as they were given."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return paths
    if skip_self or (
        parameters and parameters[0].name == "self" and "." in getattr(function, "__qualname__", "")
    ):
        parameters = parameters[1:]
    found = list(paths)
    for position, parameter in enumerate(parameters):
        more = "+" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
        for path in paths:
            first, dot, rest = path.partition(".")
            if first == parameter.name and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                found.append(f"{position}{more}{dot}{rest}")
    return tuple(dict.fromkeys(found))


def require_parameters(function: Callable[..., Any], paths: tuple[str, ...]) -> None:
    """`InvalidJob` if a path begins with the name of no parameter: a mask that hides nothing is worse than none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    for path in paths:
        first = path.partition(".")[0]
        if first not in parameters and first not in (EVERYTHING, RESULT_PATH):
            raise InvalidJob(
                f"masked names {first!r}, but {function.__qualname__} has no such parameter; it has "
                f"{', '.join(parameters) or 'none'}"
            )


def stored_masks(params: str | None) -> tuple[str, ...]:
    """The paths that are stored with a job, in its params."""
    if params is None or MASKED_PARAM not in params:
        return ()
    try:
        kept = read_json(params, "params")
    except UnreadablePayload:
        return ()
    if isinstance(kept, dict) and TAG in kept:  # params of which one is named like a tag
        kept = dict(pair for pair in kept.get("v", ()) if isinstance(pair[0], str))
    found = kept.get(MASKED_PARAM) if isinstance(kept, dict) else None
    return tuple(path for path in found if isinstance(path, str)) if isinstance(found, list) else ()


# --- showing --------------------------------------------------------------------------------------


def masked_arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], paths: Iterable[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as people see them."""
    shown, named = list(args), dict(kwargs)
    for path in paths:
        first, _, rest = path.partition(".")
        if first == EVERYTHING:
            shown = [_masked_anywhere(value, rest) for value in shown]
            named = {
                name: MASK if name == rest else _masked_anywhere(value, rest) for name, value in named.items()
            }
        elif first.rstrip("+").isdecimal():
            start = int(first.rstrip("+"))
            for at in range(start, len(shown) if first.endswith("+") else min(start + 1, len(shown))):
                shown[at] = _masked(shown[at], rest)
        elif first in named:
            named[first] = _masked(named[first], rest)
    return tuple(shown), named


def masked_params(params: Any, paths: Iterable[str]) -> Any:
    """The params as people see them."""
    if not isinstance(params, Mapping):
        return params
    named = dict(params)
    for path in paths:
        first, _, rest = path.partition(".")
        if first == EVERYTHING and rest:
            named = {
                name: MASK if name == rest else _masked_anywhere(value, rest) for name, value in named.items()
            }
        elif first in named:
            named[first] = _masked(named[first], rest)
    return named


def masked_result(result: Any, paths: Iterable[str], hidden: Sequence[str]) -> Any:
    """The result as people see it: with the mask by path, and wherever it repeats a *hidden* text."""
    if hidden:
        result = _hidden_anywhere(result, hidden)
    for path in paths:
        first, _, rest = path.partition(".")
        if first == RESULT_PATH:
            result = _masked(result, rest)
        elif first == EVERYTHING and rest:
            result = _masked_anywhere(result, rest)
    return result


def _masked(value: Any, path: str) -> Any:
    """*value* with the mask at *path*; in a list, in each of its items."""
    if not path:
        return None if value is None else MASK
    first, _, rest = path.partition(".")
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item, path) for item in value]
    inside = _named(value)
    if inside is None:
        return value
    return {name: _masked(item, rest) if str(name) == first else item for name, item in inside.items()}


def _masked_anywhere(value: Any, name: str, depth: int = 0) -> Any:
    """*value* with the mask under each key *name* in it; without a name, all of it."""
    if not name or depth > _DEEPEST:
        return MASK
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked_anywhere(item, name, depth + 1) for item in value]
    inside = _named(value)
    if inside is None:
        return value
    return {
        key: MASK if str(key) == name else _masked_anywhere(item, name, depth + 1)
        for key, item in inside.items()
    }


def _hidden_anywhere(value: Any, hidden: Sequence[str], depth: int = 0) -> Any:
    """*value* with the mask in each text that repeats a hidden one."""
    if isinstance(value, str):
        found = hide(value, hidden)
        return value if found == value else found
    if depth > _DEEPEST:
        return MASK
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return [_hidden_anywhere(item, hidden, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and str(value) in hidden:
        return MASK
    inside = _named(value)
    if inside is None:
        return value
    return {name: _hidden_anywhere(item, hidden, depth + 1) for name, item in inside.items()}


def _named(value: Any) -> dict[Any, Any] | None:
    """What is in *value*, by name; None if it has no parts that have names."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, StoredObject):
        return _named(value.value)
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}
    found = getattr(value, "__dict__", None)
    return dict(found) if isinstance(found, dict) and not isinstance(value, type) else None


# --- messages -------------------------------------------------------------------------------------


def hidden_texts(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], params: Any, paths: Sequence[str]
) -> tuple[str, ...]:
    """The texts of the values that are masked, longest first: what is hidden in messages."""
    shown, named = masked_arguments(args, kwargs, paths)
    pairs = [*zip(args, shown, strict=True), *((value, named[name]) for name, value in kwargs.items())]
    if isinstance(params, Mapping):
        seen = masked_params(params, paths)
        pairs += [(value, seen[name]) for name, value in params.items()]
    found = {text for value, seen_value in pairs for text in _differing(value, seen_value)}
    return tuple(sorted(found, key=len, reverse=True)[:_MOST_HIDDEN])


def _differing(value: Any, shown: Any, depth: int = 0) -> Iterator[str]:
    if shown is value or depth > _DEEPEST:
        return
    if shown == MASK:
        yield from _texts(value)
    elif isinstance(shown, dict) and (inside := _named(value)) is not None:
        for name, item in inside.items():
            yield from _differing(item, shown.get(name), depth + 1)
    elif isinstance(shown, list) and isinstance(value, list | tuple):
        for item, seen in zip(value, shown, strict=False):
            yield from _differing(item, seen, depth + 1)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > _DEEPEST or value is None or isinstance(value, bool):
        return
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        for item in value:
            yield from _texts(item, depth + 1)
        return
    inside = None if isinstance(value, str | bytes) else _named(value)
    if inside is not None:
        for item in inside.values():
            yield from _texts(item, depth + 1)
        return
    text = str(value)
    if len(text) >= SHORTEST_HIDDEN:
        yield text


def hide(text: str, hidden: Iterable[str]) -> str:
    """*text* with the mask in the place of masked values."""
    for one in hidden:
        if one in text:
            text = text.replace(one, MASK)
    return text
