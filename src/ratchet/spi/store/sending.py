"""An optional ability of a store: to send a job without waiting, so that an event loop can wait for many at once."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ratchet.model.job import JobSpec


class Sent(Protocol):
    """A job that was sent to the store; whoever holds it must call `finish`, whatever happens."""

    def fileno(self) -> int:
        """The file descriptor that becomes readable when the answer comes."""
        ...

    def is_answered(self) -> bool:
        """True if `finish` would not wait; ask when the file descriptor is readable."""
        ...

    def finish(self) -> bool:
        """Wait for the answer: True if the job is stored. If False, call `insert`, which finds what is already stored."""
        ...


class SendingStore(Protocol):
    """A store that can send a job without waiting."""

    def send_insert(self, spec: JobSpec, *, now: datetime) -> Sent | None:
        """
        Send a plain job that is due; None if something has to be opened, looked up or waited for first.

        This never waits.
        """
        ...
