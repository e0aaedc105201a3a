"""Streams and queues: where claims look for jobs, and what can be paused."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ratchet.model.cluster import QueueRecord, StreamRecord
from ratchet.model.load import COUNTED, Load


class StreamStore(Protocol):
    """Reads streams; pauses and resumes queues."""

    def streams(self) -> list[StreamRecord]:
        """All streams, by id."""
        ...

    def parked_targets(self) -> list[str]:
        """The places where jobs ever waited for a target or for keys, by name; every node asks this every few seconds."""
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

    def load(self, *, now: datetime, most: int = COUNTED) -> Load:
        """
        Every stream that has waiting or running jobs, by id, whatever closes it; and how many jobs wait and have failed.

        A health check asks this every few seconds. The cost grows with the number of streams and of running jobs, but
        neither with the number of waiting jobs nor with history: ``pending`` and ``dead_letters`` are counted up to
        *most*, and so are the jobs that are due, in all streams together. A stream that has any counts at least one.
        """
        ...

    def queues(self, *, counting: bool = True) -> list[QueueRecord]:
        """All queues that were ever used or paused, with counts; without *counting* these are 0."""
        ...

    def pause_queue(self, name: str, *, now: datetime, until: datetime | None = None) -> bool:
        """
        Close a queue for claims; one row, however many jobs wait in it. True if that changed anything.

        From *until* on its jobs are claimed again, though nobody writes anything then, and `next_due_at` says when. A
        later call gives a paused queue another time, or none. ``QueueRecord.paused`` stays True after *until*.
        """
        ...

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open a queue again. True if it was paused, also until a time that has passed."""
        ...
