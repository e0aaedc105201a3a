from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import BaseContext
from threading import Thread
from typing import Protocol


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

    def process_context(self) -> BaseContext:
        """
        The multiprocessing context of the process lane: "spawn" or "forkserver".

        Never "fork": the child would inherit locks and connections in whatever state they were in.
        """
        ...
