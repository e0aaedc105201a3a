"""What waits for the code of a node's ended runs: business keys, permits, and retries that are held back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.holdings import BRING_FORWARD
from ratchet.stores.sql.rows.kept_keys import jobs_of_node, lock_keys, settle_keys

# Not "= 'PENDING'": without statistics PostgreSQL would then walk the index of everything that waits.
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


def free_lingering(session: Session, node_id: str, known: Sequence[UUID] = ()) -> None:
    """
    Free what waits for the code of this node's runs to end, but for runs under *known* tokens.

    The caller has taken the node's RUNNING jobs under other tokens away from it before.
    """
    binds: dict[str, object] = {"node_id": node_id, "known": list(known)}
    held_back = session.rows(LOCK_HELD_BACK_FOR_NODE, binds)
    if held_back:
        session.backdated({row[1] for row in held_back})
        runs = [(job_id, claim_id) for job_id, _, claim_id in held_back]
        session.execute(BRING_FORWARD, {"ids": [job_id for job_id, _ in runs], "run": runs})
    keys = lock_keys(session, jobs_of_node(session, node_id))
    session.execute(FREE_PERMITS_OF_NODE, binds)
    ended = [(job_id, claim) for job_id, (claim, node) in keys.items() if claim and node == node_id]
    settle_keys(session, keys, [run for run in ended if run[1] not in known])
