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

    def queues(self) -> list[QueueRecord]:
        """All queues that were ever used or paused, with counts."""
        ...

    def pause_queue(self, name: str, *, now: datetime) -> bool:
        """Close a queue for claims; one write, however many jobs wait in it. True: it was open."""
        ...

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open it again. True: it was paused."""
        ...
