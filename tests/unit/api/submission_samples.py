"""A store that loses its answers, and jobs to submit to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ratchet import CommitUnknown, ManualClock, StoreUnavailable
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler

HERE = __name__


def charge(invoice: int, note: Any = None) -> int:
    return invoice


def ship(receipt: Any) -> Any:
    return receipt


@dataclass
class Receipt:
    number: int


def print_receipt(receipt: Receipt) -> Receipt:
    return receipt


class FlakyStore:
    """A memory store whose ``insert`` loses its connection as told: before or after the commit."""

    def __init__(self, clock: ManualClock) -> None:
        self._inner = MemoryStore(clock.now)
        self.failures: list[str] = []
        self.inserts: list[tuple[int, list[Any]]] = []
        self.told: list[datetime] = []  # the time that each insert came with
        self.lasts: Callable[[], object] | None = None  # what happens while one is made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def insert(self, specs: Any, **given: Any) -> Any:
        self.inserts.append((len(specs), [spec.job_id for spec in specs]))
        self.told.append(given["now"])
        if self.lasts is not None:
            self.lasts()
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            raise StoreUnavailable("the connection was lost")
        answer = self._inner.insert(specs, **given)
        if failure == "after":
            raise CommitUnknown("the connection was lost while committing")
        return answer


def stored(scheduler: ManualScheduler) -> int:
    return scheduler.jobs.count()
