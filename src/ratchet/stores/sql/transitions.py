"""
Transitions in SQL: every change of a job's state.

**The fence.** Everything that is done for a run compares (job_id, claim_id) in a statement, and locks what it
compares, so that nobody can take the job away before the transaction ends. In each SQL constant that does so, the
comparison is between two SQL comments that say ``fence`` and ``end fence``.

There is one comparison per path, and no second one behind it: a test replaces what is between the comments with
``(… OR true)``, in one constant at a time, and expects that the contracts notice. The constants
are in `rows.locked`, `rows.keys_and_permits`, `finish.completions` and here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.alerts import ALERT_WINDOW
from ratchet.model.claim import SUSPECT_AFTER, JobClaim
from ratchet.model.decision import CanceledJob, Completion, CompletionAnswer, CountCrash
from ratchet.model.job import Progress, StreamKey
from ratchet.model.places import parked_at
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.dependants.cancellations import cancel_jobs
from ratchet.stores.sql.dependants.releases import enqueue
from ratchet.stores.sql.finish.completions import complete_runs
from ratchet.stores.sql.finish.expiries import expire_jobs
from ratchet.stores.sql.finish.requeues import hand_back, requeue
from ratchet.stores.sql.recover.manual_retry import retry_jobs
from ratchet.stores.sql.recover.rescues import FIND_CLAIMS
from ratchet.stores.sql.rows.failures import LEAVE_QUEUE
from ratchet.stores.sql.rows.keys_and_permits import settle_node, settle_runs
from ratchet.stores.sql.rows.locked import QUEUE_COLUMNS, QUEUED, QueueRow, lock_held_rows, lock_jobs

PAUSE_QUEUED = """
    UPDATE scheduler_job
       SET status = 'PAUSED', paused_from = 'PENDING', held_at = :now, attempts = :attempts, crashes = :crashes,
           scheduled_at = :scheduled_at, stream_id = :stream_id
     WHERE job_id = :job_id
"""

PAUSE_FAILED = """
    UPDATE scheduler_job
       SET status = 'PAUSED', paused_from = 'FAILED', held_at = :now, dead_lettered_at = NULL
     WHERE job_id = :job_id
"""

RESUME_PENDING = """
    UPDATE scheduler_job SET status = 'PENDING', paused_from = NULL, held_at = NULL WHERE job_id = :job_id
"""

RESUME_FAILED = """
    UPDATE scheduler_job
       SET status = 'FAILED', paused_from = NULL, held_at = NULL, dead_lettered_at = finished_at
     WHERE job_id = :job_id
"""

# Rows that somebody else has locked at this moment are left to the next look; they may be gone by then.
LOCK_UNKNOWN_ROWS = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status = 'RUNNING' AND claim_id {{not in known uuid}}
     ORDER BY job_id
    {{for update skip locked}}
"""

LOCK_RUN = """
    SELECT job_id
      FROM scheduler_job_queue
     WHERE job_id = :job_id AND status = 'RUNNING' AND /* fence */ claim_id = :claim_id /* end fence */
    {for update}
"""

SAVE_PROGRESS = """
    UPDATE scheduler_job SET progress = :fraction, progress_message = :message WHERE job_id = :job_id
"""

SAVE_STATE = "UPDATE scheduler_job SET state = :state WHERE job_id = :job_id"


