from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from ratchet.model.breaker import Guard

T = TypeVar("T")


class ResilienceStrategy(Protocol):
    """
    Stands between jobs and a service that may be down: the circuit breaker.

    A job that is not permitted is rescheduled after ``retry_after`` without consuming an attempt.
    Implementations count what ``execute`` sees; ``JobInterrupted`` and ``RetryLater`` say nothing
    about the service and are not counted. If ``permits`` raises, or answers with neither True nor False, the job
    runs. All methods may be missing.
    """

    def permits(self, service: str) -> bool:
        """True if a job that uses *service* may start now; asked right before each run."""
        ...

    def retry_after(self, service: str) -> timedelta:
        """How long a job that was not permitted should wait; zero where the service is available."""
        ...

    def execute(self, service: str, call: Callable[[], T], *, guard: Guard | None = None) -> T:
        """
        What *call* returns or raises, recorded as a success or failure of *service*.

        The call is made at most once, and what it does is the outcome of the run, whatever is returned or raised
        here; what is raised before the call was made fails the attempt.
        *guard* is what the target's ``circuit_breaker`` says: settings, and exceptions that count or do not.
        """
        ...

    async def execute_async(
        self, service: str, call: Callable[[], Awaitable[T]], *, guard: Guard | None = None
    ) -> T:
        """The same for a coroutine function's call."""
        ...
