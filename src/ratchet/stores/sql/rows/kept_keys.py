"""
Business keys of jobs that have ended: free, or kept while the code of any of their runs goes on.

A reservation names one such run; a job may have several, each of which timed out, could not be stopped and was
retried. Those that a live job has left behind are remembered among the permits, as holders of a resource that no
job names: so whatever ends a run's code, be it `settle` or the death of its node, ends that too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.stores.sql.database import Session

Run = tuple[UUID, UUID, str]  # job, claim, node

LINGERING = "(code that goes on)"

#: How many runs of a reservation's job are remembered. A sub-select, so that no plan reads all permits there are.
REMEMBERED = f"""(SELECT count(*) FROM scheduler_resource_permit p
                   WHERE p.job_id = scheduler_business_key_reservation.job_id AND p.resource = '{LINGERING}')"""

# A reservation that is marked belongs to a run whose code has not ended.
FREE_KEYS = f"""
    DELETE FROM scheduler_business_key_reservation
     WHERE job_id {{in ids uuid}} AND claim_id IS NULL AND {REMEMBERED} = 0
"""

KEEP_KEYS = """
    UPDATE scheduler_business_key_reservation
       SET claim_id = run.claim_id, node_id = run.node_id
      FROM {rows run (job_id, claim_id, node_id)}
     WHERE scheduler_business_key_reservation.job_id = run.job_id
"""

# A reservation of its own that waits for the code of the failed run is simply its own again.
KEEP_OWN_KEYS = """
    UPDATE scheduler_business_key_reservation
       SET claim_id = NULL, node_id = NULL
     WHERE job_id {in ids uuid}
"""

# What is remembered of a job's runs is taken away under this lock: who frees a key and finds a run remembered asks
# again under it.
LOCK_KEYS = """
    SELECT job_id, claim_id, node_id
      FROM scheduler_business_key_reservation
     WHERE job_id {in ids uuid}
     ORDER BY business_key
    {for update}
"""

SETTLE_KEYS = f"""
    DELETE FROM scheduler_business_key_reservation
     WHERE job_id {{in ids uuid}}
       AND claim_id IS NOT NULL
       AND {REMEMBERED} = 0
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {{rows run (job_id, claim_id)}})) IS TRUE /* end fence */
"""

FIND_REMEMBERED = f"""
    SELECT job_id, claim_id, node_id
      FROM scheduler_resource_permit
     WHERE job_id {{in ids uuid}} AND resource = '{LINGERING}'
     ORDER BY job_id, claim_id
"""

FIND_JOBS_OF_NODE = f"""
    SELECT job_id FROM scheduler_business_key_reservation WHERE node_id = :node_id
     UNION
    SELECT job_id FROM scheduler_resource_permit WHERE node_id = :node_id AND resource = '{LINGERING}'
"""


def remember_runs(session: Session, runs: Iterable[Run], now: datetime) -> None:
    """The code of these runs goes on, and their jobs live on with their business keys."""
    rows = [(LINGERING, *run, now) for run in sorted(runs)]
    if not rows:
        return
    columns = ("resource", "job_id", "claim_id", "node_id", "acquired_at")
    session.insert_rows("scheduler_resource_permit", columns, rows, on_conflict_do_nothing=True)


def free_keys(session: Session, job_ids: Iterable[UUID]) -> None:
    """Free the business keys of jobs that have ended; a key that waits for the code of a run stays."""
    ids = sorted(job_ids)
    if not ids or session.execute(FREE_KEYS, {"ids": ids}) == len(ids):
        return
    left = [job_id for job_id, claim_id, _ in session.rows(LOCK_KEYS, {"ids": ids}) if claim_id is None]
    if left:
        session.execute(FREE_KEYS, {"ids": left})  # of those whose code has ended at this moment
        _pass_on(session, left)


def keep_keys(session: Session, runs: Iterable[Run]) -> None:
    """Keep the keys of ended jobs for (job, claim, node) until that run's code has ended."""
    if kept := sorted(runs):
        session.execute(KEEP_KEYS, {"run": kept})


def lock_keys(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, tuple[UUID | None, str | None]]:
    """The reservations of these jobs, locked: for whose code each waits (claim, node), None: its job lives."""
    ids = sorted(job_ids)
    rows = session.rows(LOCK_KEYS, {"ids": ids}) if ids else []
    return {job_id: (claim_id, node_id) for job_id, claim_id, node_id in rows}


def keep_own_keys(session: Session, job_ids: Sequence[UUID], now: datetime) -> bool:
    """Jobs that had ended live again, with the keys that they still hold; False: one is freed at this moment."""
    held = lock_keys(session, job_ids)
    remember_runs(
        session, [(job_id, claim, node) for job_id, (claim, node) in held.items() if claim and node], now
    )
    session.execute(KEEP_OWN_KEYS, {"ids": sorted(job_ids)})
    return len(held) == len(job_ids)


def settle_keys(
    session: Session, held: Mapping[UUID, tuple[UUID | None, str | None]], runs: Sequence[tuple[UUID, UUID]]
) -> None:
    """The code of these runs has ended, and is not remembered any more; *held*: the jobs' locked reservations."""
    if not held or not runs:
        return
    freed = session.execute(SETTLE_KEYS, {"ids": sorted(held), "run": runs})
    waiting = [job_id for job_id, claim_id in runs if job_id in held and held[job_id][0] == claim_id]
    if freed < len(waiting):
        _pass_on(session, waiting)


def jobs_of_node(session: Session, node_id: str) -> list[UUID]:
    """The jobs whose keys wait, or will have to wait, for the code of runs on a node."""
    return [job_id for (job_id,) in session.rows(FIND_JOBS_OF_NODE, {"node_id": node_id})]


def _pass_on(session: Session, job_ids: Sequence[UUID]) -> None:
    """Keep the keys of ended jobs, locked, for the latest of their runs that are remembered."""
    latest = {row[0]: row for row in session.rows(FIND_REMEMBERED, {"ids": sorted(job_ids)})}
    keep_keys(session, latest.values())
