from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

T = TypeVar("T")


class ResilienceStrategy(Protocol):
    """
    Stands between jobs and a service that may be down: the circuit breaker.

    A job that is not permitted is rescheduled after ``retry_after`` without consuming an attempt.
    Implementations count what ``execute`` sees; ``JobInterrupted`` and ``RetryLater`` say nothing
    about the service and are not counted.
    """

    def permits(self, service: str) -> bool:
        """True if a job that uses *service* may start now; asked right before each run."""
        ...

    def retry_after(self, service: str) -> timedelta:
        """How long a job that was not permitted should wait; zero where the service is available."""
        ...

    def execute(self, service: str, call: Callable[[], T]) -> T:
        """What *call* returns or raises, recorded as a success or failure of *service*."""
        ...

    async def execute_async(self, service: str, call: Callable[[], Awaitable[T]]) -> T:
        """The same for a coroutine function's call."""
        ...
