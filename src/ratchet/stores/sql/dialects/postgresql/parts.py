"""Parts of statements that both claims on PostgreSQL are made of: by order alone, and by turns."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.stores.sql.dialects.postgresql.scan_start import MARGIN, NO_ID

#: What is due after this moment may still be joined by jobs that are due before it.
HORIZON = f"LEAST(CAST(:now AS timestamptz), statement_timestamp()) - {MARGIN}"

#: What a claim tells of each branch in `heads`: a `Floor`, in the columns of a job.
SEEN = {
    "job_id": f"CASE WHEN h.scheduled_time < {HORIZON} THEN h.job_id ELSE {NO_ID} END",
    "stream_id": "h.stream_id",
    "priority": "h.priority",
    "scheduled_time": f"LEAST(h.scheduled_time, {HORIZON})",
}

#: Takes what `locked` has. By an array: a join there invites a scan and a hash of the whole queue.
TAKE_LOCKED = """UPDATE scheduler_job_queue q
           SET status = 'RUNNING', picked_by = :node_id, picked_at = :now, claim_id = :claim_id, held_claim_id = NULL
         WHERE q.job_id = ANY (ARRAY(SELECT job_id FROM locked))"""

BODIES = "LEFT JOIN LATERAL (SELECT * FROM scheduler_job j WHERE j.job_id = q.job_id LIMIT 1) j ON true"


def in_place_of(columns: str, values: Mapping[str, str]) -> str:
    """These values in the places of the columns of the same name, NULL in the others."""
    return ", ".join(values.get(column.split(".")[1].strip(), "NULL") for column in columns.split(","))
