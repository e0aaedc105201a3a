"""Jobs that touch every replaceable part of a node, one of each kind for each lane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ratchet import JobContext, Scheduler, circuit_breaker

logger = logging.getLogger("ratchet.job")

SERVICE = "parts"


def speak() -> None:
    """Log a line and report progress: both pass the sanitizer."""
    logger.info("half way, password=hunter2")
    JobContext.current().progress(0.5, "half way")


def plain(value: int) -> int:
    speak()
    return value


async def plain_async(value: int) -> int:
    speak()
    return value


def plain_in_process(value: int) -> int:
    speak()
    return value


def fails(value: int) -> None:
    raise ValueError(f"value {value}")


async def fails_async(value: int) -> None:
    raise ValueError(f"value {value}")


def fails_in_process(value: int) -> None:
    raise ValueError(f"value {value}")


@circuit_breaker(SERVICE)
def calls_service(value: int) -> int:
    return value


@circuit_breaker(SERVICE)
async def calls_service_async(value: int) -> int:
    return value


@circuit_breaker(SERVICE)
def calls_service_in_process(value: int) -> int:
    return value


class Tool:
    """Its methods run on an instance that the `InstanceResolver` finds."""

    def use(self, value: int) -> int:
        return value

    async def use_async(self, value: int) -> int:
        return value

    def use_in_process(self, value: int) -> int:
        return value


class Exits:
    """A class that cannot be made: it ends the program instead."""

    def __init__(self) -> None:
        raise SystemExit("no configuration")

    def use(self, value: int) -> int:
        return value

    async def use_async(self, value: int) -> int:
        return value

    def use_in_process(self, value: int) -> int:
        return value


class Mute(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise SystemExit("nothing to say")


def raises_mute(value: int) -> None:
    raise Mute


async def raises_mute_async(value: int) -> None:
    raise Mute


def raises_mute_in_process(value: int) -> None:
    raise Mute


class Unprintable:
    """A result whose encoding ends the program."""

    def __reduce__(self) -> Any:
        raise SystemExit("not to be stored")

    def __getattr__(self, name: str) -> Any:
        raise SystemExit("not to be stored")


def returns_unprintable(value: int) -> Any:
    return Unprintable()


async def returns_unprintable_async(value: int) -> Any:
    return Unprintable()


def returns_unprintable_in_process(value: int) -> Any:
    return Unprintable()


async def _exit() -> None:
    raise SystemExit("from a task")


async def exits_in_a_task(value: int) -> None:
    """A task of its own raises SystemExit, which leaves the event loop."""
    await asyncio.gather(_exit(), asyncio.sleep(0.01))


async def rests(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def stops_the_loop(value: int) -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return value


#: For each kind of job: one function for each lane, in the order thread, async, process.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "plain": (plain, plain_async, plain_in_process),
    "fails": (fails, fails_async, fails_in_process),
    "service": (calls_service, calls_service_async, calls_service_in_process),
    "method": (Tool.use, Tool.use_async, Tool.use_in_process),
}

IN_PROCESS = (
    *(functions[2] for functions in KINDS.values()),
    Exits.use_in_process,
    raises_mute_in_process,
    returns_unprintable_in_process,
)


def declare_process_jobs(scheduler: Scheduler) -> None:
    """Only a declaration can put a function into the process lane."""
    for function in IN_PROCESS:
        scheduler.job(lane="process", name=function.__qualname__)(function)


class Misbehavior:
    """What the user's functions below do instead of their work, while there is something."""

    act: Callable[[], Any] | None = None
    calls = 0

    @classmethod
    def happens(cls) -> Any:
        if cls.act is None:
            return True
        cls.calls += 1
        return cls.act()


def listener(event: object) -> Any:
    return Misbehavior.happens()


def alert(event: object) -> Any:
    return Misbehavior.happens()


def around(context: JobContext) -> Any:
    """Middleware; it misbehaves where it is entered."""
    return nullcontext() if Misbehavior.act is None else Misbehavior.happens()


def callback(*facts: object) -> Any:
    return Misbehavior.happens()


def condition(value: object) -> Any:
    return Misbehavior.happens()


def report(batch: object) -> Any:
    return Misbehavior.happens()
