"""Claims: which jobs are due, in which order, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim


class JobClaimStore(Protocol):
    """
    Takes due jobs for one node, atomically.

    Order, exactly, among the streams that are open for the request: ``priority + floor(wait /
    boost_interval)`` descending, then due time, then id; ``wait = now - scheduled_at``. A stream is
    open when its lane and queue fit the request, its queue is not paused, its gates let jobs
    through, ``suspect`` equals the request's, and its parked target (if any) is one the request names.

    Where open streams have fairness keys, their keys take turns: the streams of one key are a party, those
    without a key are one together (`party_of`), and the order above holds inside a party. Each round takes
    the next job of every party that has one, in the order of the keys (code points) and round again,
    beginning after ``request.after``. Rounds go on until the limit is reached or nothing is left.

    Two nodes that claim at once get disjoint jobs and do not wait for each other. A claim that finds
    nothing writes nothing. What a claim costs grows neither with the jobs that wait nor with history.
    """

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """
        Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim order.

        Fewer may come back while another node claims at the same moment.
        """
        ...

    def claim_next_batch_optimized(self, request: ClaimRequest, *, now: datetime) -> list[JobClaim]:
        """The same claim without the bodies; load them with `bodies`."""
        return [job.claim for job in self.claim_next_batch(request, now=now)]

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs; a job that its claim no longer holds is left out."""
        ...

    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        """
        When the earliest PENDING job of the request's open streams is (or was) due; None: there is none.

        A stream behind a breaker that is open until some time opens then. A pure read: a poller sleeps until then.
        """
        ...

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        """
        `next_due_at` of each request, in their order and in as few round trips as the store can.

        The requests are those of one node: they differ in ``lane``, ``suspects`` and what only a claim needs.
        """
        ...

    def claims_of(self, node_id: str) -> dict[UUID, UUID]:
        """Job id to claim id of everything RUNNING under *node_id*."""
        ...

    def explain(self, job_id: UUID, *, now: datetime) -> list[tuple[str, str, datetime | None]]:
        """
        Why a claim at *now* by a node that takes every lane and queue would not return this job.

        (code, text, until) triples; empty exactly when such a claim with a large enough limit would
        return it (where fairness keys compete for one limit, whose turn it is depends on the claim, and the
        answer is for one that begins with the first key). Codes: ``not_found succeeded failed canceled running paused waiting_parent
        waiting_signal not_due queue_paused parked suspect no_permit rate_limited breaker_open``.

        Everything that holds is said, in that order: of the gates of a PENDING job each that lets nothing
        through now, first its resource's, then its limit key's, then its breaker's (a limit may be out of permits
        and of starts). Where nothing else holds it back and they let through fewer jobs than come before it, those
        that these use up, with when the next start after theirs is.
        """
        ...
