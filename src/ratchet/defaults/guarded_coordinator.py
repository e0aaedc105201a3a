"""A guard around a user's `ClusterCoordinator`: no submission fails or waits because of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ratchet.model.status import Priority
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.fault_log import FaultLog

#: Seconds that `stop` gives a message that is being sent.
LAST_MESSAGE = 1.0


class GuardedCoordinator:
    """
    Sends messages from a thread of its own, one for many calls, and turns errors into a warning.

    The job is stored by then, so an error must not reach the submitter, who would submit it again. ``start``, ``stop``
    and ``connected`` may be missing: a coordinator that needs no connection has only the other two methods.
    """

    def __init__(self, inner: ClusterCoordinator) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._due: Priority | None = None
        self._sending: threading.Thread | None = None
        self._faults = FaultLog(logging.getLogger("ratchet.wakeups"), logging.WARNING)
        self._listens = True

    @property
    def connected(self) -> bool:
        """What the coordinator says, if it can tell; False if it could not be told whom to wake."""
        try:
            return self._listens and bool(getattr(self._inner, "connected", True))
        except BaseException:
            return False

    def notify_new_work(self, priority: Priority) -> None:
        """Return at once; the message follows."""
        with self._lock:
            self._due = priority if self._due is None else max(self._due, priority)
            if self._sending is None:
                sending = threading.Thread(target=self._send, name="ratchet-wakeup", daemon=True)
                try:
                    sending.start()
                except RuntimeError as error:  # no more threads, or the interpreter is ending
                    self._note(error)
                else:
                    self._sending = sending

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Pass it on."""
        self._listens = self._call("register_wakeup_listener", listener)

    def start(self) -> None:
        """Pass it on; without wakeups a node still works, but finds jobs later."""
        if hasattr(self._inner, "start") and not self._call("start"):
            self._listens = False

    def stop(self) -> None:
        """Wait a moment for the message that is being sent, then pass it on."""
        sending = self._sending
        if sending is not None:
            sending.join(LAST_MESSAGE)
        if hasattr(self._inner, "stop"):
            self._call("stop")

    def _send(self) -> None:
        while (priority := self._take()) is not None:
            self._call("notify_new_work", priority)

    def _take(self) -> Priority | None:
        with self._lock:
            due, self._due = self._due, None
            if due is None:
                self._sending = None
            return due

    def _call(self, method: str, *arguments: object) -> bool:
        """Call a method of the coordinator; False if it raised."""
        try:
            getattr(self._inner, method)(*arguments)
        except BaseException as error:
            self._note(error)
            return False
        return True

    def _note(self, error: BaseException) -> None:
        self._faults.note(
            "the cluster coordinator raised; other nodes see new jobs with their next poll", error
        )
