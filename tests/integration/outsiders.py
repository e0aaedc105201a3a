"""Functions that a policy for the tests next door does not allow."""

from __future__ import annotations

from typing import Any

asked: list[Any] = []


def is_welcome(result: Any) -> bool:
    asked.append(result)
    return True
