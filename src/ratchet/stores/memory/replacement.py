"""One job in the place of another: of one that a caller names, or of the holder of its business key."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects, change
from ratchet.stores.memory.ends import cancel
from ratchet.stores.memory.insertion import RunningHolder, Submission
from ratchet.stores.memory.state import State
from ratchet.stores.validation import require_new

#: The states of a job that has not started, or not again.
AT_REST: Final = (JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING)


def replace_job(state: State, job_id: UUID, spec: JobSpec, *, now: datetime) -> CanceledJob | None:
    """Cancel a job at rest and store *spec* in its place; None, and nothing changed, if it has started or ended."""
    effects = Effects()
    row = state.jobs.get(job_id)
    if row is None or row.status not in AT_REST:
        return None
    cancel(state, row, effects, reason="superseded", now=now)
    try:
        (answer,) = Submission(state, effects, now=now).store([spec])
    except RunningHolder as busy:
        raise BusinessKeyBusy(busy.key, busy.holder) from None
    require_new(job_id, spec, answer)
    change(state, state.jobs[job_id], effects, now=now, superseded_by=answer.job_id)
    return effects.canceled[0]


def supersede(state: State, job_id: UUID, *, now: datetime) -> None:
    """Ask the running holder of a key to make room; the one who wants the key comes again."""
    row = state.jobs.get(job_id)
    if row is not None and not row.status.is_terminal:
        cancel(state, row, Effects(), reason="superseded", now=now)
