from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from ratchet.model.breaker import Guard

T = TypeVar("T")


class NoOpResilience:
    """Permits everything and records nothing."""

    def permits(self, service: str) -> bool:
        """Always True."""
        return True

    def retry_after(self, service: str) -> timedelta:
        """Always zero."""
        return timedelta(0)

    def execute(self, service: str, call: Callable[[], T], *, guard: Guard | None = None) -> T:
        """What *call* returns or raises."""
        return call()

    async def execute_async(
        self, service: str, call: Callable[[], Awaitable[T]], *, guard: Guard | None = None
    ) -> T:
        """What awaiting *call* returns or raises."""
        return await call()
