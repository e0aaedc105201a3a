"""A claim: the right to run one job once, and the fence that every change made for that run compares."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from ratchet.model.status import BackoffPolicy, JobType, Lane, Priority

#: A job that was running in this many crashes is run alone, so that the next crash points at it.
SUSPECT_AFTER = 2


#: A job that was in doubt in so many deaths of nodes (`is_ahead`) is charged with the next one.
LONGEST_DOUBT = 2
#: The error type of the run that a death leaves in doubt.
DOUBTFUL = "NotStarted"
_VERSIONS = 0xF << 76
_AHEAD = 0x8 << 76


def ahead_token(token: UUID) -> UUID:
    """
    The token for a claim that takes more jobs than can start at once: *token* as a UUID of version 8.

    So the claim itself says that its jobs may wait, at no cost. A version before this one makes tokens of version 7 only.
    """
    return UUID(int=token.int & ~_VERSIONS | _AHEAD)


def is_ahead(token: UUID | None) -> bool:
    """True for the token of a claim ahead: whether its job has started is unknown, unless it was marked."""
    return token is not None and token.int & _VERSIONS == _AHEAD


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
    parked_targets: frozenset[str] = (
        frozenset()
    )  # the places (`ratchet.model.places`) that this node can serve
    after: str | None = (
        None  # the party (`party_of`) that was served last: the next one begins. None: the first
    )
    ahead: timedelta = (
        timedelta()
    )  # how long before its start (`start_at`) a job behind a rate may be claimed
    ask_again_after: timedelta | None = (
        None  # `next_due_at` takes a resource without free permits as one that opens then. None: never
    )


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


class RowFault(Struct, frozen=True, kw_only=True):
    """
    Why the row of a claimed job cannot be read: the columns, and what stands there.

    ``may_be_newer``: all of it are words that this version does not know, and a newer one may have written them.
    ``missing_keys``: it is encrypted, and this node lacks these keys; another may have them.
    """

    text: str
    may_be_newer: bool = False
    missing_keys: tuple[str, ...] = ()


class ClaimedJob(Struct, frozen=True, kw_only=True, gc=False):
    """
    A claim together with the job's body.

    With ``unreadable`` set, both have defaults where the row has something else; such a job is not run.
    """

    claim: JobClaim
    body: JobBody
    unreadable: RowFault | None = None
