"""Middleware and jobs for the process lane: importable by a spawned child."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet import JobContext, RetryLater


def note(ctx: JobContext, word: str) -> None:
    """One line for each thing that happens, with the process in which it does."""
    path = Path(ctx.params["ledger"])
    with path.open("a") as ledger:
        ledger.write(f"{word} {os.getpid()}\n")


def outer(ctx: JobContext) -> Iterator[None]:
    """A generator, as the docs write it."""
    note(ctx, f"enter:{ctx.attempt}:{ctx.target}")
    try:
        yield
    except ValueError:
        note(ctx, "failed")
        raise
    finally:
        note(ctx, "exit")


@contextmanager
def swallowing(ctx: JobContext) -> Iterator[None]:
    """Makes a success of a KeyError."""
    try:
        yield
    except KeyError:
        note(ctx, "swallowed")


def refusing(ctx: JobContext) -> Iterator[None]:
    """Does not let the job run."""
    raise PermissionError("not today")
    yield


def postponing(ctx: JobContext) -> Iterator[None]:
    """Puts the first attempt off."""
    if not Path(ctx.params["ledger"]).exists():
        note(ctx, "later")
        raise RetryLater(0.01, count=False)
    yield


def work() -> int:
    note(JobContext.current(), "work")
    return os.getpid()


def approved_by() -> str:
    signal = JobContext.current().signal
    assert signal is not None
    return f"{signal.key} {signal.payload['by']}"


def fail() -> None:
    raise ValueError("no luck")


def miss() -> None:
    raise KeyError("nothing there")


def hang() -> None:
    note(JobContext.current(), "work")
    time.sleep(60)
