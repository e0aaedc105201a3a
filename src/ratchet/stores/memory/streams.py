"""Streams and queues in memory."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime

from ratchet.model.cluster import QueueRecord, StreamRecord
from ratchet.model.load import COUNTED, Load, StreamLoad
from ratchet.model.status import JobStatus
from ratchet.stores.memory.state import Part, State, atomic


class MemoryStreams(Part):
    """Streams; queues that can be paused."""

    @atomic
    def streams(self) -> list[StreamRecord]:
        return sorted(self._state.streams.values(), key=lambda record: record.stream_id)

    @atomic
    def parked_targets(self) -> list[str]:
        targets = {record.key.parked_target for record in self._state.streams.values()}
        return sorted(target for target in targets if target is not None)

    @atomic
    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        state = self._state
        used = {row.stream_id for row in state.jobs.values()}  # the archive included
        waiting = {state.jobs[job_id].stream_id for job_id in state.by_status.of(JobStatus.PENDING)}
        *old, _ = sorted(state.streams) or [0]  # not the newest, as where numbers are made from it
        old = [one for one in old if state.streams_used_at[one] < before]
        deleted = [one for one in old if state.is_stream_aside(one) and one not in used][:limit]
        unused = [one for one in old if not state.is_stream_aside(one) and one not in waiting]
        for one in deleted:
            state.delete_stream(one)
        aside = unused[: limit - len(deleted)]
        for one in aside:
            state.set_stream_aside(one, now)
        return len(deleted) + len(aside)

    @atomic
    def load(self, *, now: datetime, most: int = COUNTED) -> Load:
        state, streams, left = self._state, [], most
        claimed: dict[int, list[datetime]] = {}
        for job_id in state.by_status.of(JobStatus.RUNNING):
            row = state.jobs[job_id]
            claimed.setdefault(row.stream_id, []).append(row.claimed_at or row.scheduled_at)
        for stream_id, record in sorted(state.streams.items()):
            levels = [level for _, level in state.pending.levels(stream_id)]
            runs = claimed.get(stream_id, [])
            if not levels and not runs:
                continue
            due = sum(bisect_right(level, now, key=lambda entry: entry[0]) for level in levels)
            due = min(due, max(left, 1))
            left -= due
            streams.append(
                StreamLoad(
                    stream_id=stream_id,
                    key=record.key,
                    due=due,
                    first_at=min((level[0][0] for level in levels), default=None),
                    running=len(runs),
                    claimed_at=max(runs, default=None),
                )
            )
        rows = (state.jobs[job_id] for job_id in state.by_status.of(JobStatus.FAILED))
        failed = [row.dead_lettered_at for row in rows if row.dead_lettered_at is not None]
        return Load(
            streams=tuple(streams),
            pending=min(most, state.by_status.size(JobStatus.PENDING)),
            dead_letters=min(most, len(failed)),
            dead_letters_since=min(failed, default=None),
        )

    @atomic
    def queues(self, *, counting: bool = True) -> list[QueueRecord]:
        state = self._state
        used = {record.key.queue for record in state.streams.values()}
        counts = {JobStatus.PENDING: dict[str, int](), JobStatus.RUNNING: dict[str, int]()}
        for status, count in counts.items() if counting else ():
            for job_id in state.by_status.of(status):
                queue = state.jobs[job_id].stream.queue
                count[queue] = count.get(queue, 0) + 1
        return [
            QueueRecord(
                name=name,
                paused=record.paused,
                pending=counts[JobStatus.PENDING].get(name, 0),
                running=counts[JobStatus.RUNNING].get(name, 0),
                paused_at=record.paused_at,
                paused_until=record.paused_until,
            )
            for name in sorted(used | set(state.queues.keys()))
            for record in (state.queues.get(name) or QueueRecord(name=name, paused=False),)
        ]

    @atomic
    def pause_queue(self, name: str, *, now: datetime, until: datetime | None = None) -> bool:
        record = self._state.queues.get(name)
        if record is not None and record.paused and record.paused_until == until:
            return False
        self._state.queues.put(name, QueueRecord(name=name, paused=True, paused_at=now, paused_until=until))
        return True

    @atomic
    def resume_queue(self, name: str, *, now: datetime) -> bool:
        if not _is_paused(self._state, name):
            return False
        self._state.queues.put(name, QueueRecord(name=name, paused=False))
        for stream_id, record in list(self._state.streams.items()):
            if record.key.queue == name:
                self._state.backdated(stream_id)
        return True


def _is_paused(state: State, name: str) -> bool:
    record = state.queues.get(name)
    return record is not None and record.paused
