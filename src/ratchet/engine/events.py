"""
Events: listeners of this process, called on one thread, in commit order, at most once.

A listener that raises, `SystemExit` too, is logged and does not disturb the others. The queue is bounded: while
listeners cannot keep up, the oldest events are dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ratchet.model.events import Event
from ratchet.spi.fault_log import FaultLog

logger = logging.getLogger("ratchet.events")
faults = FaultLog(logger)

E = TypeVar("E", bound=Event)
Listener = Callable[[Any], object]


class EventBus:
    """Takes events from the engine and gives them to listeners when `run_once` is called."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._listeners: dict[type[Event], tuple[Listener, ...]] = {}
        self._changing = threading.Lock()
        self._queue: deque[Event] = deque()
        self._dispatching = threading.Lock()
        self.dropped = 0
        self.has_listeners = False
        self.on_event: Callable[[], None] = lambda: None

    def subscribe(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call *listener* for every event of *kind* and of what derives from it."""
        with self._changing:
            self._listen({**self._listeners, kind: (*self._listeners.get(kind, ()), listener)})

    def unsubscribe(self, listener: Callable[..., object]) -> bool:
        """Call *listener* no more, not even for events that are queued; False if it was not subscribed."""
        with self._changing:
            left = {
                kind: tuple(one for one in listeners if one != listener)
                for kind, listeners in self._listeners.items()
            }
            changed = left != self._listeners
            self._listen({kind: listeners for kind, listeners in left.items() if listeners})
        return changed

    def _listen(self, listeners: dict[type[Event], tuple[Listener, ...]]) -> None:
        # Replaced as a whole: other threads may be reading the old ones.
        self._listeners = listeners
        self.has_listeners = bool(listeners)

    def wants(self, kind: type[Event]) -> bool:
        """True if anybody listens for *kind*; an event that nobody hears need not be made."""
        listeners = self._listeners
        return bool(listeners) and any(issubclass(kind, heard) for heard in listeners)

    def publish(self, event: Event) -> None:
        """Queue *event*; never blocks and never raises."""
        if not self.wants(type(event)):
            return
        self._queue.append(event)
        if len(self._queue) > self._limit:
            self._drop_oldest()
        self.on_event()

    def _drop_oldest(self) -> None:
        try:
            self._queue.popleft()
        except IndexError:
            return  # they were delivered just now
        self.dropped += 1
        if self.dropped == 1 or self.dropped % 1000 == 0:
            logger.warning(
                "listeners are too slow: more than %d events wait (event_queue_size), and the oldest are dropped; %d so far",
                self._limit,
                self.dropped,
            )

    def run_once(self) -> int:
        """Deliver what is queued; how many events that was."""
        delivered = 0
        with self._dispatching:
            while self._queue:
                self._deliver(self._queue.popleft())
                delivered += 1
        return delivered

    flush = run_once

    def _deliver(self, event: Event) -> None:
        for kind, listeners in self._listeners.items():
            if not isinstance(event, kind):
                continue
            for listener in listeners:
                try:
                    listener(event)
                except BaseException as error:
                    faults.note(f"a listener for {type(event).__name__} raised: {_name(listener)}", error)


def _name(listener: Listener) -> str:
    """How to find it in the code."""
    module, name = getattr(listener, "__module__", None), getattr(listener, "__qualname__", None)
    return f"{module}:{name}" if module and name else f"a {type(listener).__name__}"
