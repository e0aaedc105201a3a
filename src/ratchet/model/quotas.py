"""How many jobs a caller or a queue may have, and how fast they may come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ratchet.model.errors import ConfigurationError

#: Stands for each caller, or each queue, by itself.
EACH: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """
    A limit for submissions: of a *caller*, to a *queue*, or of a caller to a queue; neither: all together.

    ``"*"`` means each caller, or each queue, by itself. *pending* is how many of its jobs may wait (due later, for a parent, for a
    signal, or paused; not those that run), *per_minute* how many may be submitted in any 60 seconds.
    """

    queue: str | None = None
    caller: str | None = None
    pending: int | None = None
    per_minute: int | None = None

    def __post_init__(self) -> None:
        """Refuse a quota that limits nothing, or that nothing could meet."""
        if self.pending is None and self.per_minute is None:
            raise ConfigurationError("a Quota limits something: give it pending=, per_minute= or both")
        for name in ("pending", "per_minute"):
            limit = getattr(self, name)
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                raise ConfigurationError(f"{name} of a Quota is a whole number from 1 on, not {limit!r:.60}")
        for name in ("queue", "caller"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, str) or not given):
                raise ConfigurationError(
                    f"{name} of a Quota is a name, or '*' for each of them, not {given!r:.60}"
                )

    def subject(self, queue: str, caller: str | None) -> tuple[str | None, str | None] | None:
        """For whom a job of this *queue* and *caller* counts; None: the quota is not about it."""
        if self.queue is not None and self.queue not in (EACH, queue):
            return None
        if self.caller is not None and (caller is None or self.caller not in (EACH, caller)):
            return None
        return queue if self.queue is not None else None, caller if self.caller is not None else None
