"""Signals: messages from outside that release waiting jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.composition import SignalSpec


class SignalStore(Protocol):
    """Delivers signals to jobs that wait for them."""

    def send_signal(self, signal: SignalSpec, *, now: datetime, within: object | None = None) -> list[UUID]:
        """
        Release every job WAITING for the key (only ``job_id``, if it is set) and store the signal on it; the released jobs.

        A job that also waits for a parent gets the signal now and is released by that parent. If no job waits, the
        signal is kept until ``keep_until`` and consumed by the first job that is submitted to wait for it; that job is
        stored PENDING at once. Sending the same ``signal_id`` again changes nothing.
        """
        ...

    def waiting_for(self, key: str, *, limit: int = 100) -> list[UUID]:
        """The jobs that wait for a key, oldest first."""
        ...

    def purge_signals(self, *, now: datetime, limit: int) -> int:
        """Delete kept signals whose time is over; at most *limit*."""
        ...
