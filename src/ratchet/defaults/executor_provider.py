from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.context import BaseContext


class DefaultExecutorProvider:
    """Daemon threads, and processes that are spawned."""

    def thread(self, run: Callable[[], None], *, name: str) -> Thread:
        """A daemon thread, not yet started, that calls *run* once."""
        return Thread(target=run, name=name, daemon=True)

    def job_pool(self, slots: int) -> Executor | None:
        """None: jobs run on threads of their own."""
        return None

    def process_context(self) -> BaseContext:
        """The "spawn" context: slower to start than "forkserver", but it works everywhere."""
        import multiprocessing  # only the process lane needs it

        return multiprocessing.get_context("spawn")
