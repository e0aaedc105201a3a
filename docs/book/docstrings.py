"""
A class or function as Markdown, from its signature and docstring.

Written here and not by autodoc: with its objects for 1,300 members the build took four times as long, and names such as ``type`` are
ambiguous there.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

#: Longer signatures are broken into a line for each parameter.
WIDTH = 96


def described_class(dotted: str, name: str, value: type) -> str:
    """A class with its members: fields in a list, methods with a heading each."""
    module = dotted.rpartition(".")[0]
    if issubclass(value, enum.Enum):
        rows = "".join(f"- `{name}.{member.name}`\n" for member in value)
        return f"## `{name}`\n\n{text_of(value)}{rows}\n"
    parts = [f"## `{name}`\n\n", _head(name, value, module), text_of(value)]
    fields = list(_fields(value))
    if fields:
        parts.append("\n".join(fields) + "\n\n")
    for member, function in _methods(value):
        head = signature(_prefix(value, member, function), function)
        parts.append(f"### `{name}.{member}`\n\n{head}{text_of(function)}{example(f'{name}.{member}')}")
    return "".join(parts)


def _head(name: str, value: type, module: str) -> str:
    made = f"class {name}"
    bases = [
        base.__name__ for base in value.__bases__ if base.__name__ not in ("object", "Struct", "Generic")
    ]
    if issubclass(value, BaseException):
        return f"```python\nclass {name}({', '.join(bases)})\n```\n\n"
    if issubclass(value, msgspec.Struct) or "__init__" not in vars(value):
        return f"```python\nfrom {module} import {name}\n```\n\n"
    return signature(made, value)


def _fields(value: type) -> Iterator[str]:
    """Attributes and properties."""
    hints: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("ratchet"):
            hints |= vars(base).get("__annotations__", {})
    for field, hint in hints.items():
        if not field.startswith("_") and not str(hint).startswith("ClassVar"):
            yield f"- `{field}: {_annotation(hint)}`"
    for member, found in _members(value):
        getter = (
            found.fget
            if isinstance(found, property)
            else found.func
            if isinstance(found, cached_property)
            else None
        )
        if getter is not None and member not in hints:
            hint = getattr(getter, "__annotations__", {}).get("return")
            typed = f": {_annotation(hint)}" if hint is not None else ""
            yield f"- `{member}{typed}`{_first_line(getter)}"


def _methods(value: type) -> Iterator[tuple[str, Any]]:
    for member, found in _members(value):
        function = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        if inspect.isfunction(function):
            yield member, function


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """Public members in the order of their definition, each as the nearest class has it; not those of Python's own classes."""
    seen: set[str] = set()
    for base in value.__mro__:
        if not base.__module__.startswith("ratchet"):
            continue
        for member, found in vars(base).items():
            if not member.startswith("_") and member not in seen:
                seen.add(member)
                yield member, found


def _prefix(value: type, member: str, function: Any) -> str:
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    found = inspect.getattr_static(value, member)
    before = (
        "@classmethod\n"
        if isinstance(found, classmethod)
        else "@staticmethod\n"
        if isinstance(found, staticmethod)
        else ""
    )
    return f"{before}{kind} {member}"


def signature(prefix: str, function: Any) -> str:
    """The signature as a block of code."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return f"```python\n{prefix}(...)\n```\n\n"
    parameters = [_parameter(each) for each in _with_marks(found) if each not in ("self", "cls")]
    returned = ""
    if found.return_annotation is not inspect.Signature.empty and not prefix.startswith("class"):
        returned = f" -> {_annotation(found.return_annotation)}"
    line = f"{prefix}({', '.join(parameters)}){returned}"
    if len(line.splitlines()[-1]) > WIDTH:
        line = f"{prefix}(\n    " + ",\n    ".join(parameters) + f",\n){returned}"
    return f"```python\n{line}\n```\n\n"


def _with_marks(found: inspect.Signature) -> Iterator[inspect.Parameter | str]:
    """The parameters, with ``/`` and ``*`` where they are needed."""
    before: Any = None
    starred = False
    for each in found.parameters.values():
        if before is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            yield "/"
        if each.kind is each.VAR_POSITIONAL:
            starred = True
        elif each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        before = each.kind
        if each.name not in ("self", "cls"):
            yield each
        elif each.kind is each.POSITIONAL_ONLY:
            before = None


def _parameter(each: inspect.Parameter | str) -> str:
    if isinstance(each, str):
        return each
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    text = stars + each.name
    if each.annotation is not each.empty:
        text += f": {_annotation(each.annotation)}"
    if each.default is not each.empty:
        text += f"{' = ' if ':' in text else '='}{_default(each.default)}"
    return text


def _annotation(hint: Any) -> str:
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", None) or str(hint)
    return re.sub(r"\b(?:typing|datetime|uuid|collections\.abc|ratchet(?:\.\w+)*)\.", "", text)


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    text = repr(value)
    return "..." if text.startswith("<") else text.replace("datetime.", "")


def text_of(value: Any) -> str:
    """The docstring as Markdown."""
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if not text:
        return ""
    # Literal blocks of docstrings become blocks of code.
    text = re.sub(
        r"::\n\n((?:    .*\n?|\n)+)",
        lambda found: f":\n\n```python\n{inspect.cleandoc(found.group(1))}\n```\n",
        text,
    )
    return f"{text}\n\n"


@cache
def examples() -> dict[str, str]:
    """The examples of `verbs`, by the name of the verb."""
    text = Path(__file__).with_name("verbs.py").read_text(encoding="utf-8")
    return {
        name: code.strip()
        for name, code in re.findall(r"^# --- ([\w.]+)\n(.*?)(?=^# --- )", text, re.DOTALL | re.MULTILINE)
    }


def example(verb: str) -> str:
    """How a verb is called."""
    code = examples().get(verb)
    return f"For example:\n\n```python\n{code}\n```\n\n" if code else ""


def _first_line(function: Any) -> str:
    text = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0]
    return f": {' '.join(text.split())}" if text else ""
