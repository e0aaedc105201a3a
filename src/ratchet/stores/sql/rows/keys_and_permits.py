"""
What a job holds besides its rows: its business key and, while it runs, permits.

The transaction that ends a job frees both. The exception is a run that has ended on record while its code is
still running (it timed out and could not be stopped, say): then they stay, marked with that run's claim and node,
until `settle` is called for the run or its node is dead.

A reservation of a key names one such run. A job may have several: each timed out, could not be stopped and was
retried. The runs that a live job has left behind are remembered in the table of permits, as holders of a resource
that no job names; so is the last run of a dead letter without a key, because a retry by hand waits for it. So whatever
ends a run's code, `settle` or the death of its node, ends that too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.stores.sql.database import Row, Session

Run = tuple[UUID, UUID, str]  # job, claim, node

#: The resource under which runs are remembered whose code is still running.
STILL_RUNNING = "(code that goes on)"

#: How many runs of a reservation's job are remembered. A sub-select, so that no plan reads all permits there are.
REMEMBERED = f"""(SELECT count(*) FROM scheduler_resource_permit p
                   WHERE p.job_id = scheduler_business_key_reservation.job_id AND p.resource = '{STILL_RUNNING}')"""

# --- business keys ------------------------------------------------------------------------------

RESERVE_KEYS = """
    INSERT INTO scheduler_business_key_reservation (business_key, job_id, reserved_at)
    SELECT wanted.business_key, wanted.job_id, :now
      FROM {rows wanted (business_key, job_id)}
     WHERE true
     ORDER BY wanted.business_key
        ON CONFLICT (business_key) DO NOTHING
    RETURNING business_key
"""

FIND_HOLDERS = f"""
    SELECT business_key, job_id, claim_id, {REMEMBERED} AS remembered
      FROM scheduler_business_key_reservation
     WHERE business_key {{in keys text}}
    {{current}}
"""

TAKE_OVER_KEYS = """
    UPDATE scheduler_business_key_reservation
       SET job_id = taken.job_id, reserved_at = :now
      FROM {rows taken (business_key, holder uuid, job_id)}
     WHERE scheduler_business_key_reservation.business_key = taken.business_key
       AND scheduler_business_key_reservation.job_id = taken.holder
"""

# A reservation with a claim belongs to a run whose code is still running.
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

# A job that is retried gets its own reservation back, although the code of its failed run is still running.
KEEP_OWN_KEYS = """
    UPDATE scheduler_business_key_reservation
       SET claim_id = NULL, node_id = NULL
     WHERE job_id {in ids uuid}
"""

# Remembered runs of a job are removed under this lock. Whoever frees a key and finds a remembered run looks again
# under it.
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
     WHERE job_id {{in ids uuid}} AND resource = '{STILL_RUNNING}'
     ORDER BY job_id, claim_id
"""

LOCK_REMEMBERED = f"{FIND_REMEMBERED} {{for update}}"

FIND_JOBS_OF_NODE = f"""
    SELECT job_id FROM scheduler_business_key_reservation WHERE node_id = :node_id
     UNION
    SELECT job_id FROM scheduler_resource_permit WHERE node_id = :node_id AND resource = '{STILL_RUNNING}'
"""


class Holder:
    """Who holds a business key; ``still_running``: the code of one of its ended runs is still running."""

    __slots__ = ("job_id", "still_running")

    def __init__(self, job_id: UUID, still_running: bool) -> None:
        self.job_id = job_id
        self.still_running = still_running


def reserve_keys(session: Session, wanted: Mapping[str, UUID], now: datetime) -> set[str]:
    """
    Reserve each of these keys for its job; the keys for which that worked.

    Waits for a transaction that is reserving or freeing one of the keys at this moment.
    """
    if not wanted:
        return set()
    rows = session.rows(RESERVE_KEYS, {"wanted": sorted(wanted.items()), "now": now})
    return {key for (key,) in rows}


def find_holders(session: Session, keys: Iterable[str]) -> dict[str, Holder]:
    """Who holds which of these keys; a key that nobody holds is left out."""
    rows = session.rows(FIND_HOLDERS, {"keys": sorted(keys)})
    return {
        key: Holder(job_id, claim_id is not None or remembered > 0)
        for key, job_id, claim_id, remembered in rows
    }


def take_over_keys(session: Session, taken: Sequence[tuple[str, UUID, UUID]], now: datetime) -> None:
    """Pass keys on: (key, its present holder, its new holder)."""
    session.execute(TAKE_OVER_KEYS, {"taken": taken, "now": now})


