"""The same app, whose nodes wake each other over Redis."""

from __future__ import annotations

import os

from ratchet.defaults.redis_coordinator import RedisCoordinator
from ratchet.scheduler import Scheduler

scheduler = Scheduler(
    allow=["tests.cluster.shop"], cluster_coordinator=RedisCoordinator(os.environ["TEST_REDIS_URL"])
)
