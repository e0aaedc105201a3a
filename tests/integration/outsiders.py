"""Functions that a policy for the tests next door does not allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

asked: list[Any] = []


def is_welcome(result: Any) -> bool:
    asked.append(result)
    return True


@dataclass
class Visitor:
    """An argument whose class that policy does not allow either."""

    name: str
