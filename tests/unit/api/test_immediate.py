"""``enqueue_now`` has a way of its own for plain functions: it stores what the builder stores, and keeps nothing stale."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from msgspec.structs import asdict

from ratchet import RESULT, InvalidJob, InvalidTarget, ManualClock, Priority, call, circuit_breaker
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.unit.api.builder_samples import Orders, charge, orders, pay


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[ManualScheduler]:
    made = manual_scheduler(clock=clock, allow=["tests.unit.api.builder_samples"])
    yield made
    made.close()


def record(scheduler: ManualScheduler, handle: Any) -> dict[str, Any]:
    found = scheduler.store.get(handle.id)
    assert found is not None
    return {name: value for name, value in asdict(found).items() if name not in ("job_id", "root_id")}


@pytest.mark.parametrize(
    ("target", "args", "kwargs"),
    [
        (charge, (7,), {}),
        (charge, (7,), {"currency": "CHF"}),
        (charge, ((1, 2),), {}),
        (pay, (3,), {}),
        (Orders.process, (3,), {}),
        (orders.process, (3,), {}),
        (call(charge, 7, currency="CHF"), (), {}),
        (lambda: charge(7, currency="CHF"), (), {}),
    ],
    ids=["function", "keywords", "tagged value", "breaker", "unbound", "method", "call", "lambda"],
)
def test_both_ways_store_the_same(
    scheduler: ManualScheduler, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Twice each: what was found out about a target the first time holds the second time."""
    built = [record(scheduler, scheduler.enqueue(target, *args, **kwargs).submit()) for _ in range(2)]
    at_once = [record(scheduler, scheduler.enqueue_now(target, *args, **kwargs)) for _ in range(2)]
    assert at_once == built


def test_a_declaration_counts(scheduler: ManualScheduler) -> None:
    @scheduler.job(
        name="declared",
        priority=Priority.HIGH,
        max_retries=3,
        tags=("a", "a", "b"),
        queue="mail",
        timeout=300,
    )
    def declared(number: int) -> None: ...

    made = record(scheduler, scheduler.enqueue_now(declared, 1))
    assert made == record(scheduler, scheduler.enqueue(declared, 1).submit())
    assert (made["priority"], made["max_retries"], made["tags"]) == (Priority.HIGH, 3, ("a", "b"))
    assert made["stream"].queue == "mail"


def test_a_function_that_is_declared_again(scheduler: ManualScheduler) -> None:
    """Its newer name and settings count from then on."""

    def twice(number: int) -> None: ...

    scheduler.job(name="first")(twice)
    assert record(scheduler, scheduler.enqueue_now(twice, 1))["target"] == "first"
    scheduler.job(name="second", max_retries=2)(twice)
    made = record(scheduler, scheduler.enqueue_now(twice, 1))
    assert (made["target"], made["max_retries"]) == ("second", 2)


def test_a_breaker_that_comes_later(scheduler: ManualScheduler) -> None:
    @scheduler.job(name="later")
    def later(number: int) -> None: ...

    assert record(scheduler, scheduler.enqueue_now(later, 1))["stream"].breaker is None
    circuit_breaker("gateway")(later)
    assert record(scheduler, scheduler.enqueue_now(later, 1))["stream"].breaker == "gateway"


def test_mistakes_are_refused_each_time(scheduler: ManualScheduler) -> None:
    """Nothing is stored, whether or not the target is known already."""
    for _ in range(2):
        with pytest.raises(InvalidJob, match="do not fit"):
            scheduler.enqueue_now(charge)  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="do not fit"):
            scheduler.enqueue_now(charge, 1, curency="CHF")  # type: ignore[call-arg]
        with pytest.raises(InvalidJob, match="follows none"):
            scheduler.enqueue_now(charge, RESULT)
        with pytest.raises(InvalidTarget, match="brings its own arguments"):
            scheduler.enqueue_now(lambda number: charge(number), 1)
    assert scheduler.jobs.count() == 0


def test_a_function_that_is_called_like_a_lambda(scheduler: ManualScheduler) -> None:
    """Refused as one: no worker could find it by that name."""
    disguised = FunctionType(charge.__code__, charge.__globals__, "<lambda>")
    with pytest.raises(InvalidTarget):
        scheduler.enqueue_now(disguised, 1)
