"""How workers and users of a soak are set. Retention is short, so that archiving takes part."""

from __future__ import annotations

from datetime import timedelta

from ratchet import Options

TARGETS = ["tests.chaos.soak.jobs"]
OPTIONS = Options(
    retention=timedelta(seconds=25),
    dead_letter_retention=timedelta(minutes=10),
    maintenance_interval=timedelta(seconds=3),
    expiry_interval=timedelta(seconds=1),
)
