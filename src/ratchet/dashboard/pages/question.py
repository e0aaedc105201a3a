"""`Page`: an address and what is read for it; `Question`: one request for a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.routing import compile_path

from ratchet.dashboard.filters import Words
from ratchet.scheduler import Scheduler

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What a page is asked: the names in its address, and the words behind it."""

    scheduler: Scheduler
    names: Mapping[str, str]
    words: Words
    #: Reads a part of the page that others share, if it was not read within so many seconds.
    kept: Callable[[str, Callable[[], Any], float], Any] = lambda _, read, seconds: read()

    @property
    def now(self) -> datetime:
        """The database's time."""
        return self.scheduler.backend.now()


def pattern_of(path: str) -> re.Pattern[str]:
    """What matches the addresses of a page or verb."""
    return compile_path(path)[0]


@dataclass(frozen=True)
class Page:
    """
    A page: its name is that of its template. ``every``: seconds after which an open one is looked at again.

    A page that costs many statements has a ``pulse``, which costs one or two: what it gives is looked at, and the page
    is read if that has changed, and otherwise each ``whole`` seconds. Where no pulse could tell, ``rest`` says, by what
    was read, for how many seconds the page is not read again.
    """

    name: str
    path: str
    read: Callable[[Question], Data]
    every: float = 2.0
    pulse: Callable[[Question], Any] | None = None
    whole: float = 15.0
    rest: Callable[[Data], float] = lambda _: 0.0
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", pattern_of(self.path))


def path_of(*parts: object) -> str:
    """``/queues/a%2Fb/pause``: each part is one segment, whatever is in it."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)
