"""
The front door: `Scheduler` has the verbs, `Core` wires store, events and engine together; neither owns rules.

A submission enters at `submitting`, what is done to stored jobs at `controlling`, decorators at
`declaring`; all of them call the rooms of ``api``. ``start()`` makes a node of ``engine`` from `parts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ratchet.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]


def __getattr__(name: str) -> Any:
    """`Scheduler` is imported when it is first used: the supervisor of a worker needs only small modules of this package."""
    if name != "Scheduler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ratchet.scheduler.scheduler import Scheduler

    globals()[name] = Scheduler
    return Scheduler
