from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from multiprocessing.context import BaseContext


class ExecutorProvider(Protocol):
    """
    Makes the threads and processes that a node runs jobs on.

    The engine decides how many and what they do; the provider decides what they are: stack size,
    names, instrumentation, another start method.
    """

    def thread(self, run: Callable[[], None], *, name: str) -> Thread:
        """
        A thread, not yet started, that calls *run* once.

        It must be a daemon: a job that ignores its interruption must not keep the process alive.
        """
        ...

    def job_pool(self, slots: int) -> Executor | None:
        """
        The application's own pool, on whose threads ordinary functions run; None: on threads that `thread` makes.

        The node keeps *slots* calls running in it until it stops, so the pool must have room for that many beside
        its other work. It stays the application's: the node never shuts it down. If a job ignores its
        interruption, a thread of `thread` takes its slot.
        """
        ...

    def process_context(self) -> BaseContext:
        """
        The multiprocessing context of the process lane: "spawn" or "forkserver".

        Never "fork": the child would inherit locks and connections in whatever state they were in.
        """
        ...
