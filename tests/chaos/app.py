"""The app that workers run in chaos scenarios; its store comes from RATCHET_URL."""

from __future__ import annotations

from ratchet import Scheduler

scheduler = Scheduler(allow=["tests.chaos.jobs"])
