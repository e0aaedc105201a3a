"""
What a job holds besides its row: its business key, and for a run a permit.

Both are freed by the transaction that ends the job, except where the code of a run may still be at work: then
they stay, marked with that run's claim and node, until `settle` or the node's death (keys: see `kept_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.kept_keys import LINGERING, REMEMBERED, lock_keys, settle_keys
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

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

FREE_PERMITS = f"""
    DELETE FROM scheduler_resource_permit
     WHERE job_id {{in ids uuid}} AND resource <> '{LINGERING}'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {{rows run (job_id, claim_id)}})) IS TRUE /* end fence */
"""

# A run that goes on keeps its permit, whatever is said of its code.
SETTLE_PERMITS = """
    DELETE FROM scheduler_resource_permit
     WHERE job_id {in ids uuid}
       AND NOT EXISTS (SELECT 1 FROM scheduler_job_queue q
                        WHERE q.job_id = scheduler_resource_permit.job_id
                          AND q.claim_id = scheduler_resource_permit.claim_id)
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
"""

# A retry that was held back keeps its own due time in the cold row meanwhile. Not "= 'PENDING'": without
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


class Holder:
    """Who holds a business key; ``lingers``: the code of a run of it that has ended on record goes on."""

    __slots__ = ("job_id", "lingers")

    def __init__(self, job_id: UUID, lingers: bool) -> None:
        self.job_id = job_id
        self.lingers = lingers


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


def free_permits(session: Session, streams: StreamRegistry, claims: Iterable[JobClaim]) -> None:
    """Free the permits of these runs; free of charge for runs of streams that need none."""
    free_permits_of(session, streams, ((claim.job_id, claim.claim_id, claim.stream_id) for claim in claims))


def free_permits_of(
    session: Session, streams: StreamRegistry, runs: Iterable[tuple[UUID, UUID, int]]
) -> None:
    """`free_permits` for (job, claim, stream id)."""
    gated: dict[int, bool] = {}
    held: list[tuple[UUID, UUID]] = []
    for job_id, claim_id, stream_id in runs:
        if stream_id not in gated:
            gated[stream_id] = needs_permit(session, streams, stream_id)
        if gated[stream_id]:
            held.append((job_id, claim_id))
    if held:
        held.sort()
        session.execute(FREE_PERMITS, {"ids": [job_id for job_id, _ in held], "run": held})


def needs_permit(session: Session, streams: StreamRegistry, stream_id: int) -> bool:
    """True where the claim takes a permit for the jobs of a stream."""
    try:
        key = streams.key_of(stream_id, session)
    except KeyError:
        return True  # a claim that was not made here: look, rather than leak
    return key.resource is not None or key.limit_key is not None


def settle_runs(session: Session, claims: Sequence[JobClaim]) -> None:
    """The code of these runs has ended: what still waited for it is freed, a held-back retry becomes due."""
    runs = sorted({(claim.job_id, claim.claim_id) for claim in claims})
    ids = sorted({job_id for job_id, _ in runs})
    if held_back := session.rows(LOCK_HELD_BACK, {"ids": ids}):
        session.backdated({stream_id for _, stream_id in held_back})
        session.execute(BRING_FORWARD, {"ids": ids, "run": runs})
    held = lock_keys(session, ids)
    session.execute(SETTLE_PERMITS, {"ids": ids, "run": runs})
    settle_keys(session, held, runs)
