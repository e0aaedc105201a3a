from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ratchet.model.status import Priority


class ClusterCoordinator(Protocol):
    """
    Tells other nodes that there is new work, so that they need not wait for their next poll.

    Best effort: a lost, late or repeated notification costs time, never a job. No method raises
    because the transport is down; it logs and reconnects.

    One that can tell has a property ``connected`` as well: True while notifications of other processes
    arrive. Pollers look more often while it is False, and listeners are called when it changes, since
    something may have been missed. ``start`` and ``stop`` may be missing too: then there is nothing to connect.
    """

    def notify_new_work(self, priority: Priority) -> None:
        """Wake the pollers of all nodes; called after the submission has committed, must not block."""
        ...

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Call *listener*, from any thread, whenever a notification arrives; may be called before start."""
        ...

    def start(self) -> None:
        """Connect and begin to deliver; a second call does nothing."""
        ...

    def stop(self) -> None:
        """Deliver nothing more and free connections; a second call does nothing; start works again."""
        ...
