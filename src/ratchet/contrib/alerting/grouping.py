"""Many events of one cause are one message, and one more that says how many came since."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from msgspec import Struct

from ratchet.contrib.alerting.messages import cause_of
from ratchet.model.events import Event

#: Causes that are remembered at the same time.
MOST_GROUPS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Group(Struct):
    """The events of one cause since the one that was told."""

    first: Event
    since: datetime
    key: str  # of the cause and window: the same in every process
    more: int = 0


class Groups:
    """
    Counts what this process has heard.

    Time is cut into windows that are the same in every process, so that of several processes one sends the message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, ...], Group] = {}
        self._over: list[Group] = []

    def note(self, event: Event, now: datetime, window: timedelta) -> Group | None:
        """The new group that *event* opens; None if it was counted by one that is open."""
        cause = cause_of(event)
        with self._lock:
            group = self._open.get(cause)
            if group is not None and now < group.since + window:
                group.more += 1
                return None
            self._close(cause)
            self._open[cause] = opened = Group(event, now, window_key(cause, now, window))
            if len(self._open) > MOST_GROUPS:
                self._close(next(iter(self._open)))
            return opened

    def ended(self, now: datetime, window: timedelta, *, all_of_them: bool = False) -> list[Group]:
        """The groups whose window is over, or all, that have counted something; each is told once."""
        with self._lock:
            for cause in [
                one for one, group in self._open.items() if all_of_them or now >= group.since + window
            ]:
                self._close(cause)
            over, self._over = self._over, []
        return over

    def _close(self, cause: tuple[str, ...]) -> None:
        group = self._open.pop(cause, None)
        if group is not None and group.more:
            self._over.append(group)


def window_key(cause: tuple[str, ...], now: datetime, window: timedelta) -> str:
    """The name of a cause in the window that *now* falls into."""
    number = (now - _EPOCH) // max(window, timedelta(microseconds=1))
    return sha256("\n".join((*cause, str(number))).encode(errors="replace")).hexdigest()[:32]
