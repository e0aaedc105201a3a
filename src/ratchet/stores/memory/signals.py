"""Signals in memory: delivered to the jobs that wait, or kept for the first that will."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import json
from msgspec.structs import replace

from ratchet.model.composition import SignalSpec
from ratchet.stores.memory.changes import Effects, change, release
from ratchet.stores.memory.rows import Row, SignalRow
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.values import check

#: How long a signal's id is remembered where the signal says nothing itself.
REMEMBERED = timedelta(hours=1)


def take_kept_signal(state: State, row: Row, effects: Effects, *, now: datetime) -> None:
    """Give a job that has just been stored the oldest signal that was kept for it, if there is one."""
    wait = row.spec.signal
    if wait is None or not row.awaits_signal:
        return
    kept = [state.signals[key] for key in state.signals_of.of(wait.key)]
    for signal in sorted(kept, key=lambda signal: signal.spec.signal_id.int):
        until = signal.spec.keep_until
        meant = signal.spec.job_id is None or signal.spec.job_id == row.job_id
        if meant and not signal.taken_by and until is not None and until > now:
            state.signals.put(signal.spec.signal_id, replace(signal, taken_by=(row.job_id,)))
            _deliver(state, row, signal.spec, effects, now=now)
            return


def _deliver(state: State, row: Row, signal: SignalSpec, effects: Effects, *, now: datetime) -> None:
    document = {
        "key": signal.key,
        "payload": signal.payload,
        "rejected": signal.rejected,
        "delivered_at": now,
    }
    after = change(state, row, effects, now=now, signal=json.encode(document).decode(), signal_due_at=None)
    release(state, after, effects, now=now)


class MemorySignals(Part):
    """Signals."""

    @atomic
    def send_signal(self, signal: SignalSpec, *, now: datetime, within: object | None = None) -> list[UUID]:
        state = self._state
        check(signal)
        if signal.signal_id in state.signals:
            return []
        waiters = [
            job_id
            for job_id in sorted(state.awaiting.of(signal.key), key=lambda job_id: job_id.int)
            if signal.job_id is None or signal.job_id == job_id
        ]
        effects = Effects()
        for job_id in waiters:
            _deliver(state, state.jobs[job_id], signal, effects, now=now)
        state.signals.put(
            signal.signal_id,
            SignalRow(spec=signal, sent_at=now, taken_by=tuple(waiters)),
        )
        return waiters

    @atomic
    def waiting_for(self, key: str, *, limit: int = 100) -> list[UUID]:
        return sorted(self._state.awaiting.of(key), key=lambda job_id: job_id.int)[:limit]

    @atomic
    def purge_signals(self, *, now: datetime, limit: int) -> int:
        over = [
            row.spec.signal_id
            for row in self._state.signals.values()
            if (row.spec.keep_until or row.sent_at + REMEMBERED) <= now
        ]
        over = sorted(over, key=lambda signal_id: signal_id.int)[:limit]
        for signal_id in over:
            self._state.signals.remove(signal_id)
        return len(over)
