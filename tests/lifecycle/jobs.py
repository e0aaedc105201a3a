"""Targets of the lifecycle tests: importable, so that every lane can run them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from datetime import timedelta
from typing import Any

from ratchet import BreakerSettings, JobContext, JobError, circuit_breaker

#: Set by a test to let `hold` go on; jobs and tests share the process.
gate = threading.Event()
started = threading.Event()
calls: list[Any] = []


def double(number: int) -> int:
    return 2 * number


def sleep_in_python(seconds: float) -> str:
    started.set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.01)
    return "slept"


async def sleep_async(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def sleep_in_c(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def hold() -> str:
    """Runs until the test says otherwise, and notices when it is told to stop."""
    started.set()
    while not gate.wait(0.01):
        JobContext.current().check_canceled()
    return "held"


def ignore_everything() -> str:
    """Runs until the test says otherwise, whatever it is told."""
    started.set()
    while True:
        try:
            if gate.wait(0.01):
                return "ignored"
        except BaseException:
            calls.append("told")


def serve(tenant: str) -> str:
    """Notes whose job has started, and takes its time."""
    calls.append(tenant)
    time.sleep(0.02)
    return tenant


def where() -> int:
    return os.getpid()


SECRETS = (
    "postgresql://admin:s3cret@db.internal/prod",
    "password=hunter2",
    "Authorization: Bearer abcdefghijklmnop1234567890",
    "ann@example.com",
    "AKIAIOSFODNN7EXAMPLE",
)
LEAKS = ("s3cret", "hunter2", "abcdefghijklmnop1234567890", "ann@example.com", "AKIAIOSFODNN7EXAMPLE")


def leak() -> None:
    """Says everything it should not, everywhere it can."""
    context = JobContext.current()
    for secret in SECRETS:
        context.logger.info("connecting with %s", secret)
        logging.getLogger("some.library").warning("cannot use %s", secret)
        context.progress(0.5, f"trying {secret}")
    try:
        raise ConnectionError("; ".join(SECRETS))
    except ConnectionError as error:
        raise RuntimeError("failed with " + ", ".join(SECRETS), SECRETS) from error


def note_failure(context: JobContext, error: JobError) -> None:
    calls.append((context.parent_id, error.message))


def note_success(context: JobContext) -> None:
    calls.append(context.parent_id)


def greedy_regex(length: int) -> None:
    re.match(r"(a+)+$", "a" * length + "b")


class Bank:
    """An outside service that is up or down, as a test says, and counts who asks it."""

    SETTINGS = BreakerSettings(
        failure_rate=0.5, window=10, minimum_calls=3, wait=timedelta(seconds=2), probes=3
    )

    def __init__(self) -> None:
        self.is_up = True
        self.calls = 0
        self.answer = threading.Event()  # until then probes get no answer
        self._lock = threading.Lock()

    def ask(self) -> str:
        with self._lock:
            self.calls += 1
        self.answer.wait(10)
        if not self.is_up:
            raise ConnectionError("the bank is down")
        return "paid"


bank = Bank()


@circuit_breaker("bank", profile=Bank.SETTINGS)
def pay(number: int) -> str:
    return bank.ask()


@circuit_breaker("bank", profile=Bank.SETTINGS)
async def pay_async(number: int) -> str:
    return await asyncio.to_thread(bank.ask)


@circuit_breaker("slow bank", profile=Bank.SETTINGS)
def pay_slowly() -> None:
    sleep_in_python(30)


@circuit_breaker("closed bank", profile=Bank.SETTINGS)
def pay_in_vain() -> None:
    raise ConnectionError("the bank is closed")
