"""Streams and queues: where claims look for jobs, and what can be paused."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ratchet.model.cluster import QueueRecord, StreamRecord


class StreamStore(Protocol):
    """Reads streams; pauses and resumes queues."""

    def streams(self) -> list[StreamRecord]:
        """All streams, by id."""
        ...

    def parked_targets(self) -> list[str]:
        """The targets for which jobs were ever parked, by name; every node asks this every few seconds."""
        ...

    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Set aside streams that nobody has submitted to since *before* and that have no waiting job. Delete streams that
        were set aside before *before* and that no job has, not even in the archive. How many of both; at most *limit*.

        A stream that is set aside still serves the jobs that have it, but a new job with the same key gets another
        stream. Submitters may rely for an hour on what they know of a stream, so *before* must be days ago. The
        number of a stream is never used again. If a job's stream is missing after all, it is restored.
        """
        ...

    def queues(self) -> list[QueueRecord]:
        """All queues that were ever used or paused, with counts."""
        ...

    def pause_queue(self, name: str, *, now: datetime) -> bool:
        """Close a queue for claims; one write, however many jobs wait in it. True if it was open."""
        ...

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open a queue again. True if it was paused."""
        ...
