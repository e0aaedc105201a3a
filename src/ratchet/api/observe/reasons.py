"""`Reason`: why a job is not running."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Reason(NamedTuple):
    """
    One thing that keeps a job from being claimed.

    ``code`` is for programs, ``text`` for people, ``until`` says when it ends by itself, if that is known.
    """

    code: str
    text: str
    until: datetime | None = None

    def __str__(self) -> str:
        return self.text
