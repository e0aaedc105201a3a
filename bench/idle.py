"""An app with one job that does nothing, for `footprint`."""

from __future__ import annotations

from ratchet import Scheduler

scheduler = Scheduler()


@scheduler.job
def nothing() -> None:
    """Return."""
