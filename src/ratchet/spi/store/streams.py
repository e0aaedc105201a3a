"""Streams and queues: what the claim walks, and what can be paused."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ratchet.model.cluster import QueueRecord, StreamRecord


class StreamStore(Protocol):
    """Reads streams; pauses and resumes queues."""

    def streams(self) -> list[StreamRecord]:
        """All streams by id."""
        ...

    def parked_targets(self) -> list[str]:
        """The targets for which jobs were ever parked, by name; asked by every node every few seconds."""
        ...

    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Set aside streams that nobody has submitted to since *before* and that have no waiting job; delete those that
        were set aside before *before* and that no job has, also none in the archive. How many of both, at most *limit*.

        A stream that is set aside is still there for the jobs that have it, but a new job with the same key gets
        another stream. Submitters may believe for an hour that a stream is as they found it: *before* is days ago. A
        number is not used again. A job whose stream is missing all the same gets it back.
        """
        ...

    def queues(self) -> list[QueueRecord]:
        """All queues that were ever used or paused, with counts."""
        ...

    def pause_queue(self, name: str, *, now: datetime) -> bool:
        """Close a queue for claims; one write, however many jobs wait in it. True: it was open."""
        ...

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open it again. True: it was paused."""
        ...
