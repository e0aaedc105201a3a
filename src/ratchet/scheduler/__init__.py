"""The front door: `Scheduler` wires everything and owns nothing."""

from ratchet.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
