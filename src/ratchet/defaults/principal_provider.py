from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class ContextPrincipalProvider:
    """
    Remembers the principal of the current thread or task.

    A web framework's middleware wraps each request in ``acting_as(user)``; asyncio tasks inherit
    the principal of the task that started them.
    """

    def __init__(self) -> None:
        self._principal: ContextVar[str | None] = ContextVar("ratchet_principal", default=None)

    def current(self) -> str | None:
        """The principal of the innermost ``acting_as`` block around the caller."""
        return self._principal.get()

    @contextmanager
    def acting_as(self, principal: str | None) -> Iterator[None]:
        """Submit as *principal* inside the block; None hides an outer one."""
        token = self._principal.set(principal)
        try:
            yield
        finally:
            self._principal.reset(token)