def free_keys(session: Session, job_ids: Iterable[UUID]) -> None:
    """Free the business keys of jobs that have ended; a key that waits for the code of a run stays."""
    ids = sorted(job_ids)
    if not ids or session.execute(FREE_KEYS, {"ids": ids}) == len(ids):
        return
    left = [job_id for job_id, (claim_id, _) in _lock_keys(session, ids).items() if claim_id is None]
    if left:
        session.execute(FREE_KEYS, {"ids": left})  # of those whose code has ended at this moment
        _pass_on(session, left)


def keep_keys(session: Session, runs: Iterable[Run]) -> None:
    """Keep the keys of ended jobs for (job, claim, node) until that run's code has ended."""
    if kept := sorted(runs):
        session.execute(KEEP_KEYS, {"run": kept})


def keep_own_keys(session: Session, job_ids: Sequence[UUID], now: datetime) -> bool:
    """Jobs that had ended live again, with the keys that they still hold; False: one is freed at this moment."""
    held = _lock_keys(session, job_ids)
    remember_runs(
        session, [(job_id, claim, node) for job_id, (claim, node) in held.items() if claim and node], now
    )
    session.execute(KEEP_OWN_KEYS, {"ids": sorted(job_ids)})
    return len(held) == len(job_ids)


def remember_runs(session: Session, runs: Iterable[Run], now: datetime) -> None:
    """The code of these runs is still running, and their jobs live on or may be retried."""
    rows = [(STILL_RUNNING, *run, now) for run in sorted(runs)]
    if not rows:
        return
    columns = ("resource", "job_id", "claim_id", "node_id", "acquired_at")
    session.insert_rows("scheduler_resource_permit", columns, rows, on_conflict_do_nothing=True)


def lock_still_running(session: Session, job_ids: Sequence[UUID]) -> list[Run]:
    """
    The latest remembered run of each of these jobs that has any.

    They are locked: whoever settles one of them looks for jobs that wait for it after this transaction.
    """
    rows = session.rows(LOCK_REMEMBERED, {"ids": sorted(job_ids)})
    session.hold("scheduler_resource_permit", "job_id", [row[0] for row in rows])
    latest: dict[UUID, Run] = {job_id: (job_id, claim_id, node_id) for job_id, claim_id, node_id in rows}
    return list(latest.values())


def _lock_keys(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, tuple[UUID | None, str | None]]:
    """The reservations of these jobs, locked: for whose code each waits (claim, node), None: its job lives."""
    ids = sorted(job_ids)
    rows = session.rows(LOCK_KEYS, {"ids": ids}) if ids else []
    session.hold("scheduler_business_key_reservation", "job_id", [row[0] for row in rows])
    return {job_id: (claim_id, node_id) for job_id, claim_id, node_id in rows}


def _settle_keys(
    session: Session, held: Mapping[UUID, tuple[UUID | None, str | None]], runs: Sequence[tuple[UUID, UUID]]
) -> None:
    """Free the keys that waited for these runs, which are not remembered any more; *held*: the jobs' locked reservations."""
    if not held or not runs:
        return
    freed = session.execute(SETTLE_KEYS, {"ids": sorted(held), "run": runs})
    waiting = [job_id for job_id, claim_id in runs if job_id in held and held[job_id][0] == claim_id]
    if freed < len(waiting):
        _pass_on(session, waiting)


def _pass_on(session: Session, job_ids: Sequence[UUID]) -> None:
    """Keep the keys of ended jobs, locked, for the latest of their runs that are remembered."""
    latest = {row[0]: row for row in session.rows(FIND_REMEMBERED, {"ids": sorted(job_ids)})}
    keep_keys(session, latest.values())


# --- permits ------------------------------------------------------------------------------------

FREE_PERMITS = f"""
    DELETE FROM scheduler_resource_permit
     WHERE job_id {{in ids uuid}} AND resource <> '{STILL_RUNNING}'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {{rows run (job_id, claim_id)}})) IS TRUE /* end fence */
"""


def free_permits(session: Session, runs: Iterable[tuple[UUID, UUID]]) -> None:
    """Free the permits of these runs (job, claim)."""
    if held := sorted(runs):
        session.execute(FREE_PERMITS, {"ids": [job_id for job_id, _ in held], "run": held})


# --- when code ends that was still running ------------------------------------------------------

