"""Signals of the operating system, collected in a list: they wake the loop, which then handles them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: SIGCHLD only wakes the loop, which then looks after its children.
RECEIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class SignalInbox:
    """
    Collects signals while `open`; works only in the main thread, as all signal handlers in Python.

    ``descriptor`` becomes readable when a signal arrives.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.descriptor, self._sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._sending, False)
        self._received: list[tuple[int, float]] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Collect signals while the block runs; afterwards the handlers from before are back."""
        # If SIGHUP is ignored, as under nohup, it stays ignored. SIGCHLD is taken even if it was ignored:
        # otherwise the system reaps children by itself, and nobody learns of their death.
        taken = [each for each in RECEIVED if not (each == signal.SIGHUP and _is_ignored(each))]
        before = {number: signal.signal(number, self.receive) for number in taken}
        previous = signal.set_wakeup_fd(self._sending, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self.descriptor)
            os.close(self._sending)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Note a signal, and when it came: the loop may be busy."""
        if number != signal.SIGCHLD:
            self._received.append((number, self._monotonic()))

    def take(self) -> list[tuple[int, float]]:
        """The signals since the last call, in order, each with its time."""
        taken, self._received = self._received, []
        return taken

    def __bool__(self) -> bool:
        """True while signals wait to be taken."""
        return bool(self._received)

    def quiet(self) -> None:
        """Empty the descriptor, so that only the next signal makes it readable again."""
        try:
            os.read(self.descriptor, 4096)
        except BlockingIOError:
            pass


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def interrupts_held() -> Iterator[None]:
    """
    Hold Ctrl-C back while the block runs; a process that is started inherits this, and ends it when it is ready.

    Otherwise Ctrl-C would end a child that has not reached its first line, with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release_interrupts() -> None:
    """Let Ctrl-C through again, in a process that was started under `interrupts_held`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
