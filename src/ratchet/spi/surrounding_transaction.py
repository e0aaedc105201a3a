"""Transactions that an application's framework keeps for its callers, and that submissions join by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SurroundingTransaction(Protocol):
    """
    Knows which transaction of the scheduler's own database surrounds the calling code.

    For frameworks that keep one connection for each thread, and open and end transactions on it. What is submitted or
    changed without ``within=`` joins that transaction. Both methods are called on the submitting thread, and must open nothing.
    """

    def current(self) -> object | None:
        """What to pass as ``within=``; None if no transaction is open here. May raise if the one that is open is broken."""
        ...

    def on_commit(self, action: Callable[[], object]) -> None:
        """Call *action* once that transaction has committed; never, if what was written is rolled back."""
        ...
