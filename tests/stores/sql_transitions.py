"""SQL stores whose two tables of jobs are compared at the end, and jobs that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.model.claim import JobClaim
from tests.stores.sql_stores import SqlSteps, opened

# A queue row exists exactly while the cold row says PENDING, and nothing waits in a state it has left.
BROKEN_ROWS = """
    SELECT j.job_id
      FROM scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
     WHERE (j.status = 'PENDING') <> (q.job_id IS NOT NULL)
        OR (j.held_at IS NOT NULL) <> (j.status IN ('PAUSED', 'WAITING'))
        OR (j.dead_lettered_at IS NOT NULL) <> (j.status = 'FAILED')
        OR (j.status IN ('SUCCEEDED', 'FAILED', 'CANCELED')) <> (j.finished_at IS NOT NULL AND j.status <> 'PAUSED')
        OR (q.status = 'RUNNING') <> (q.claim_id IS NOT NULL)
"""

STRAY_ROWS = (
    "SELECT q.job_id FROM scheduler_job_queue q WHERE q.job_id NOT IN (SELECT j.job_id FROM scheduler_job j)"
)


@contextmanager
def intact(kind: str, request: Any, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store of this kind; whatever a test did to it, the two tables of jobs agree at the end."""
    with opened(kind, request, tmp_path) as found:
        yield found
        assert found.sql(BROKEN_ROWS) == []
        assert found.sql(STRAY_ROWS) == []


def claimed(steps: SqlSteps, count: int, **changes: object) -> list[JobClaim]:
    """So many RUNNING jobs."""
    steps.submit_many(count, **changes)
    claims = steps.claim()
    assert len(claims) == count
    return claims
