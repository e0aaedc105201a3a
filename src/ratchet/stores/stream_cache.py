"""The ids of streams that a process has looked up, and how long it relies on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from ratchet.model.job import StreamKey

#: Seconds.
HOUR = 3600.0

#: Keys kept in memory; beyond it the cache starts over (a fairness key per customer can make many).
_CACHED = 20_000


class Trust:
    """
    Ends after a while, and then begins anew.

    By both clocks: one stands still while the machine sleeps, the other may be set back.
    """

    __slots__ = ("_from", "_lasts", "_monotonic", "_until", "_wall")

    def __init__(
        self,
        lasts: float = HOUR,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lasts = lasts
        self._monotonic = monotonic
        self._wall = wall
        self._begin()

    def _begin(self) -> None:
        self._until = self._monotonic() + self._lasts
        self._from = self._wall()

    def is_over(self) -> bool:
        """True once, when its time has come; forget then what was read before."""
        if self._monotonic() < self._until and -self._lasts < self._wall() - self._from < self._lasts:
            return False
        self._begin()
        return True


class StreamCache:
    """
    Small integers for stream keys, as far as this process has met them.

    A stream never changes its key. It is deleted when no job has used it for days (`unused_streams`). So an id is
    looked up again when this process has not done so for an hour; the key of an id is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trust = Trust()
        self._trusted: dict[StreamKey, int] = {}
        self._keys: dict[int, StreamKey] = {}

    def known_ids(self) -> Mapping[StreamKey, int]:
        """The ids that were looked up within the last hour."""
        if self._trust.is_over():
            with self._lock:
                self._trusted = {}
        return self._trusted

    def known(self, key: StreamKey) -> int | None:
        """The id of a stream that this process has looked up within the last hour."""
        return self.known_ids().get(key)

    def known_key(self, stream_id: int) -> StreamKey | None:
        """The key of a stream that this process has met."""
        return self._keys.get(stream_id)

    def remember_key(self, stream_id: int, key: StreamKey) -> None:
        """Keep the key of a stream, but not its id: one that was set aside must get no new jobs."""
        with self._lock:
            self._keys[stream_id] = key

    def remember(self, found: Mapping[StreamKey, int]) -> None:
        """Keep the ids of streams that were just looked up."""
        with self._lock:
            if len(self._trusted) + len(found) > _CACHED or len(self._keys) > 2 * _CACHED:
                self._trusted.clear()
                self._keys.clear()
            self._trusted.update(found)
            self._keys.update((stream_id, key) for key, stream_id in found.items())

    def forget(self, stream_ids: Iterable[int]) -> None:
        """Drop streams that no longer exist."""
        with self._lock:
            for stream_id in stream_ids:
                key = self._keys.pop(stream_id, None)
                if key is not None and self._trusted.get(key) == stream_id:
                    del self._trusted[key]
