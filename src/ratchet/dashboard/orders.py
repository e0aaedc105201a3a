"""`Order`: what a person asked for; `Done` and `Confirmation`: what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ratchet.dashboard.filters import Words
from ratchet.model.job import Job
from ratchet.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Order:
    """A verb, on what, and who asks."""

    scheduler: Scheduler
    names: Mapping[str, str]
    words: Words
    form: Words
    who: str
    #: A person is asked before many jobs are changed.
    asks: bool

    @property
    def now(self) -> datetime:
        """The database's time."""
        return self.scheduler.backend.now()


@dataclass(frozen=True, slots=True)
class Done:
    """What was changed: how many, and where to look at it. ``count`` 0: nothing, because of ``refusal``."""

    object: str
    back: str
    count: int
    refusal: str = ""
    more: bool = False


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a verb for many would change; the form that says yes has the same words and these ``fields``."""

    verb: str
    count: int
    most: int
    selected: bool
    samples: list[Job] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
