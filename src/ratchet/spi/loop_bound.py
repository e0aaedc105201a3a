"""
Connections of async drivers, for code that runs in a thread while their event loop waits for it.

Such a connection can be used from its event loop only. The await face runs a verb in a thread, and wraps the connection that
the caller passed as ``within=`` in a `LoopBound`: each statement of the verb is then carried out by the loop, which is free meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from ratchet.model.errors import StoreUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

T = TypeVar("T")

#: Seconds after which a thread looks whether the loop that it waits for still runs.
LOOK = 1.0


def class_names(thing: object) -> set[str]:
    """The full names of the classes that *thing* is an instance of."""
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(thing).__mro__}


class LoopBound:
    """A connection that only its event loop may use, in the hands of a thread."""

    __slots__ = ("_interrupted", "_loop", "_task", "connection")

    def __init__(self, connection: Any, loop: AbstractEventLoop) -> None:
        self.connection = connection
        self._loop = loop
        self._task: Task[Any] | None = None  # what the thread waits for; known to the loop alone
        self._interrupted = False

    def wait(self, awaitable: Awaitable[T]) -> T:
        """What *awaitable* returns on the loop; never to be called there."""
        import asyncio  # heavy, and only needed where a loop is running already

        future = asyncio.run_coroutine_threadsafe(self._carried_out(awaitable), self._loop)
        while True:
            try:
                return future.result(timeout=LOOK)
            except TimeoutError:
                if future.done():
                    raise
                if not self._loop.is_running():
                    future.cancel()
                    raise StoreUnavailable(
                        "the event loop of the connection that was passed as within= has ended"
                    ) from None

    def interrupt(self) -> None:
        """Cancel the statement that runs, or else the next one; called on the loop. What undoes them is not canceled."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._interrupted = True

    async def _carried_out(self, awaitable: Awaitable[T]) -> T:
        import asyncio

        self._task = asyncio.current_task()
        if self._interrupted and self._task is not None:
            self._interrupted = False
            self._task.cancel()
        try:
            return await awaitable
        finally:
            self._task = None


def needs_loop(connection: object) -> bool:
    """True if *connection* is async: closing it has to be awaited."""
    import inspect  # heavy, and only needed where somebody passes a connection

    close = getattr(type(connection), "close", None)
    return close is not None and inspect.iscoroutinefunction(inspect.unwrap(close))


def bound_to(loop: AbstractEventLoop, within: object) -> object:
    """*within*, wrapped if only *loop* may use it."""
    return LoopBound(within, loop) if needs_loop(within) else within


def unbound(within: object) -> object:
    """What the caller passed, for a message about it."""
    return within.connection if isinstance(within, LoopBound) else within
