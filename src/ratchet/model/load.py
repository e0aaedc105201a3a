"""What waits and what runs, stream by stream: what a health check reads of the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from ratchet.model.job import StreamKey

#: How far jobs are counted: a count that is this high may be higher.
COUNTED: Final = 10_000


class StreamLoad(Struct, frozen=True, kw_only=True):
    """
    One stream that has waiting or running jobs.

    ``due``: how many wait although their time has come, ``first_at``: when the first of all that wait is (or was)
    due, ``running`` and ``claimed_at``: how many run, and when the last of these was claimed.
    """

    stream_id: int
    key: StreamKey
    due: int = 0
    first_at: datetime | None = None
    running: int = 0
    claimed_at: datetime | None = None


class Load(Struct, frozen=True, kw_only=True):
    """What waits and runs. Counts of what waits, and of dead letters, end at a limit."""

    streams: tuple[StreamLoad, ...] = ()
    pending: int = 0
    dead_letters: int = 0
    dead_letters_since: datetime | None = None  # when the oldest of them failed

    @property
    def running(self) -> int:
        """How many jobs run."""
        return sum(stream.running for stream in self.streams)

    @property
    def due(self) -> int:
        """How many jobs wait although their time has come."""
        return sum(stream.due for stream in self.streams)
