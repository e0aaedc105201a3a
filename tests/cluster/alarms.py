"""An app that tells a webhook of its dead letters, and whose process dies in the moment in which the first one is known."""

from __future__ import annotations

import os
from pathlib import Path

from ratchet import JobDeadLettered, Scheduler
from ratchet.contrib import webhook

scheduler = Scheduler(allow=["tests.cluster.alarms"])


@scheduler.on(JobDeadLettered)
def die_once(event: JobDeadLettered) -> None:
    """The alert is committed, and nobody was told: listeners are called in order, and this is the first."""
    died = Path(os.environ["ALARMS_DIED"])
    if not died.exists():
        died.touch()
        os._exit(9)


if "ALARMS_URL" in os.environ:
    webhook.notify(scheduler, os.environ["ALARMS_URL"], secret=os.environ["ALARMS_SECRET"])


def fail() -> None:
    raise ValueError("no")
