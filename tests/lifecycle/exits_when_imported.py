"""A module that ends the program when it is imported, if a variable says so: tests must be able to submit its jobs."""

from __future__ import annotations

import os

SWITCH = "RATCHET_TEST_EXIT_ON_IMPORT"

if os.environ.get(SWITCH) == "exit":
    raise SystemExit("no configuration")
if os.environ.get(SWITCH) == "interrupt":
    raise KeyboardInterrupt


def work(value: int) -> int:
    return value


async def work_async(value: int) -> int:
    return value
