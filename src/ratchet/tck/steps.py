"""The steps that contracts are written in: make a job, claim it, end its run, look at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from ratchet.model.alerts import cause_of
from ratchet.model.claim import ClaimedJob, ClaimRequest, JobClaim
from ratchet.model.cluster import NodeSpec, Rescue
from ratchet.model.composition import (
    BatchSpec,
    Condition,
    Edge,
    EdgeKind,
    Fire,
    ScheduleSpec,
    SignalSpec,
)
from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    Decision,
    ErrorRecord,
    Fail,
    Retry,
    Succeed,
    Verdict,
    VerdictKind,
)
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobRecord, JobSpec, SignalWait, StreamKey
from ratchet.model.status import JobStatus, JobType, Lane, Priority
from ratchet.spi.store import JobStore

#: Far from the wall clock on purpose, so that a store that compares with its own clock fails.
START = datetime(2031, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)

TARGET = "shop.jobs:charge"
PAYLOAD = '{"args":[42],"kwargs":{}}'
NODE = "node-1"
OTHER_NODE = "node-2"

_STREAM_FIELDS = frozenset(StreamKey.__struct_fields__)


class Steps:
    """What a contract can do with the store under test. ``now`` stands still until a contract moves it."""

    store: JobStore
    now: datetime = START

    # --- time -----------------------------------------------------------------------------------

    def advance(self, **duration: float) -> datetime:
        """Let time pass, as in ``timedelta(**duration)``; the new time."""
        self.now += timedelta(**duration)
        return self.now

    def after(self, **duration: float) -> datetime:
        """A time relative to now; no time passes."""
        return self.now + timedelta(**duration)

    # --- jobs -----------------------------------------------------------------------------------

    def spec(self, **changes: Any) -> JobSpec:
        """A job that is due now. Fields of its stream (``queue``, ``lane``, ``resource`` …) may be given directly."""
        stream = {name: changes.pop(name) for name in _STREAM_FIELDS & changes.keys()}
        if stream:
            changes["stream"] = StreamKey(**stream)
        values: dict[str, Any] = {
            "job_id": new_id(),
            "target": TARGET,
            "payload": PAYLOAD,
            "scheduled_at": self.now,
            **changes,
        }
        return JobSpec(**values)

    def specs(self, count: int, **changes: Any) -> list[JobSpec]:
        """Several jobs with the same values, each with its own id."""
        return [self.spec(**changes) for _ in range(count)]

    def submit(self, **changes: Any) -> UUID:
        """Store one job; its id."""
        return self.store.insert([self.spec(**changes)], now=self.now)[0].job_id

    def submit_many(self, count: int, **changes: Any) -> list[UUID]:
        """Store several jobs with the same values; their ids, oldest first."""
        return [i.job_id for i in self.store.insert(self.specs(count, **changes), now=self.now)]

    def record(self, job_id: UUID) -> JobRecord:
        """The job as it is stored now."""
        record = self.store.get(job_id)
        assert record is not None, f"there is no job {job_id}"
        return record

    def status(self, job_id: UUID) -> JobStatus:
        """The state of a job."""
        return self.record(job_id).status

    def statuses(self, job_ids: Iterable[UUID]) -> list[JobStatus]:
        """The states of several jobs, in the order asked for."""
        return [self.status(job_id) for job_id in job_ids]

    # --- claims ---------------------------------------------------------------------------------

    def request(self, limit: int = 1000, **changes: Any) -> ClaimRequest:
        """A claim request with a new token."""
        values: dict[str, Any] = {"node_id": NODE, "claim_id": new_id(), "limit": limit, **changes}
        return ClaimRequest(**values)

    def take(self, limit: int = 1000, *, store: JobStore | None = None, **changes: Any) -> list[ClaimedJob]:
        """Claim with bodies."""
        return (store or self.store).claim_next_batch(self.request(limit, **changes), now=self.now)

    def claim(self, limit: int = 1000, *, store: JobStore | None = None, **changes: Any) -> list[JobClaim]:
        """Claim, and return only the claims."""
        return [job.claim for job in self.take(limit, store=store, **changes)]

    def claim_job(self, job_id: UUID, **changes: Any) -> JobClaim:
        """Claim this job; any other job that the claim takes is handed back."""
        claims = self.claim(**changes)
        mine = [claim for claim in claims if claim.job_id == job_id]
        assert mine, (
            f"a claim of everything did not return {job_id}: {self.store.explain(job_id, now=self.now)}"
        )
        others = [claim for claim in claims if claim.job_id != job_id]
        if others:
            assert self.store.hand_back(others, now=self.now) == len(others)
        return mine[0]

    def claimable(self, **changes: Any) -> set[UUID]:
        """What a claim of any size would return, over all lanes; it is handed back at once."""
        found: set[UUID] = set()
        for lane in Lane:
            claims = self.claim(10_000, lane=lane, **changes)
            if claims:
                assert self.store.hand_back(claims, now=self.now) == len(claims)
            found |= {claim.job_id for claim in claims}
        return found

    def forged_claim(self, job_id: UUID, node_id: str = NODE) -> JobClaim:
        """A claim that no store ever gave out."""
        return JobClaim(
            job_id=job_id,
            claim_id=new_id(),
            node_id=node_id,
            stream_id=1,
            type=JobType.SINGLE,
            priority=Priority.NORMAL,
            scheduled_at=self.now,
            claimed_at=self.now,
            attempts=0,
            crashes=0,
            max_retries=0,
        )

    # --- ends of runs ---------------------------------------------------------------------------

    def error(self, message: str = "card declined") -> ErrorRecord:
        """A sanitized error."""
        return ErrorRecord(message=message, type="shop.errors.Declined", traceback="Traceback: …")

    def success(self, result: str | None = '"receipt"') -> Succeed:
        """The decision to succeed."""
        return Succeed(result=result)

    def failure(self, message: str = "card declined", *, error_hash: str | None = None) -> Fail:
        """The decision to fail for good; the hash is that of the usual target."""
        error = self.error(message)
        cause = error_hash or cause_of(self.spec().target, error.type)
        return Fail(error=error, reason="retries exhausted", error_hash=cause)

    def another_try(self, at: datetime | None = None) -> Retry:
        """The decision to retry, at once unless *at* is given."""
        return Retry(at=at or self.now, error=self.error())

    def completion(self, claim: JobClaim, decision: Decision | None = None, **changes: Any) -> Completion:
        """The end of a run that started when it was claimed and finishes now."""
        values: dict[str, Any] = {
            "claim": claim,
            "decision": decision or self.success(),
            "started_at": claim.claimed_at,
            "finished_at": self.now,
            **changes,
        }
        return Completion(**values)

    def complete(
        self,
        claim: JobClaim,
        decision: Decision | None = None,
        *,
        store: JobStore | None = None,
        **changes: Any,
    ) -> CompletionAnswer:
        """End one run; SUCCEEDED unless a decision is given."""
        completion = self.completion(claim, decision, **changes)
        answers = (store or self.store).complete([completion], now=self.now)
        assert [answer.job_id for answer in answers] == [claim.job_id]
        return answers[0]

    def end(self, claim: JobClaim, decision: Decision | None = None, **changes: Any) -> CompletionAnswer:
        """End one run whose claim must still hold."""
        answer = self.complete(claim, decision, **changes)
        assert answer.won
        assert not answer.replayed
        return answer

    def end_all(self, claims: Sequence[JobClaim], decision: Decision | None = None) -> list[CompletionAnswer]:
        """End many runs in the same way, in one call."""
        return self.store.complete([self.completion(claim, decision) for claim in claims], now=self.now)

    # --- jobs in a given state ------------------------------------------------------------------

    def running(self, *, node: str = NODE, **changes: Any) -> JobClaim:
        """A RUNNING job, as its claim."""
        job = self.spec(**changes)
        self.store.insert([job], now=self.now)
        return self.claim_job(job.job_id, node_id=node, lane=job.stream.lane)

    def succeeded(self, **changes: Any) -> UUID:
        """A SUCCEEDED job."""
        return self.end(self.running(**changes)).job_id

    def failed(self, **changes: Any) -> UUID:
        """A FAILED job."""
        return self.end(self.running(**changes), self.failure()).job_id

    def paused(self, **changes: Any) -> UUID:
        """A job that was PAUSED while PENDING."""
        job_id = self.submit(**changes)
        assert self.store.pause(job_id, now=self.now)
        return job_id

    def canceled(self, **changes: Any) -> UUID:
        """A job that was CANCELED while PENDING."""
        job_id = self.submit(**changes)
        assert self.store.cancel(job_id, reason="not needed", now=self.now)
        return job_id

    def waiting(self, **changes: Any) -> UUID:
        """A job that is WAITING for a signal that nothing else sends."""
        changes.setdefault("signal", SignalWait(key=f"signal-{new_id()}"))
        return self.submit(status=JobStatus.WAITING, **changes)

    # --- composition ----------------------------------------------------------------------------

    def child(self, needs: int = 1, **changes: Any) -> JobSpec:
        """A job that waits for *needs* of its edges."""
        changes.setdefault("type", JobType.CHAIN_STEP)
        return self.spec(status=JobStatus.WAITING, needs=needs, **changes)

    def edge(
        self,
        parent: UUID | JobSpec,
        child: UUID | JobSpec,
        kind: EdgeKind = EdgeKind.SUCCESS,
        *,
        position: int = 0,
        condition: Condition | None = None,
    ) -> Edge:
        """An edge by which *child* waits for *parent*; a CONDITION edge gets a condition if none is given."""
        if kind is EdgeKind.CONDITION and condition is None:
            condition = Condition(kind="result", predicate="shop.rules:is_high")
        return Edge(
            parent_id=parent.job_id if isinstance(parent, JobSpec) else parent,
            child_id=child.job_id if isinstance(child, JobSpec) else child,
            kind=kind,
            position=position,
            condition=condition,
        )

    def verdict(self, child: UUID | JobSpec, kind: VerdictKind) -> Verdict:
        """The verdict of a condition on this child."""
        child_id = child.job_id if isinstance(child, JobSpec) else child
        return Verdict(
            child_id=child_id,
            kind=kind,
            error=self.error("predicate raised") if kind is VerdictKind.ERROR else None,
        )

    def insert(
        self, specs: Sequence[JobSpec], edges: Sequence[Edge] = (), batch: BatchSpec | None = None
    ) -> None:
        """Store a graph of new jobs."""
        answers = self.store.insert(specs, now=self.now, edges=edges, batch=batch)
        assert [answer.job_id for answer in answers] == [spec.job_id for spec in specs]
        assert all(answer.created for answer in answers)

    def batch_of(self, count: int, *, sealed: bool = True, **changes: Any) -> tuple[BatchSpec, list[JobSpec]]:
        """Store a batch of *count* children; the batch and the children."""
        batch_id = new_id()
        parent = self.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT, batch_id=None)
        children = self.specs(count, type=JobType.BATCH_CHILD, batch_id=batch_id, **changes)
        batch = BatchSpec(batch_id=batch_id, name="import", parent=parent, total=count, sealed=sealed)
        self.insert(children, batch=batch)
        return batch, children

    def schedule_spec(self, name: str = "nightly", **changes: Any) -> ScheduleSpec:
        """A schedule that is due now."""
        values: dict[str, Any] = {
            "name": name,
            "expression": "0 2 * * *",
            "zone": "Europe/Berlin",
            "target": TARGET,
            "template": PAYLOAD,
            "next_fire_at": self.now,
            **changes,
        }
        return ScheduleSpec(**values)

    def fire(self, name: str = "nightly", at: datetime | None = None, **changes: Any) -> Fire:
        """One fire time with its run."""
        at = at or self.now
        run = self.spec(type=JobType.RECURRING_RUN, schedule=name, scheduled_at=at, **changes)
        return Fire(fire_at=at, spec=run)

    def signal(self, key: str, **changes: Any) -> SignalSpec:
        """A signal that is kept for an hour."""
        values: dict[str, Any] = {
            "signal_id": new_id(),
            "key": key,
            "keep_until": self.after(hours=1),
            **changes,
        }
        return SignalSpec(**values)

    # --- nodes ----------------------------------------------------------------------------------

    def register(self, node_id: str = NODE, **changes: Any) -> str:
        """Register a node."""
        values: dict[str, Any] = {
            "node_id": node_id,
            "name": node_id,
            "host": "host.example",
            "pid": 4711,
            "version": "1.0",
            "beat_interval": timedelta(seconds=2),
            "silence": timedelta(seconds=5),
            **changes,
        }
        self.store.register(NodeSpec(**values), now=self.now)
        return node_id

    def beat_of(self, node_id: str) -> int:
        """A node's beat counter."""
        return next(node.beat for node in self.store.nodes() if node.node_id == node_id)

    def rescue(self, node_id: str = NODE, *, max_crashes: int = 3, **known: Any) -> Rescue:
        """Declare a node dead, with its current beat as the last one seen; *known* of how it died."""
        rescue = self.store.rescue(
            node_id,
            seen_beat=self.beat_of(node_id),
            by="rescuer",
            max_crashes=max_crashes,
            now=self.now,
            **known,
        )
        assert rescue is not None
        return rescue
