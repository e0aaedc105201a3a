"""The app that workers run in a soak; its store comes from RATCHET_URL."""

from __future__ import annotations

from ratchet import Scheduler
from tests.chaos.soak.settings import OPTIONS, TARGETS

scheduler = Scheduler(allow=TARGETS, options=OPTIONS)
