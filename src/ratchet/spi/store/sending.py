"""What a store may do besides: send a job without waiting, so that an event loop can wait for many."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ratchet.model.job import JobSpec


class Sent(Protocol):
    """A job that was sent to the store; whoever has it calls `finish`, whatever happens."""

    def fileno(self) -> int:
        """The file that becomes readable when the answer comes."""
        ...

    def is_answered(self) -> bool:
        """True if `finish` would not wait; to be asked when the file is readable."""
        ...

    def finish(self) -> bool:
        """Wait for the answer: True if the job is stored; False: `insert` it, which finds what is there."""
        ...


class SendingStore(Protocol):
    """A store that can do that."""

    def send_insert(self, spec: JobSpec, *, now: datetime) -> Sent | None:
        """
        Send a plain job that is due; None where something has to be opened, looked up or waited for first.

        It never waits.
        """
        ...
