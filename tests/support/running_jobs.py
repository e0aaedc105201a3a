"""Jobs for schedulers that really run."""

from __future__ import annotations

import asyncio
import threading
import time

HERE = __name__

started = threading.Event()


def add(one: int, two: int) -> int:
    return one + two


async def slow_add(one: int, two: int) -> int:
    await asyncio.sleep(0.01)
    return one + two


def endless() -> None:
    started.set()
    while True:
        time.sleep(0.005)


def failing() -> None:
    raise ValueError("no")


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def add_one(number: int) -> int:
    return number + 1


def total(values: list[int]) -> int:
    return sum(values)
