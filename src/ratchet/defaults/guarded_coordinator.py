"""A guard around a user's `ClusterCoordinator`: no submission fails or waits because of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ratchet.model.status import Priority
from ratchet.spi.cluster_coordinator import ClusterCoordinator

logger = logging.getLogger("ratchet.wakeups")

#: Seconds that `stop` gives a message that is being sent.
LAST_MESSAGE = 1.0


class GuardedCoordinator:
    """
    Sends messages from a thread of its own, one for many calls, and turns errors into a warning.

    The job is stored by then, so an error must not reach the submitter, who would submit it again.
    """

    def __init__(self, inner: ClusterCoordinator) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._due: Priority | None = None
        self._sending: threading.Thread | None = None
        self._complained = False

    @property
    def connected(self) -> bool:
        """What the coordinator says, if it can tell."""
        try:
            return bool(getattr(self._inner, "connected", True))
        except Exception:
            return False

    def notify_new_work(self, priority: Priority) -> None:
        """Return at once; the message follows."""
        with self._lock:
            self._due = priority if self._due is None else max(self._due, priority)
            if self._sending is None:
                self._sending = threading.Thread(target=self._send, name="ratchet-wakeup", daemon=True)
                self._sending.start()

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Pass it on."""
        self._guarded(lambda: self._inner.register_wakeup_listener(listener))

    def start(self) -> None:
        """Pass it on; without wakeups a node still works, but finds jobs later."""
        self._guarded(self._inner.start)

    def stop(self) -> None:
        """Wait a moment for the message that is being sent, then pass it on."""
        sending = self._sending
        if sending is not None:
            sending.join(LAST_MESSAGE)
        self._guarded(self._inner.stop)

    def _send(self) -> None:
        while (priority := self._take()) is not None:
            self._guarded(lambda due=priority: self._inner.notify_new_work(due))  # type: ignore[misc]

    def _take(self) -> Priority | None:
        with self._lock:
            due, self._due = self._due, None
            if due is None:
                self._sending = None
            return due

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
            self._complained = False
        except Exception:
            if not self._complained:
                logger.warning(
                    "the cluster coordinator raised; other nodes see new jobs with their next poll",
                    exc_info=True,
                )
            self._complained = True
