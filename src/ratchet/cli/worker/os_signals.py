"""Signals as a list to be read: they interrupt a rest, and are obeyed when the loop comes round."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: SIGCHLD says nothing by itself: it ends a rest, and the loop looks after its children.
RECEIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class SignalInbox:
    """
    Collects signals while `open`; only in the main thread, as Python has it.

    ``descriptor`` becomes readable when one arrives.
    """

    def __init__(self) -> None:
        self.descriptor, self._sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._sending, False)
        self._received: list[int] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """While the block runs, signals come here; afterwards they mean what they meant before."""
        # nohup ignores SIGHUP, and means it. SIGCHLD is taken even where it was ignored: the system
        # would then reap children by itself, and nobody would learn of their death.
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
        """Take a signal."""
        if number != signal.SIGCHLD:
            self._received.append(number)

    def take(self) -> list[int]:
        """The signals since the last call, in order."""
        taken, self._received = self._received, []
        return taken

    def __bool__(self) -> bool:
        """True while signals wait to be taken."""
        return bool(self._received)

    def quiet(self) -> None:
        """Empty the descriptor, so that the next rest lasts until the next signal."""
        try:
            os.read(self.descriptor, 4096)
        except BlockingIOError:
            pass


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def interrupts_held() -> Iterator[None]:
    """
    While the block runs, Ctrl-C waits; a process that is started inherits that, and ends it when it is ready.

    Otherwise a child that has not yet come to its first line would die of it, with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release_interrupts() -> None:
    """Let Ctrl-C through again, in a process that was started under `interrupts_held`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
