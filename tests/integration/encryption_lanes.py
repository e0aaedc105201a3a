"""Jobs of each lane that carry a secret."""

from __future__ import annotations

from ratchet import JobContext


def threaded(value: str) -> str:
    return value


async def awaited(value: str) -> str:
    JobContext.current().progress(0.5, value)
    return value


def in_process(value: str) -> str:
    JobContext.current().logger.warning("at %s", value)
    return value


def transacted(value: str) -> None:
    with JobContext.current().transaction() as tx:
        tx.result = value


def failing(value: str) -> None:
    raise ValueError(value)
