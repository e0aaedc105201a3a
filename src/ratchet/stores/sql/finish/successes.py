"""
Successes: the ends that most runs have, and so the statements that must be cheapest.

Where the product can change several tables in one statement, all successes of a call are one statement,
however many they are. Elsewhere they are four or five.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from ratchet.model.decision import Completion
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.finish.runs import SUCCESS_RUN_COLUMNS, success_row, success_run

# The materialized list drives everything, restricted to what the delete returned: joining it with the
# queue would let the planner choose by statistics, which are always wrong for a queue.
# Most jobs are held and have nothing that follows: the answer names only the others, and is empty as a rule.
SUCCEED = """
    WITH given AS MATERIALIZED (
        SELECT job_id, claim_id, attempt, crashes, scheduled_at, started_at, finished_at, node_id, result,
               result_truncated
          FROM {rows run (job_id, claim_id, attempt, crashes, scheduled_at, started_at, finished_at, node_id, result,
                          result_truncated)}
    ), gone AS (
        DELETE FROM scheduler_job_queue
         WHERE job_id {in ids uuid} AND status = 'RUNNING'
           AND /* fence */ ((job_id, claim_id) IN (SELECT given.job_id, given.claim_id FROM given)) IS TRUE /* end fence */
        RETURNING job_id
    ), won AS MATERIALIZED (
        SELECT * FROM given WHERE (job_id IN (SELECT gone.job_id FROM gone)) IS TRUE
    ), ran AS (
        INSERT INTO scheduler_job_execution
               (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted)
        SELECT job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, 'SUCCEEDED', true
          FROM won
    ), ended AS (
        UPDATE scheduler_job AS j
           SET status = 'SUCCEEDED', attempts = won.attempt, crashes = won.crashes, scheduled_at = won.scheduled_at,
               started_at = won.started_at, finished_at = won.finished_at, node_id = won.node_id, result = won.result,
               result_truncated = won.result_truncated, error = NULL, error_type = NULL, expiry_due_at = NULL
          FROM won
         WHERE j.job_id = won.job_id
        RETURNING j.job_id, j.business_key, j.batch_id, j.has_dependants
    )
    SELECT job_id, true AS is_won, business_key, batch_id, has_dependants FROM ended
     WHERE business_key IS NOT NULL OR batch_id IS NOT NULL OR has_dependants
     UNION ALL
    SELECT job_id, false, NULL, NULL, false FROM given WHERE (job_id IN (SELECT ended.job_id FROM ended)) IS NOT TRUE
"""

# The same in steps. Nobody comes between them: there is one writer, or the rows stay locked.
LEAVE_HELD_ROWS = """
    DELETE FROM scheduler_job_queue
     WHERE job_id {in ids uuid} AND status = 'RUNNING'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
    RETURNING job_id
"""

SUCCESS_COLUMNS = (
    "job_id",
    "attempts",
    "crashes",
    "scheduled_at",
    "started_at",
    "finished_at",
    "node_id",
    "result",
    "result_truncated",
    "status",
    "error",
    "error_type",
    "expiry_due_at",
)

FIND_NOT_PLAIN = """
    SELECT job_id, business_key, batch_id, has_dependants
      FROM scheduler_job
     WHERE job_id {in ids uuid} AND (business_key IS NOT NULL OR batch_id IS NOT NULL OR has_dependants)
"""

#: Business key, batch and "has dependants" of a job: what says whether anything follows from its end.
Facts: TypeAlias = tuple[str | None, UUID | None, bool]
PLAIN: Facts = (None, None, False)


def write_successes(session: Session, completions: Sequence[Completion], now: datetime) -> dict[int, Facts]:
    """
    End the jobs of these runs as SUCCEEDED, where the claim still holds the job; the jobs for which that was done.

    The completions are of different jobs. What follows from the facts is the caller's. By the number of the id, not by
    the id itself, whose hash and comparison are Python's.
    """
    ids = [one.claim.job_id for one in completions]
    if session.dialect.fuses_writes:
        runs = [success_row(one, now) for one in completions]
        facts = dict.fromkeys([job_id.int for job_id in ids], PLAIN)
        for job_id, is_won, *rest in session.rows(SUCCEED, {"ids": ids, "run": runs}):
            if is_won:
                facts[job_id.int] = (rest[0], rest[1], rest[2])
            else:
                del facts[job_id.int]
        return facts
    pairs = [(one.claim.job_id, one.claim.claim_id) for one in completions]
    gone = {job_id.int for (job_id,) in session.rows(LEAVE_HELD_ROWS, {"ids": ids, "run": pairs})}
    runs = [success_row(one, now) for one in completions if one.claim.job_id.int in gone]
    # The claim, second in a success row, is no column of the job; what is the same for all comes last.
    ended = [(run[0], *run[2:], "SUCCEEDED", None, None, None) for run in runs]
    session.update_rows("scheduler_job", SUCCESS_COLUMNS, ended)
    session.insert_rows("scheduler_job_execution", SUCCESS_RUN_COLUMNS, [success_run(run) for run in runs])
    facts = dict.fromkeys(gone, PLAIN)
    for job_id, *rest in session.rows(FIND_NOT_PLAIN, {"ids": [run[0] for run in runs]}) if runs else ():
        facts[job_id.int] = (rest[0], rest[1], rest[2])
    return facts
