"""Jobs that carry a secret in every way that there is."""

from __future__ import annotations

import logging
from typing import Any

from ratchet import JobContext, RetryLater
from ratchet.model.results import JobError, JobResult

#: What no store may hold in plain text.
SECRET = "4111-TOP-SECRET-1111"
logger = logging.getLogger(__name__)
got: list[Any] = []


def say(value: str) -> str:
    """Leaves the secret in progress, state and log, and returns it."""
    ctx = JobContext.current()
    ctx.progress(0.5, f"at {value}")
    ctx.state["seen"] = value
    ctx.save()
    logger.warning("working on %s", value)
    got.append(("say", value, ctx.params, ctx.state.get("seen")))
    return value


def fail(value: str) -> None:
    raise ValueError(f"cannot charge {value}")


def fail_once(value: str) -> str:
    if JobContext.current().attempt == 1:
        raise ValueError(f"not yet {value}")
    return value


def later(value: str) -> str:
    ctx = JobContext.current()
    if "tried" not in ctx.state:
        ctx.state["tried"] = value
        raise RetryLater(1, count=False, reason=f"waits for {value}")
    return value


def large(value: str) -> str:
    return value * 10_000


def take(*values: Any) -> Any:
    got.append(("take", *values))
    return values[0] if values else None


def signaled() -> Any:
    signal = JobContext.current().signal
    assert signal is not None
    got.append(("signal", signal.payload, signal.reason))
    return signal.payload


def succeeded(ctx: JobContext, value: str) -> None:
    got.append(("succeeded", ctx.params, value))


def failed(ctx: JobContext, error: JobError, value: str) -> None:
    got.append(("failed", ctx.params, str(error), value))


def noticed(ctx: JobContext, *errors: JobError) -> None:
    """A callback that would also take no error."""
    got.append(("noticed", *map(str, errors)))


def is_secret(result: JobResult, expected: str) -> bool:
    got.append(("condition", result.result, expected))
    return bool(result.result == expected)


def broken(result: JobResult, expected: str) -> bool:
    raise ValueError(f"cannot judge {expected}")
