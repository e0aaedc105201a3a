"""Whether a stored payload has certain arguments, without restoring any of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.model.errors import InvalidJob, RatchetError

from .decoding import read_json
from .encoding import encode_value


class ArgumentMatch:
    """Compares arguments as JSON, in the form in which they are stored."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        if not isinstance(wanted, Mapping) or not all(isinstance(key, str) for key in wanted):
            raise InvalidJob(
                f"args names arguments by text: {{'0': 42}} for the first one, {{'region': 'eu'}} for one that was "
                f"given by name; not {wanted!r}"
            )
        self._wanted = [
            (key, _text(read_json(encode_value(value, name=f"args[{key!r}]"))))
            for key, value in wanted.items()
        ]

    def __call__(self, payload: str) -> bool:
        """True if every argument that was asked for has its value; False for what cannot be read."""
        try:
            stored = read_json(payload)
        except RatchetError:
            return False
        if not isinstance(stored, dict):
            return False
        args, kwargs = stored.get("args"), stored.get("kwargs")
        return all(_has(args, kwargs, key, text) for key, text in self._wanted)


def _has(args: object, kwargs: object, key: str, text: str) -> bool:
    if key.isascii() and key.isdigit():
        return isinstance(args, list) and int(key) < len(args) and _text(args[int(key)]) == text
    return isinstance(kwargs, dict) and key in kwargs and _text(kwargs[key]) == text


def _text(value: object) -> str:
    """JSON with its keys in order; 1, 1.0 and true are different values."""
    return json.dumps(value, sort_keys=True)
