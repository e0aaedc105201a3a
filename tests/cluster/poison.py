"""Jobs that kill their process, and jobs that run beside them: each writes down when it starts and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from ratchet.scheduler import Scheduler
from tests.cluster.shop import gated, note, write

scheduler = Scheduler(allow=["tests.cluster.poison", "tests.cluster.shop"])
__all__ = ["gated", "kill_node", "kill_node_async", "note", "scheduler", "sleep", "sleep_async"]


def kill_node(ledger: str, after: float) -> None:
    """Kills its process, as a fault in a C extension would."""
    write(ledger, "start", "poison")
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(ledger: str, name: str, seconds: float) -> None:
    """Is there while others die."""
    write(ledger, "start", name)
    time.sleep(seconds)
    write(ledger, "end", name)


async def kill_node_async(ledger: str) -> None:
    """The same on the event loop, at once."""
    write(ledger, "start", "poison")
    os.kill(os.getpid(), signal.SIGKILL)


async def sleep_async(ledger: str, name: str, seconds: float) -> None:
    """The same on the event loop."""
    write(ledger, "start", name)
    await asyncio.sleep(seconds)
    write(ledger, "end", name)
