"""What a claim plan is, and the texts that the plans of all products share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from ratchet.model.claim import ClaimRequest
from ratchet.stores.levels import Level
from ratchet.stores.sql.claiming.gates import PAUSED_FOR_GOOD, PAUSED_UNTIL, SERVED_QUEUE
from ratchet.stores.sql.database import Database, Row, Session

CLAIM_COLUMNS = """
    q.job_id, q.stream_id, q.priority, q.job_type, q.attempts, q.crashes, q.max_retries, q.timeout_us, q.scheduled_time
"""
# most jobs are their own root, and a UUID costs more to read than anything else in the row
BODY_COLUMNS = """
    j.target, j.payload, j.created_at, CASE WHEN j.root_id <> j.job_id THEN j.root_id END AS root_id, j.params,
    j.backoff, j.backoff_base_us, j.jitter, j.no_retry_for, j.business_key, j.batch_id, j.parent_id, j.schedule, j.on_success, j.on_failure, j.expiry_due_at, j.state, j.signal,
    j.caller, j.has_conditions
"""

#: The due time of the first job of a level. A plan that remembers where to start puts a *bound* in.
FIRST_DUE = """(SELECT q.scheduled_time FROM scheduler_job_queue q
             WHERE q.stream_id = s.stream_id AND q.priority = p.column1 AND q.status = 'PENDING' <bound>
             ORDER BY q.scheduled_time LIMIT 1)"""
_HEADS = f"""
    SELECT s.stream_id, s.resource, s.limit_key, s.breaker,
           <first> AS scheduled_time,
           (SELECT b.open_until FROM scheduler_circuit_breaker b
             WHERE b.service = s.breaker AND b.state = 'OPEN' AND b.open_until > :now) AS open_until,
           p.column1 AS priority, s.lane, s.suspect,
           (SELECT u.paused_until FROM scheduler_queue u WHERE u.queue = s.queue AND {PAUSED_UNTIL}) AS paused_until
      FROM <levels>
     WHERE s.lane {{in lanes text}} AND (:mixed OR s.suspect = :suspects) AND {SERVED_QUEUE}
       AND NOT EXISTS (SELECT 1 FROM scheduler_queue u WHERE u.queue = s.queue AND {PAUSED_FOR_GOOD})
       AND NOT EXISTS (SELECT 1 FROM scheduler_circuit_breaker b
                        WHERE b.service = s.breaker AND b.state = 'OPEN' AND b.open_until IS NULL)
"""


def find_heads(levels: str, first: str = FIRST_DUE.replace("<bound>", "")) -> str:
    """
    The oldest job of each level.

    *levels* is the FROM item that they come from: streams as *s*, priorities as *p.column1*. In a store with many
    keys most streams have no jobs, and a look at all of them would cost more from day to day.
    """
    return _HEADS.replace("<levels>", levels).replace("<first>", first)


def _nobody(answer: Sequence[Row]) -> None:
    """The default of `Question.tell`: only the caller wants the answer."""


class Question(NamedTuple):
    """SQL text and its binds, and who else is to be told the answer."""

    text: str
    params: Mapping[str, object]
    tell: Callable[[Sequence[Row]], None] = _nobody

    def ask(self, session: Session) -> list[Row]:
        """The answer; whoever wants it is told."""
        rows = session.rows(self.text, self.params)
        self.tell(rows)
        return rows


class ClaimPlan(Protocol):
    """How one product finds, locks and marks the next jobs."""

    def claim(self, database: Database, request: ClaimRequest, now: datetime) -> list[Row]:
        """
        The claimed jobs in claim order: CLAIM_COLUMNS, BODY_COLUMNS, and perhaps when the job may start (None: at once).

        They are RUNNING under the request's claim id when this returns. Where nothing is due, nothing is written.
        """
        ...

    def read(
        self, session: Session, wanted: Sequence[tuple[Level, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each level, as `gates.Read`, without locks."""
        ...

    def heads(self, requests: Sequence[ClaimRequest], now: datetime) -> Question:
        """`find_heads`, where one statement is enough; tell the plan what it finds."""
        ...

    def look(self, session: Session, requests: Sequence[ClaimRequest], now: datetime) -> list[Row]:
        """The rows of `find_heads`: one for each level with waiting jobs, and perhaps some of levels without any."""
        ...
