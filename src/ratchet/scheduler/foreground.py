"""`Foreground`: a node in the foreground, until a signal ends it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ratchet.model.durations import Duration
from ratchet.scheduler.core import Core

logger = logging.getLogger("ratchet")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds that interrupted jobs get to end after a second signal.
LAST_WAIT = 5.0


class Foreground:
    """Keeps a node running until a signal arrives; a second one does not wait for running jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asked = threading.Event()
        self._hurried = threading.Event()

    def run(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """Start, wait for SIGTERM or SIGINT (or `leave`, or a stop from afar), drain, stop; True if every run has ended."""
        with self._listening():
            self._core.start()
            # With a timeout: the main thread handles signals only between two waits.
            while not self._asked.wait(0.5) and self._core.running:
                pass
            return self._stop(drain=drain, timeout=timeout)

    def leave(self) -> None:
        """Ask `run` to return; from any thread."""
        self._asked.set()

    def _stop(self, *, drain: bool, timeout: Duration | None) -> bool:
        ended: list[bool] = []
        stopping = threading.Thread(
            target=lambda: ended.append(self._core.stop(drain=drain, timeout=timeout)),
            name="ratchet-stop",
            daemon=True,
        )
        stopping.start()
        while stopping.is_alive() and not self._hurried.is_set():
            stopping.join(0.1)
        if self._hurried.is_set() and stopping.is_alive():
            logger.warning("a second signal arrived: running jobs are interrupted and handed back")
            node = self._core.node
            if node is not None:
                node.hurry()
            stopping.join(LAST_WAIT)
        return bool(ended and ended[0])

    def _signaled(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set():
            self._hurried.set()
        self._asked.set()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may handle signals; leave() ends it
            return
        before: dict[Any, Any] = {number: signal.signal(number, self._signaled) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
