"""Functions and methods that become jobs in the tests of targets."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ratchet.api.targets import TargetRegistry
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.target_policy import PrefixTargetPolicy

HERE = __name__


def charge(invoice_id: int, *, currency: str = "EUR") -> str:
    return f"{invoice_id} {currency}"


async def charge_async(invoice_id: int) -> str:
    return f"{invoice_id}"


def numbers() -> Iterator[int]:
    yield 1


async def numbers_async() -> AsyncIterator[int]:
    yield 1


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return ("traced", function(*args, **kwargs))

    return wrapper


def careless(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
def wrapped(number: int) -> int:
    return number


@careless
def hidden(number: int) -> int:
    return number


@functools.lru_cache
def cached(number: int) -> int:
    return number


class Ledger:
    """What OrderService inherits from."""

    def close(self, day: str) -> str:
        return f"{type(self).__name__} closed {day}"


class OrderService(Ledger):
    """A class whose methods run as jobs."""

    def __init__(self) -> None:
        self.made = True

    def process(self, order_id: int) -> tuple[bool, int]:
        return (self.made, order_id)

    async def process_async(self, order_id: int) -> int:
        return order_id

    @staticmethod
    def check(order_id: int) -> int:
        return order_id

    @classmethod
    def audit(cls, order_id: int) -> tuple[str, int]:
        return (cls.__name__, order_id)

    class Inner:
        """A class in a class."""

        def run(self) -> str:
            return "inner"

    def __call__(self) -> None: ...


orders = OrderService()


def run(registry: TargetRegistry, target: Any, *args: Any) -> Any:
    """Store the target, resolve the stored name in a registry that never saw it, and call it."""
    stored = registry.describe(target, args)
    worker = TargetRegistry(PrefixTargetPolicy([HERE]))
    return worker.resolve(stored.target).bind(DefaultInstanceResolver())(*stored.args, **stored.kwargs)


def add_function(module: ModuleType, name: str) -> Any:
    """Give *module* a function of its own, as running it would."""
    function = FunctionType(charge.__code__, vars(module), name)
    function.__qualname__ = name
    function.__kwdefaults__ = {"currency": "EUR"}
    setattr(module, name, function)
    return function


def nested() -> Callable[..., Any]:
    def inner() -> None: ...

    return inner


ShopMaker = Callable[..., ModuleType]
