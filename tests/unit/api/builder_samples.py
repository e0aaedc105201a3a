"""Jobs that builders describe, and what came of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from ratchet import JobFilter, circuit_breaker
from ratchet.model.composition import EdgeKind
from ratchet.testing import ManualScheduler


def charge(invoice: int, *, currency: str = "EUR") -> str:
    return f"{invoice} {currency}"


def ship(receipt: Any) -> Any:
    return receipt


def report(results: list[Any]) -> list[Any]:
    return results


def record(ctx: Any) -> None: ...


def alert(ctx: Any, error: Any) -> None: ...


def is_high(value: Any) -> bool:
    return bool(value)


def is_slow(result: Any) -> bool:
    return bool(result)


@circuit_breaker("gateway")
def pay(amount: int) -> int:
    return amount


class Orders:
    def process(self, order: int) -> int:
        return order


orders = Orders()


def stored(scheduler: ManualScheduler) -> int:
    return scheduler.jobs.count(JobFilter(include_archived=True))


def edges(scheduler: ManualScheduler, root: Any) -> list[tuple[str, str, EdgeKind, int]]:
    graph = scheduler.handle(root).graph()
    names = {node.job_id: node.target.rpartition(":")[2] for node in graph}
    return [(names[e.parent_id], names[e.child_id], e.kind, e.position) for e in graph.edges]


def dropped(make: Callable[[], object]) -> None:
    """Make something and let go of it."""
    make()
    gc.collect()


def declared(number: int) -> int:
    return number


def other(number: int) -> int:
    return number
