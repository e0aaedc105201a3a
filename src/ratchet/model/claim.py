"""A claim: the right to run one job once, and the fence that every change made for that run compares."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from ratchet.model.status import BackoffPolicy, JobType, Lane, Priority

#: A job that was running in this many crashes is run alone, so that the next crash points at it.
SUSPECT_AFTER = 2


#: The party of jobs without a fairness key; the first in order.
NO_PARTY = ""


def party_of(fairness_key: str | None) -> str:
    """The party that takes turns under this key; jobs without a key are one party together."""
    return fairness_key or NO_PARTY


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """
    Which jobs a node wants, and the token that its claim will write.

    ``claim_id`` is a fresh UUIDv7 for every call: a claim whose answer was lost can then be told
    from the next one, and handed back.
    """

    node_id: str
    claim_id: UUID
    limit: int
    lane: Lane = Lane.THREAD
    queues: frozenset[str] | None = None  # None: every queue
    boost_interval: timedelta | None = timedelta(minutes=15)  # None: no boost
    suspects: bool = False  # claim from suspect streams instead of ordinary ones
    parked_targets: frozenset[str] = frozenset()  # parked targets that this node can import
    after: str | None = (
        None  # the party (`party_of`) that was served last: the next one begins. None: the first
    )
    ahead: timedelta = (
        timedelta()
    )  # how long before its start (`start_at`) a job behind a rate may be claimed


class JobClaim(Struct, frozen=True, kw_only=True, gc=False):
    """
    One claimed job, without its payload.

    (``job_id``, ``claim_id``) is the fence. Node and version would not do: a row that was deleted
    and inserted again starts its version anew.
    """

    job_id: UUID
    claim_id: UUID
    node_id: str
    stream_id: int
    type: JobType
    priority: Priority
    scheduled_at: datetime
    claimed_at: datetime
    attempts: int  # runs that ended in success or failure before this one
    crashes: int
    max_retries: int
    timeout: timedelta | None = None
    start_at: datetime | None = None  # the rate lets it start then, not before; None: at once

    @property
    def attempt(self) -> int:
        """The number of this run, from 1."""
        return self.attempts + 1


class JobBody(Struct, frozen=True, kw_only=True, gc=False):
    """What a worker needs to run a claimed job and to decide what follows."""

    job_id: UUID
    target: str
    payload: str
    created_at: datetime
    root_id: UUID
    queue: str
    params: str | None = None
    backoff: BackoffPolicy = BackoffPolicy.NONE
    backoff_base: timedelta = timedelta()
    jitter: float = 0.0
    no_retry_for: tuple[str, ...] = ()
    business_key: str | None = None
    batch_id: UUID | None = None
    parent_id: UUID | None = None
    schedule: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    resource: str | None = None
    limit_key: str | None = None
    breaker: str | None = None
    fairness_key: str | None = None
    expires_at: datetime | None = None  # given only to a job that has never started: nothing else expires
    state: str | None = None  # the checkpoint of an earlier attempt, JSON
    signal: str | None = None  # the delivered signal, JSON
    caller: str | None = None
    has_conditions: bool = False  # some outgoing edge has a condition to evaluate before completion


class ClaimedJob(Struct, frozen=True, kw_only=True, gc=False):
    """A claim together with the job's body."""

    claim: JobClaim
    body: JobBody
