"""A slot of a worker: it always has a child process, or is about to get one."""

from __future__ import annotations

from collections.abc import Callable

from ratchet.cli.worker.child_process import ChildProcess

#: A child that dies this soon after it was ready counts as crashed right after the start, in seconds.
RIGHT_AWAY = 1.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


class ChildSlot:
    """
    Keeps one child running. After a first crash the next child starts at once; after further crashes
    that come right after the start, with pauses that grow to half a minute.

    ``current`` does the work; ``successor`` is being started to replace it.
    """

    def __init__(self, number: int, start_child: Callable[[], ChildProcess]) -> None:
        self.number = number
        self._start_child = start_child
        self.current: ChildProcess | None = None
        self.successor: ChildProcess | None = None
        self.crashes = 0  # in a row, right after the start
        self.restart_at: float | None = 0.0
        self.renew_at = 0.0  # not before: a successor has just failed to start
        self.retired = False  # its node was stopped from afar: it is not filled again

    @property
    def children(self) -> list[ChildProcess]:
        """The child processes in this slot."""
        return [child for child in (self.current, self.successor) if child is not None]

    def fill(self, now: float) -> bool:
        """Start a child if the slot is empty and its pause is over; True if one was started."""
        if self.current is not None or self.retired or self.restart_at is None or now < self.restart_at:
            return False
        self.current = self._start_child()
        return True

    def renew(self) -> bool:
        """Start a successor; the current child works until it is ready. False: one is starting, or the slot is empty."""
        if self.current is None or self.successor is not None:
            return False
        self.successor = self._start_child()
        return True

    def vacate(self, now: float) -> ChildProcess | None:
        """Let the current child leave; the slot is filled again at once."""
        child, self.current = self.current, None
        self.restart_at = now
        return child

    def promote(self) -> ChildProcess | None:
        """The successor is ready and becomes the current child; returns the one before."""
        old, self.current, self.successor = self.current, self.successor, None
        self.crashes = 0
        return old

    def lost(self, child: ChildProcess, now: float) -> None:
        """*child* has ended without being told to: plan the next one."""
        if child is self.successor:
            self.successor = None  # the current child goes on
            self.renew_at = now + LONGEST_PAUSE
            return
        self.current = self.successor
        self.successor = None
        lived = 0.0 if child.ready_at is None else now - child.ready_at
        self.crashes = 0 if lived >= RIGHT_AWAY else self.crashes + 1
        self.restart_at = now + self.pause

    @property
    def pause(self) -> float:
        """How long to wait after the crashes so far."""
        if self.crashes <= 1:
            return 0.0
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.crashes - 2)))
