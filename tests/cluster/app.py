"""The app that workers in tests run; its store comes from RATCHET_URL."""

from __future__ import annotations

from ratchet.scheduler import Scheduler

scheduler = Scheduler(allow=["tests.cluster.shop"])
