"""The supervisor's heartbeats, for nodes whose own threads may be held up by user code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

from ratchet.cli.worker.messages import Ready
from ratchet.model.clock import DatabaseClock
from ratchet.model.errors import RatchetError
from ratchet.model.options import Options
from ratchet.model.status import Priority
from ratchet.spi.store import JobStore
from ratchet.stores import open_store

logger = logging.getLogger("ratchet.worker")

#: The database's clock is read once in this many beats.
SAMPLE_EVERY = 30


class Heartbeats:
    """
    Beats for the nodes that *alive* names, from a thread of its own.

    In a child, one C call may hold the interpreter lock for many seconds although the child is alive.
    A process without user code is always on time. The thread asks *alive* right before each beat, so
    that nobody beats for a node whose process has died or was stopped.
    """

    def __init__(
        self,
        alive: Callable[[], Sequence[str]],
        *,
        open_store: Callable[[str, Options], JobStore] = open_store,
    ) -> None:
        self._alive = alive
        self._open = open_store
        self._store: JobStore | None = None
        self._clock = DatabaseClock()
        self._interval = 2.0
        self._beats = 0
        self._failures = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, ready: Ready) -> None:
        """Begin, with the store of the first child that is ready; later calls change nothing."""
        if self._thread is not None or not ready.shared:
            return
        self._store = self._open(ready.url, Options(**{**ready.options, "pool_size": 3}))
        self._interval = ready.heartbeat
        self._thread = threading.Thread(target=self._run, name="ratchet-heartbeats", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """One beat for all nodes. An error is logged now and then; the next beat tries again."""
        store, nodes = self._store, self._alive()
        if store is None or not nodes:
            return
        try:
            if self._beats % SAMPLE_EVERY == 0:
                self._sample(store)
            self._beats += 1
            store.beat_only(nodes, now=self._clock.now())
            self._failures = 0
        except RatchetError as error:
            self._failures += 1
            if self._failures == 1 or self._failures % SAMPLE_EVERY == 0:
                logger.warning(
                    "the supervisor could not beat for its processes: %s (will go on trying)", error
                )
        except Exception:
            logger.exception("the supervisor could not beat for its processes")

    def release(self, node_id: str) -> None:
        """Hand back the jobs that a node still held when it was made to end; it costs them no attempt."""
        if self._store is None:
            return
        try:
            back = self._store.deregister(node_id, now=self._clock.now())
        except RatchetError as error:
            logger.warning(
                "node %s could not be released (%s); others will notice its silence", node_id, error
            )
            return
        if back:
            logger.info("%d jobs of node %s were handed back", back, node_id)
            self._wake_others(self._store)

    @staticmethod
    def _wake_others(store: JobStore) -> None:
        """Other nodes may be free. A coordinator of the app's own is out of reach here: its children wake by that."""
        coordinator = store.coordinator()
        if coordinator is not None:
            coordinator.notify_new_work(Priority.NORMAL)
            coordinator.stop()

    def close(self) -> None:
        """End the thread and free the connections."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self._store is not None:
            self._store.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = self._clock.monotonic()
            self.beat()
            self._stop.wait(max(0.0, self._interval - (self._clock.monotonic() - begun)))

    def _sample(self, store: JobStore) -> None:
        asked = self._clock.monotonic()
        told = store.database_time()
        self._clock.sample(told, timedelta(seconds=self._clock.monotonic() - asked))
