"""Jobs and predicates that chains, workflows and joins are made of."""

from __future__ import annotations

from typing import Any

from ratchet import JobContext, JobHandle, JobResult
from tests.integration import outsiders

HERE = __name__

ran: list[Any] = []

broken: set[str] = set()


def step(name: str, given: Any = None) -> str:
    """Returns its name, unless it is broken."""
    ran.append(name if given is None else (name, given))
    if name in broken:
        raise ValueError(f"{name} is broken")
    return name


def collect(results: list[Any]) -> list[Any]:
    ran.append(results)
    return results


def number(value: int) -> int:
    return value


def is_high(result: int) -> bool:
    return result > 10


def is_odd(result: int) -> bool:
    return result % 2 == 1


def ended_badly(ended: JobResult) -> bool:
    return not ended.succeeded and ended.error_type is not None


def raises(ended: Any) -> bool:
    raise LookupError("no such customer")


def signaled(name: str) -> Any:
    signal = JobContext.current().signal
    assert signal is not None
    ran.append((name, signal.key, signal.payload, signal.approved, signal.reason))
    return signal.payload


def forget() -> None:
    """Nothing has run, nothing is broken."""
    ran.clear()
    broken.clear()
    outsiders.asked.clear()


def statuses(handle: JobHandle[Any]) -> list[str]:
    """The states of all steps, in the order they were named, with the reason of a cancel."""
    jobs = [each.job() for each in handle.steps]
    return [f"{job.status}{f' {job.canceled_reason}' if job.canceled_reason else ''}" for job in jobs]


def succeeded(ended: JobResult) -> bool:
    return ended.succeeded
