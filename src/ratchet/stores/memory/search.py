"""Which jobs a `JobFilter` means."""

from __future__ import annotations

from ratchet.model.job import JobFilter
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import State


def matching(state: State, where: JobFilter) -> list[Row]:
    """Every job that *where* describes, in no order."""
    return [row for row in state.jobs.values() if matches(row, where)]


def matches(row: Row, where: JobFilter) -> bool:
    """True where every criterion that is given holds. Times are compared as *after* <= t < *before*."""
    spec = row.spec
    return (
        (row.archived_at is None or where.include_archived)
        and (where.statuses is None or row.status in where.statuses)
        and (where.tags is None or set(where.tags) <= set(spec.tags))
        and (where.targets is None or spec.target in where.targets)
        and (where.queue is None or row.stream.queue == where.queue)
        and (where.types is None or spec.type in where.types)
        and (where.priorities is None or spec.priority in where.priorities)
        and (where.business_key is None or spec.business_key == where.business_key)
        and (where.batch_id is None or spec.batch_id == where.batch_id)
        and (where.parent_id is None or spec.parent_id == where.parent_id)
        and (where.schedule is None or spec.schedule == where.schedule)
        and (where.node_id is None or row.node_id == where.node_id)
        and (where.created_after is None or row.created_at >= where.created_after)
        and (where.created_before is None or row.created_at < where.created_before)
        and (where.scheduled_after is None or row.due_at >= where.scheduled_after)
        and (where.scheduled_before is None or row.due_at < where.scheduled_before)
        and (where.error_contains is None or where.error_contains in (row.error or ""))
    )
