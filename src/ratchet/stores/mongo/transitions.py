"""
Transitions in MongoDB: every change of a job's state.

**The fence.** The rules compare (job_id, claim_id) with the document in the transaction's snapshot, and what
they decide is written to that same document in that same transaction. Nothing can come between: the server
refuses to write a document that was changed since the snapshot, whoever changed it, and the work is then
done again and finds the claim gone. Single statements outside of a transaction (a claim, progress, a
checkpoint) carry the fence in their own filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.alerts import ALERT_WINDOW, alert_ids
from ratchet.model.claim import SUSPECT_AFTER, JobClaim
from ratchet.model.cluster import resources_of
from ratchet.model.decision import CanceledJob, Completion, CompletionAnswer, CountCrash, Fail
from ratchet.model.errors import Conflict
from ratchet.model.job import Progress, StreamKey
from ratchet.model.status import AT_REST, JobStatus
from ratchet.stores.memory.completion import apply_completions, held_by
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.successes import NotPlain, plain_successes, write_successes
from ratchet.stores.mongo.transaction.work import Rules, Work

#: Completions that one transaction takes; a call with more of them is several transactions.
PORTION: Final = 1_000

#: Seconds for which a look is tried again that will be repeated soon anyway.
_SHORTLY: Final = 0.3
_EXPIRES: Final = sorted(status.value for status in AT_REST)


class MongoTransitions(MongoPart):
    """Ends, retries, pauses, hand-backs."""

    # --- ends -----------------------------------------------------------------------------------

    def complete(
        self,
        completions: Sequence[Completion],
        *,
        now: datetime,
        alert_window: timedelta = ALERT_WINDOW,
        within: object | None = None,
    ) -> list[CompletionAnswer]:
        """
        Apply many completions, each whole; one answer per completion, in order.

        All in one transaction, up to a thousand: MongoDB ends transactions that take too long, and a
        call with more is made of several. What cannot be stored is found before any of them.
        """
        check(now, "now")
        for one in completions:  # the claim is what this store has given out
            check((one.decision, one.started_at, one.finished_at, one.verdicts, one.callback, one.state))
        if completions:
            self.database.streams.make(self._streams_of(completions))
        answers: list[CompletionAnswer] = []
        size = max(len(completions), 1) if within is not None else PORTION
        for start in range(0, len(completions), size):
            answers += self._complete(completions[start : start + size], now, alert_window, within)
        self.database.linked_jobs.forget(one.claim.job_id for one in completions)
        return answers

    def _complete(
        self, portion: Sequence[Completion], now: datetime, alert_window: timedelta, within: object | None
    ) -> list[CompletionAnswer]:
        """One transaction. In the caller's, nothing could be taken back, so the rules decide about each at once."""
        plain = plain_successes(self.database, portion) if within is None else []
        if plain:
            try:
                return self.database.run(lambda work: _apply(work, portion, plain, now, alert_window))
            except NotPlain:
                pass  # a claim was lost, or somebody depends on a job since it was claimed
        return self.database.run(lambda work: _apply(work, portion, [], now, alert_window), within=within)

    def cancel(
        self, job_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """Cancel a PENDING, PAUSED, WAITING or RUNNING job and, depth-first, all its dependants."""

        def work(work: Work) -> list[CanceledJob]:
            work.load_jobs([job_id])
            return Rules(work).cancel(job_id, reason=reason, now=now)

        return self.change(work, within)

    def settle(self, claims: Sequence[JobClaim], *, now: datetime) -> None:
        """The code of these ended runs has really ended: free keys and permits that still wait for it."""
        runs = [{"job_id": claim.job_id, "claim_id": claim.claim_id} for claim in claims]

        def waits(collections: Collections) -> bool:
            return collections[Names.STILL_RUNNING].find_one({"_id": {"$in": runs}}, {"_id": 1}) is not None

        waiting = bool(runs) and self.database.read(waits)
        if waiting:
            self.database.run(lambda work: Rules(work).settle(claims, now=now))

    def expire(self, *, now: datetime, limit: int) -> list[CanceledJob]:
        """
        Cancel what has expired and fail what waited for its signal too long, at most *limit*.

        Looks first, so that a sweep that finds nothing writes nothing.
        """
        at = micros(now)

        def find(collections: Collections) -> list[UUID]:
            over = {"deadline_at": {"$lte": at}, "status": {"$in": _EXPIRES}}
            found = collections[Names.JOBS].find(over, {"_id": 1}).sort([("deadline_at", 1), ("_id", 1)])
            return [one["_id"] for one in found.limit(limit)]

        ids = self.database.read(find) if limit > 0 else []
        if not ids:
            return []

        def work(work: Work) -> list[CanceledJob]:
            work.load_jobs(ids)
            return Rules(work).expire(now=now, limit=limit)

        return self.database.run(work)

    # --- back and aside -------------------------------------------------------------------------

    def retry(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """FAILED (also paused from FAILED) to PENDING: attempts and crashes 0, error cleared, due now."""

        def work(work: Work) -> bool:
            work.load_jobs([job_id])
            return Rules(work).retry(job_id, now=now)

        return self.change(work, within)

    def pause(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PENDING or FAILED to PAUSED, True; already PAUSED: True; any other state: False."""
        return self.change(lambda work: Rules(work).pause(job_id, now=now), within)

    def resume(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PAUSED to the state it was paused from, with the due time and attempts it had; else False."""
        return self.change(lambda work: Rules(work).resume(job_id, now=now), within)

    # --- runs that do not end -------------------------------------------------------------------

    def hand_back(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Return unstarted claims to PENDING with their old due time; how many were still held."""
        if not claims:
            return 0

        def work(work: Work) -> int:
            load_claims(work, claims)
            return Rules(work).hand_back(claims, now=now)

        return self.database.run(work)

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]:
        """
        Return RUNNING jobs of *node_id* whose claim id is not among *known*: their answer was lost.

        A claim that timed out here may be carried out by the server later, so a node asks again and again;
        it looks first, and mostly finds nothing. What an open transaction has changed is there for the next
        look, or not there any more.
        """

        def looks_strange(collections: Collections) -> bool:
            strange = {"node_id": node_id, "claim_id": {"$nin": list(known)}}
            lost = {"node_id": node_id, "_id.claim_id": {"$nin": list(known)}}
            running = {"status": JobStatus.RUNNING.value, **strange}
            return (
                collections[Names.JOBS].find_one(running, {"_id": 1}) is not None
                or collections[Names.STILL_RUNNING].find_one(lost, {"_id": 1}) is not None
            )

        if not self.database.read(looks_strange):
            return []
        try:
            return self.database.run(
                lambda work: Rules(work).hand_back_unknown(node_id, known, now=now), retry_for=_SHORTLY
            )
        except Conflict:
            return []

    def park(self, claim: JobClaim, target: str, *, now: datetime) -> bool:
        """Return a claimed job whose target this node cannot import to a stream parked for that target."""
        return self.database.run(lambda work: Rules(work).park(claim, target, now=now))

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        """Store a run's progress, if *claim* still holds the job."""
        check((now, progress), "progress")
        change: Document = {"progress": progress.fraction, "progress_message": progress.message}
        return self._save(claim, change, within)

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        """Store a run's checkpoint (JSON), if *claim* still holds the job."""
        check((now, state), "the checkpoint")
        return self._save(claim, {"state": state}, None)

    def _save(self, claim: JobClaim, change: Document, within: object | None) -> bool:
        """One document, so one statement; the fence is in it."""
        running = JobStatus.RUNNING.value
        fence = {"_id": claim.job_id, "status": running, "claim_id": claim.claim_id}  # fence
        if within is not None:

            def work(work: Work) -> bool:
                done = work.write(
                    Names.JOBS, lambda jobs: jobs.update_one(fence, {"$set": change}, session=work.session)
                )
                return bool(done.matched_count)

            return self.database.run(work, within=within)
        return self.database.write(
            lambda collections: collections[Names.JOBS].update_one(fence, {"$set": change}).matched_count > 0
        )

    def _streams_of(self, completions: Iterable[Completion]) -> set[StreamKey]:
        """The streams that these completions may need."""
        wanted = {one.callback.stream for one in completions if one.callback is not None}
        for one in completions:
            if isinstance(one.decision, CountCrash) and one.claim.crashes + 1 >= SUSPECT_AFTER:
                try:
                    wanted.add(replace(self.database.streams.key_of(one.claim.stream_id), suspect=True))
                except KeyError:
                    pass  # a claim that was never given out: it holds nothing
        return wanted


def _apply(
    work: Work,
    completions: Sequence[Completion],
    plain: Sequence[Completion],
    now: datetime,
    alert_window: timedelta,
) -> list[CompletionAnswer]:
    """Apply *completions*, of which *plain* are successes that mean nothing for others."""
    ended = {one.claim.job_id.int for one in plain}
    if plain:
        write_successes(work, plain, now=now)
    others = [one for one in completions if one.claim.job_id.int not in ended]
    load_completions(work, others, now, alert_window)
    answers = iter(apply_completions(work, others, now, alert_window))
    return [
        CompletionAnswer(job_id=one.claim.job_id, won=True)
        if one.claim.job_id.int in ended
        else next(answers)
        for one in completions
    ]


def load_claims(work: Work, claims: Iterable[JobClaim]) -> None:
    """Read the jobs of these claims, and their permits, together."""
    claims = list(claims)
    work.load_jobs([claim.job_id for claim in claims])
    rows = [(claim, row) for claim in claims if (row := held_by(work, claim)) is not None]
    work.permits.load(
        (name, claim.job_id, claim.claim_id) for claim, row in rows for name in resources_of(row.stream)
    )


def load_completions(
    work: Work, completions: Sequence[Completion], now: datetime, alert_window: timedelta
) -> None:
    """Read together what these completions will ask for one by one."""
    load_claims(work, [one.claim for one in completions])
    callbacks = [one.callback.job_id for one in completions if one.callback is not None]
    work.load_new(callbacks)
    causes = {one.decision.error_hash for one in completions if isinstance(one.decision, Fail)}
    work.alerts.load(alert_id for cause in causes for alert_id in alert_ids(cause, now, alert_window))
    lost = [one.claim for one in completions if held_by(work, one.claim) is None]
    work.executions.load((claim.job_id, claim.claim_id) for claim in lost)
