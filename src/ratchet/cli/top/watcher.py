"""`Watcher`: takes snapshots again and again, also while the database is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime

from ratchet.cli.top.snapshot import Snapshot
from ratchet.model.errors import RatchetError

#: Between two snapshots there are so many times as long as one takes: looking must not be what loads the database.
REST_SHARE = 4.0


class Watcher:
    """A thread that keeps the latest snapshot; ``error`` says since when and why there is no newer one."""

    def __init__(self, take: Callable[[], Snapshot], interval: float) -> None:
        self._take = take
        self._interval = interval
        self._wakeup = threading.Event()
        self._stopping = False
        self.latest: Snapshot | None = None
        self.error: tuple[datetime, str] | None = None
        self.version = 0  # grows whenever one of the two has changed
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name="ratchet-top", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a question that the database does not answer is not waited for."""
        self._stopping = True
        self._wakeup.set()
        self._thread.join(1.0)

    def look_now(self) -> None:
        """Take the next snapshot at once."""
        self._wakeup.set()

    def look(self) -> None:
        """Take one snapshot, or note why it could not be taken."""
        try:
            self.latest, self.error = self._take(), None
        except RatchetError as error:
            since = self.error[0] if self.error is not None else datetime.now(UTC)
            self.error = (since, str(error))
        self.version += 1

    def _run(self) -> None:
        while not self._stopping:
            begun = time.monotonic()
            self._wakeup.clear()
            self.look()
            taken = time.monotonic() - begun
            self._wakeup.wait(max(self._interval - taken, REST_SHARE * taken))
