"""A log for the faults of replaceable parts: a part that fails for every job must not fill the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

#: Seconds for which the same fault is only counted once it was logged.
QUIET = 60.0


class FaultLog:
    """Logs a fault at once, and the same fault after that at most once a minute, with how often it has happened meanwhile."""

    def __init__(
        self,
        logger: logging.Logger,
        level: int = logging.ERROR,
        monotonic: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._level = level
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, int]] = {}  # when it was last logged, and how often it came since

    def note(self, what: str, error: BaseException | None = None, *, where: str = "") -> None:
        """
        *what* has happened, because of *error*. Equal texts are the same fault, so that no value belongs in them.

        *where* says which job or thing has met it; it is logged with the fault, and others with the same are counted.
        """
        now = self._monotonic()
        with self._lock:
            logged_at, uncounted = self._seen.get(what, (None, 0))
            if logged_at is not None and now - logged_at < QUIET:
                self._seen[what] = (logged_at, uncounted + 1)
                return
            # Remembered before it is logged: a log handler may meet the same fault.
            self._seen[what] = (now, 0)
        place = f" ({where})" if where else ""
        more = f" ({uncounted} more times since this was last logged)" if uncounted else ""
        self._logger.log(self._level, "%s%s%s", what, place, more, exc_info=error)
