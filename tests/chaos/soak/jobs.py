"""The jobs of the soak. Each one writes down its start and its end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from ratchet import JobContext, JobError, JobResult, RetryLater
from tests.chaos import ledger
from tests.chaos.soak.log import written


def work(book: str, rest: float = 0.05, mark: str = "") -> float:
    """Takes *rest* seconds in Python code that can be interrupted."""
    with written(book, mark):
        _rest(rest)
    return rest


async def visit(book: str, rest: float = 0.05, mark: str = "") -> float:
    """The same as a coroutine."""
    with written(book, mark):
        await asyncio.sleep(rest)
    return rest


def pay(book: str, number: int, rest: float = 0.05) -> str:
    """Books one payment together with its own success."""
    with written(book, "pay"):
        _rest(rest)
        with JobContext.current().transaction() as tx:
            ledger.book(tx.connection, number)
            tx.result = f"receipt-{number}"
    return "the transaction's result counts"


def fail(book: str) -> None:
    """Fails each time."""
    with written(book):
        raise ValueError("not to be had")


def flaky(book: str, failures: int, mark: str = "") -> int:
    """Fails in its first *failures* attempts."""
    with written(book, mark):
        _rest(0.05)
        if JobContext.current().attempt <= failures:
            raise ConnectionError("not yet")
    return failures


def mended(book: str, flag: str, mark: str = "") -> str:
    """Fails until somebody has made the file *flag*."""
    with written(book, mark):
        return Path(flag).read_text()


def mended_item(flag: str) -> str:
    """The same as one item of a batch; the log stands beside the flag."""
    return mended(str(Path(flag).parent / "runs"), flag, Path(flag).name)


def deaf(book: str, rest: float, mark: str = "") -> None:
    """Sits in one call that cannot be interrupted: a timeout ends the attempt while this still runs."""
    with written(book, mark):
        time.sleep(rest)


def later(book: str, times: int) -> int:
    """Is not ready yet for so many runs, without a failure."""
    ctx = JobContext.current()
    with written(book):
        seen = int(ctx.state.get("seen", 0))
        if seen < times:
            ctx.state["seen"] = seen + 1
            ctx.save()
            raise RetryLater(0.2, count=False)
    return seen


def gather(book: str, results: list[Any], mark: str = "") -> int:
    """Takes what several jobs returned."""
    with written(book, mark):
        return len(results)


def take(book: str, result: Any, mark: str = "") -> Any:
    """Takes what the job before it returned."""
    with written(book, mark):
        return result


def is_short(result: JobResult) -> bool:
    """A condition: the job before it slept less than a tenth of a second."""
    return isinstance(result.result, float) and result.result < 0.1


def alert(ctx: JobContext, error: JobError) -> None:
    """A failure callback."""


def _rest(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))
