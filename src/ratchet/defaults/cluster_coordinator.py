from __future__ import annotations

from collections.abc import Callable

from ratchet.model.status import Priority


class NoOpClusterCoordinator:
    """Tells nobody: other nodes find new work with their next poll."""

    @property
    def connected(self) -> bool:
        """False: nothing ever arrives."""
        return False

    def notify_new_work(self, priority: Priority) -> None:
        """Do nothing."""

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Forget *listener*: no notification will ever arrive."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""