class SqlTransitions(SqlPart):
    """Ends, retries, pauses and hands back jobs."""

    # --- ends -----------------------------------------------------------------------------------

    def complete(
        self,
        completions: Sequence[Completion],
        *,
        now: datetime,
        alert_window: timedelta = ALERT_WINDOW,
        within: object | None = None,
    ) -> list[CompletionAnswer]:
        """Apply many completions in one transaction; one answer per completion, in order."""
        if not completions:
            return []
        self._know_streams({one.claim.stream_id for one in completions})
        if within is None and (missing := self._streams_of(completions)):
            self.stream_registry.ids_of(None, missing)
        return self.database.run(
            lambda session: complete_runs(
                session, self.stream_registry, completions, now=now, alert_window=alert_window
            ),
            within=within,
        )

    def cancel(
        self, job_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """Cancel a job that has not ended and, depth-first, all its dependants."""
        return self.change(lambda session: cancel_jobs(session, [job_id], reason=reason, now=now), within)

    def settle(self, claims: Sequence[JobClaim], *, now: datetime) -> None:
        """The code of these ended runs has really ended: free what still waits for it."""
        if claims:
            self.database.run(lambda session: settle_runs(session, claims))

    def expire(self, *, now: datetime, limit: int) -> list[CanceledJob]:
        """Cancel jobs whose expiry has passed before they started; fail those whose signal did not come."""
        return expire_jobs(self.database, self.stream_registry, now=now, limit=limit)

    # --- by hand --------------------------------------------------------------------------------

    def retry(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """FAILED (also paused from FAILED) to PENDING, with what its failure had canceled."""
        return bool(
            self.change(lambda session: retry_jobs(session, self.stream_registry, [job_id], now=now), within)
        )

    def pause(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PENDING or FAILED to PAUSED, True; already PAUSED: True; any other state: False."""

        def pause(session: Session) -> bool:
            job = lock_jobs(session, [job_id]).get(job_id)
            if job is None:
                return False
            if job.status is JobStatus.PENDING:
                session.execute(LEAVE_QUEUE, {"ids": [job_id]})
                values = {"attempts": job.attempts, "crashes": job.crashes, "scheduled_at": job.scheduled_at}
                session.execute(
                    PAUSE_QUEUED, {"job_id": job_id, "stream_id": job.stream_id, "now": now, **values}
                )
                return True
            if job.status is JobStatus.FAILED:
                session.execute(PAUSE_FAILED, {"job_id": job_id, "now": now})
                return True
            return job.status is JobStatus.PAUSED

        return self.change(pause, within)

    def resume(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PAUSED to the state it was paused from, with the due time and attempts it had; else False."""

        def resume(session: Session) -> bool:
            job = lock_jobs(session, [job_id]).get(job_id)
            if job is None or job.status is not JobStatus.PAUSED:
                return False
            if job.has_failed:
                session.execute(RESUME_FAILED, {"job_id": job_id})
            else:
                session.execute(RESUME_PENDING, {"job_id": job_id})
                enqueue(session, [job_id])
                session.backdated([job.stream_id])
            return True

        return self.change(resume, within)

    # --- runs that do not end -------------------------------------------------------------------

    def hand_back(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Return unstarted claims to PENDING with their old due time; how many were still held."""
        if not claims:
            return 0

        self._know_streams({claim.stream_id for claim in claims})

        def work(session: Session) -> int:
            held = lock_held_rows(session, claims)
            hand_back(session, self.stream_registry, held)
            return len(held)

        return self.database.run(work)

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]:
        """Return RUNNING jobs of *node_id* whose claim id is not among *known*: their answer was lost."""

        def work(session: Session) -> list[UUID]:
            rows = session.rows(LOCK_UNKNOWN_ROWS, {"node_id": node_id, "known": list(known)})
            held = {row[0]: QueueRow(*row) for row in QUEUED.read(rows)}
            hand_back(session, self.stream_registry, held)
            running = [claim_id for _, claim_id in session.rows(FIND_CLAIMS, {"node_id": node_id})]
            settle_node(session, node_id, [*known, *running])
            return list(held)

        return self.database.run(work)

    def park(self, claim: JobClaim, target: str, *, now: datetime) -> bool:
        """Return a claimed job whose target this node cannot import to a stream parked for that target."""
        try:
            key = self.stream_registry.key_of(claim.stream_id)
        except KeyError:
            return False  # a claim that was never given out: it holds nothing
        stream_id = self.stream_registry.id_of(
            None, replace(key, parked_target=parked_at(key.parked_target, target))
        )

        def work(session: Session) -> bool:
            held = lock_held_rows(session, [claim])
            hand_back(session, self.stream_registry, held)
            requeue(session, [replace(row, stream_id=stream_id, held_claim_id=None) for row in held.values()])
            return bool(held)

        return self.database.run(work)

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        """Store a run's progress, if *claim* still holds the job."""
        values = {"job_id": claim.job_id, "fraction": progress.fraction, "message": progress.message}
        return self.database.run(lambda session: _save(session, claim, SAVE_PROGRESS, values), within=within)

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        """Store a run's checkpoint, if *claim* still holds the job."""
        values = {"job_id": claim.job_id, "state": state}
        return self.database.run(lambda session: _save(session, claim, SAVE_STATE, values))

    def _know_streams(self, stream_ids: Iterable[int]) -> None:
        """Read and remember the keys of streams that are new to this process; inside a transaction they are not remembered."""
        for stream_id in stream_ids:
            try:
                self.stream_registry.key_of(stream_id)
            except KeyError:
                pass  # a claim that was never given out: it holds nothing

    def _streams_of(self, completions: Sequence[Completion]) -> set[StreamKey]:
        """The streams that these completions may need. They are made before: inside the transaction that takes a second connection."""
        wanted = {one.callback.stream for one in completions if one.callback is not None}
        for one in completions:
            if isinstance(one.decision, CountCrash) and one.claim.crashes + 1 >= SUSPECT_AFTER:
                try:
                    wanted.add(replace(self.stream_registry.key_of(one.claim.stream_id), suspect=True))
                except KeyError:
                    pass  # a claim that was never given out: it holds nothing
        return wanted


def _save(session: Session, claim: JobClaim, sql: str, values: dict[str, object]) -> bool:
    # the queue row first, as everywhere: whoever takes the job away waits for us, or we for them
    if session.row(LOCK_RUN, {"job_id": claim.job_id, "claim_id": claim.claim_id}) is None:
        return False
    session.hold("scheduler_job_queue", "job_id", [claim.job_id])
    return session.execute(sql, values) > 0
