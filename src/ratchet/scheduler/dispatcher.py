"""`Dispatcher`: how this process tells its listeners, also while it runs no node."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ratchet.model.events import Event
from ratchet.spi.executor_provider import ExecutorProvider

if TYPE_CHECKING:
    from ratchet.engine.events import EventBus
    from ratchet.engine.service import Service


class Dispatcher:
    """
    The event bus of a scheduler and, where no node drives it, a thread that does.

    Both are made when they are first needed: a process without listeners and events has neither.
    """

    def __init__(self, queue_size: int, executor: ExecutorProvider) -> None:
        #: How many events may wait; what counts is what it says when the first listener comes.
        self.queue_size = queue_size
        self._executor = executor
        self._lock = threading.RLock()
        self._bus: EventBus | None = None
        self._telling: Service | None = None

    @property
    def bus(self) -> EventBus:
        """Where events go."""
        with self._lock:
            if self._bus is None:
                from ratchet.engine.events import EventBus

                self._bus = EventBus(self.queue_size)
            return self._bus

    def hears(self, event: type[Event]) -> bool:
        """True if somebody listens for *event*."""
        return self._bus is not None and self._bus.wants(event)

    def wake(self) -> None:
        """Have what is queued told, in a process that is no node: it has a thread only once there was an event."""
        from ratchet.engine.service import Service

        with self._lock:
            if self._telling is None:
                bus = self.bus

                def tell() -> float:
                    bus.run_once()
                    return 60.0  # `wake` ends the rest

                self._telling = Service("events", tell, self._executor)
                self._telling.start()
            telling = self._telling
        telling.wake()

    def flush(self) -> None:
        """Deliver what is queued, here and now."""
        if self._bus is not None:
            self._bus.flush()

    def quiet(self) -> None:
        """Let the thread of the idle process go, and deliver what is queued."""
        with self._lock:
            telling, self._telling = self._telling, None
        if telling is not None:
            telling.stop()
        self.flush()
