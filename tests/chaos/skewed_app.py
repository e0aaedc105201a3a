"""The same app on a machine whose wall clock is wrong by CHAOS_SKEW seconds."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from ratchet import Scheduler
from ratchet.model.clock import DatabaseClock, SystemClock


class WrongClock(SystemClock):
    """Its time of day is off; the time that passes is not."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=float(os.environ["CHAOS_SKEW"]))


scheduler = Scheduler(allow=["tests.chaos.jobs"], clock=DatabaseClock(WrongClock()))