# A run that has not ended keeps its permit, whatever is said of its code.
SETTLE_PERMITS = """
    DELETE FROM scheduler_resource_permit
     WHERE job_id {in ids uuid}
       AND NOT EXISTS (SELECT 1 FROM scheduler_job_queue q
                        WHERE q.job_id = scheduler_resource_permit.job_id
                          AND q.claim_id = scheduler_resource_permit.claim_id)
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
"""

# While a retry is held back, the job's row in scheduler_job keeps its own due time. Not "= 'PENDING'": without
# statistics PostgreSQL would then walk the index of everything that waits.
BRING_FORWARD = """
    UPDATE scheduler_job_queue
       SET held_claim_id = NULL, picked_by = NULL,
           scheduled_time = (SELECT j.scheduled_at FROM scheduler_job j WHERE j.job_id = scheduler_job_queue.job_id)
     WHERE job_id {in ids uuid} AND status <> 'RUNNING' AND held_claim_id IS NOT NULL
       AND /* fence */ ((job_id, held_claim_id) IN (SELECT run.job_id, run.claim_id
                                                      FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
"""

LOCK_HELD_BACK = """
    SELECT job_id, stream_id
      FROM scheduler_job_queue
     WHERE job_id {in ids uuid} AND status <> 'RUNNING' AND held_claim_id IS NOT NULL
     ORDER BY job_id
    {for update}
"""

# The second look comes after the keys in the order of locks, so it waits for nobody.
LOCK_HELD_BACK_MEANWHILE = LOCK_HELD_BACK.replace("{for update}", "{for update skip locked}")

LOCK_HELD_BACK_FOR_NODE = """
    SELECT job_id, stream_id, held_claim_id
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status <> 'RUNNING' AND held_claim_id {not in known uuid}
     ORDER BY job_id
    {for update skip locked}
"""

FREE_PERMITS_OF_NODE = """
    DELETE FROM scheduler_resource_permit WHERE node_id = :node_id AND claim_id {not in known uuid}
"""


def settle_runs(session: Session, claims: Sequence[JobClaim]) -> None:
    """The code of these runs has ended: free what still waited for it; a retry that was held back becomes due."""
    runs = sorted({(claim.job_id, claim.claim_id) for claim in claims})
    ids = sorted({job_id for job_id, _ in runs})
    _bring_forward(session, runs, session.rows(LOCK_HELD_BACK, {"ids": ids}))
    held = _lock_keys(session, ids)
    if session.execute(SETTLE_PERMITS, {"ids": ids, "run": runs}) and not session.dialect.one_writer:
        # a retry by hand, which was waited for here, may have begun to wait for this code
        _bring_forward(session, runs, session.rows(LOCK_HELD_BACK_MEANWHILE, {"ids": ids}))
    _settle_keys(session, held, runs)


def settle_node(session: Session, node_id: str, known: Sequence[UUID] = ()) -> None:
    """
    The same for all runs of a node, except those under *known* claims.

    The caller has taken the node's RUNNING jobs under other claims away from it before.
    """
    binds: dict[str, object] = {"node_id": node_id, "known": list(known)}
    _bring_forward_for_node(session, binds)
    jobs = [job_id for (job_id,) in session.rows(FIND_JOBS_OF_NODE, {"node_id": node_id})]
    keys = _lock_keys(session, jobs)
    if session.execute(FREE_PERMITS_OF_NODE, binds) and not session.dialect.one_writer:
        _bring_forward_for_node(session, binds)  # as in `settle_runs`
    ended = [(job_id, claim) for job_id, (claim, node) in keys.items() if claim and node == node_id]
    _settle_keys(session, keys, [run for run in ended if run[1] not in known])


def _bring_forward(session: Session, runs: Sequence[tuple[UUID, UUID]], held_back: Sequence[Row]) -> None:
    """Jobs that waited for these runs become due; *held_back*: the locked rows (job, stream) of their jobs that wait."""
    if held_back:
        session.backdated({stream_id for _, stream_id in held_back})
        session.execute(BRING_FORWARD, {"ids": sorted({job_id for job_id, _ in runs}), "run": runs})


def _bring_forward_for_node(session: Session, binds: Mapping[str, object]) -> None:
    rows = session.rows(LOCK_HELD_BACK_FOR_NODE, binds)
    runs = [(job_id, claim_id) for job_id, _, claim_id in rows]
    _bring_forward(session, runs, [row[:2] for row in rows])
