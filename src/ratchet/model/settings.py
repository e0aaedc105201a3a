"""
One setting: its default, what it accepts, and its line in the reference.

A field of `Options` accepts more than it holds: ``Options(silence=15)`` is right for the type checker,
and ``options.silence`` is a timedelta. A `Setting` is therefore a descriptor, but only for the class and
for type checkers: an instance holds the checked values, so that reading one costs no call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .durations import Duration, format_duration, parse_duration, to_timedelta
from .errors import ConfigurationError

Given = TypeVar("Given")
Held = TypeVar("Held")

#: Words that mean None where a setting may be None: TOML and environment variables have no null.
_NOTHING = ("none", "off", "")
_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")
_SIZES = {"b": 1, "kb": 1000, "mb": 1000**2, "kib": 1024, "mib": 1024**2}


class Setting(Generic[Given, Held]):
    """One field of `Options`: checks what is given and holds it in one form."""

    def __init__(
        self,
        default: Held,
        description: str,
        *,
        accepts: str,
        check: Callable[[Any], Held],
        parse: Callable[[str], Any],
        show: Callable[[Any], str] = str,
        optional: bool = False,
    ) -> None:
        self.default = default
        self.description = description
        self.accepts = accepts + (", or none" if optional else "")
        self._check = check
        self._parse = parse
        self._show = show
        self._optional = optional

    def __get__(self, instance: object | None, owner: type) -> Held:
        # Reached through the class only, where the dataclass looks for its default: instances hold their own values.
        return self.default

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: Given) -> None:
            """What the field accepts; see `Options.__post_init__`."""

    def checked(self, value: Any, source: str) -> Held:
        """*value* in the form that is held, or `ConfigurationError` that calls it *source*."""
        if value is None and self._optional:
            return self._nothing()
        try:
            return self._check(value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{source} = {value!r} is not accepted; it takes {self.accepts}"
            ) from error

    def parsed(self, text: str, source: str) -> Held:
        """The value written as *text* in a file or an environment variable."""
        if self._optional and text.strip().lower() in _NOTHING:
            return self._nothing()
        try:
            return self._check(self._parse(text.strip()))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{source} = {text!r} is not accepted; it takes {self.accepts}"
            ) from error

    def shown(self) -> str:
        """The default, as a reader of the reference would write it."""
        return "none" if self.default is None else self._show(self.default)

    def _nothing(self) -> Held:
        nothing: Any = None
        return nothing  # type: ignore[no-any-return]  # Held includes None wherever optional is set


Count = Setting[int, int]
OptionalCount = Setting[int | None, int | None]
Interval = Setting[Duration, timedelta]
OptionalInterval = Setting[Duration | None, timedelta | None]
Switch = Setting[bool, bool]
Text = Setting[str, str]
OptionalText = Setting[str | None, str | None]
Names = Setting[Sequence[str] | None, tuple[str, ...] | None]


def _int_check(at_least: int, at_most: int | None) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("not an integer")
        if value < at_least or (at_most is not None and value > at_most):
            raise ValueError("out of range")
        return value

    return check


def _range(at_least: int, at_most: int | None) -> str:
    upper = f" to {at_most:,}" if at_most is not None else " or more"
    return f"a whole number, {at_least}{upper}"


def count(default: int, description: str, *, at_least: int = 0, at_most: int | None = None) -> Count:
    """A whole number."""
    return Setting(
        default,
        description,
        accepts=_range(at_least, at_most),
        check=_int_check(at_least, at_most),
        parse=int,
    )


def optional_count(description: str, *, at_least: int = 0, default: int | None = None) -> OptionalCount:
    """A whole number, or None."""
    return Setting(
        default,
        description,
        accepts=_range(at_least, None),
        check=_int_check(at_least, None),
        parse=int,
        optional=True,
    )


def size(default: int, description: str, *, at_least: int = 1) -> Count:
    """A number of bytes."""
    return Setting(
        default,
        description,
        accepts="a number of bytes; in files and variables also 64KiB or 1MiB",
        check=_int_check(at_least, None),
        parse=_parse_size,
        show=_show_size,
    )


def _parse_size(text: str) -> int:
    written = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower(), re.ASCII)
    if written is None or (written[2] or "b") not in _SIZES:
        raise ValueError("not a size")
    return int(written[1]) * _SIZES[written[2] or "b"]


def _show_size(value: int) -> str:
    return f"{value // 1024}KiB" if value % 1024 == 0 and value else str(value)


_DURATION = "a timedelta or seconds; in files and variables also 500ms, 30s, 5m, 1h, 7d"


def _duration_check(zero: bool) -> Callable[[Any], timedelta]:
    return lambda value: to_timedelta(value, "the value", zero=zero)


def interval(default: timedelta, description: str, *, zero: bool = False) -> Interval:
    """A duration; longer than zero unless *zero* is allowed."""
    return Setting(
        default,
        description,
        accepts=_DURATION + ("" if zero else ", longer than zero"),
        check=_duration_check(zero),
        parse=parse_duration,
        show=format_duration,
    )


def optional_interval(
    default: timedelta | None, description: str, *, zero_is_none: bool = False
) -> OptionalInterval:
    """A duration, or None; with *zero_is_none* a zero turns it off too."""

    def check(value: Any) -> timedelta | None:
        held = to_timedelta(value, "the value", zero=zero_is_none)
        return held or None

    return Setting(
        default,
        description,
        accepts=_DURATION + (", or 0" if zero_is_none else ", longer than zero"),
        check=check,
        parse=parse_duration,
        show=format_duration,
        optional=True,
    )


def switch(default: bool, description: str) -> Switch:
    """True or False."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise TypeError("not a bool")
        return value

    def parse(text: str) -> bool:
        if text.lower() in _YES:
            return True
        if text.lower() in _NO:
            return False
        raise ValueError("neither yes nor no")

    return Setting(
        default,
        description,
        accepts="true or false",
        check=check,
        parse=parse,
        show=lambda value: str(value).lower(),
    )


def choice(default: str, description: str, *choices: str) -> Text:
    """One of a few words, in any case."""

    def check(value: Any) -> str:
        found = value.upper() if isinstance(value, str) else None
        if found not in choices:
            raise ValueError("not one of them")
        return str(found)

    return Setting(default, description, accepts=" or ".join(choices), check=check, parse=str)


def optional_text(
    description: str, *, accepts: str, longest: int, default: str | None = None
) -> OptionalText:
    """Some text, or None."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError("not text")
        if not value.strip() or len(value) > longest or not value.isprintable():
            raise ValueError("empty, too long or unprintable")
        return value

    return Setting(default, description, accepts=accepts, check=check, parse=str, optional=True)


def names(description: str, *, accepts: str) -> Names:
    """Several names, or None; a single string with commas in files and variables."""

    def check(value: Any) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
            raise TypeError("not a list of names")
        found = tuple(value)
        if not found or not all(isinstance(name, str) and name.strip() and "," not in name for name in found):
            raise ValueError("empty, or with a comma")
        return found

    def parse(text: str) -> list[str]:
        return [name.strip() for name in text.split(",")]

    return Setting(
        None, description, accepts=accepts, check=check, parse=parse, show=", ".join, optional=True
    )
