"""Claims: which jobs are due, in which order, and who holds them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim


class JobClaimStore(Protocol):
    """
    Takes due jobs for one node, atomically.

    The order among the streams that are open for the request is exactly this: ``priority + floor(wait /
    boost_interval)`` descending, then due time, then id; ``wait = now - scheduled_at``. A stream is open
    when its lane and queue fit the request, its queue is not paused, its gates let jobs through,
    ``suspect`` equals the request's, and its parked target, its place, is none or one that the request names.

    If open streams have fairness keys, the keys take turns. The streams of one key are a party; those without
    a key form one party together (`party_of`). The order above holds within a party. Each round takes the next
    job of every party that has one. Parties come in the order of their keys (by code point), beginning after
    ``request.after``, and after the last comes the first. Rounds go on until the limit is reached or no job is left.

    Two nodes that claim at once get disjoint jobs and do not wait for each other. A claim that finds
    nothing writes nothing. The cost of a claim grows neither with the number of waiting jobs nor with history.
    """

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """
        Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim
        order.

        Fewer may be returned while another node claims at the same moment.
        """
        ...

    def claim_next_batch_optimized(self, request: ClaimRequest, *, now: datetime) -> list[JobClaim]:
        """The same claim without the bodies; load them with `bodies`."""
        return [job.claim for job in self.claim_next_batch(request, now=now)]

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs; a job that its claim no longer holds is left out."""
        ...

    def mark_started(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """
        Remember that these runs of claims ahead (`is_ahead`) have started; how many are still held.

        From now on their jobs are charged if the node dies. A claim that no longer holds its job changes nothing.
        """
        ...

    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        """
        When the earliest PENDING job of the request's open streams is (or was) due; None if there is none.

        A stream behind a breaker that is open until some time opens at that time. When a permit is freed, nobody
        knows: a stream whose resource has none left is passed by, or, with ``request.ask_again_after``, opens so long
        after *now*. This is a pure read: a poller sleeps until then.
        """
        ...

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        """
        `next_due_at` of each request, in the order of the requests, in as few round trips as the store can.

        The requests come from one node: they differ in ``lane``, ``suspects`` and in what only a claim needs.
        """
        ...

    def claims_of(self, node_id: str) -> dict[UUID, UUID]:
        """The job ids and claim ids of everything RUNNING under *node_id*."""
        ...

    def explain(self, job_id: UUID, *, now: datetime) -> list[tuple[str, str, datetime | None]]:
        """
        Why a claim at *now* by a node that takes every lane and queue, and has every key, would not return this job.

        The answer is a list of (code, text, until). It is empty exactly when such a claim with a large enough
        limit would return the job. (If fairness keys compete for one limit, whose turn it is depends on the claim;
        the answer is for a claim that begins with the first key.) Codes: ``not_found succeeded failed canceled
        running paused waiting_parent waiting_signal not_due still_running queue_paused parked suspect no_permit
        rate_limited breaker_open``.

        Every reason that applies is listed, in that order. A PENDING job is told of each gate that lets nothing
        through now: first its resource's, then its limit key's, then its breaker's. (A limit may be out of permits
        and out of starts.) If nothing else holds the job back, but the gates let through fewer jobs than come
        before it, the gates that those jobs use up are listed, with the time of the next start after theirs.
        """
        ...
