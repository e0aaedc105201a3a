"""A store in memory with the words to use it, and one that is furnished."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from ratchet.model.claim import ClaimRequest, JobClaim
from ratchet.model.cluster import NodeSpec
from ratchet.model.composition import BatchSpec, Edge, EdgeKind, ScheduleSpec
from ratchet.model.decision import Completion, CompletionAnswer, Decision, ErrorRecord, Fail, Succeed
from ratchet.model.job import JobSpec, SignalWait, StreamKey
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.memory import MemoryStore
from ratchet.stores.memory.tables import Table

NOW = datetime(2031, 3, 1, 12, tzinfo=UTC)

MINUTE = timedelta(minutes=1)

NODE = "node-1"


class Shop:
    """A store and the words to use it; ids count from 1, so that two shops do exactly the same."""

    def __init__(self, *, lock_wait: timedelta = timedelta()) -> None:
        self.store = MemoryStore(lambda: NOW, lock_wait=lock_wait)
        self.numbers = count(1)

    def id(self) -> UUID:
        return UUID(int=next(self.numbers) << 80 | 0x7 << 76 | 0b10 << 62)

    def spec(self, **changes: object) -> JobSpec:
        values: dict[str, object] = {
            "job_id": self.id(),
            "target": "a:b",
            "payload": "{}",
            "scheduled_at": NOW,
        }
        return JobSpec(**(values | changes))  # type: ignore[arg-type]

    def step(self, **changes: object) -> JobSpec:
        return self.spec(status=JobStatus.WAITING, needs=1, **changes)

    def submit(self, *specs: JobSpec, edges: tuple[Edge, ...] = (), within: object | None = None) -> None:
        self.store.insert(specs, now=NOW, edges=edges, within=within)

    def claim(self, limit: int = 1000, *, node: str = NODE, now: datetime = NOW) -> list[JobClaim]:
        request = ClaimRequest(node_id=node, claim_id=self.id(), limit=limit)
        return self.store.claim_next_batch_optimized(request, now=now)

    def run(self, spec: JobSpec) -> JobClaim:
        """Submit a job and claim it."""
        self.submit(spec)
        return next(claim for claim in self.claim() if claim.job_id == spec.job_id)

    def end(
        self,
        claim: JobClaim,
        decision: Decision | None = None,
        *,
        within: object | None = None,
        still_running: bool = False,
    ) -> CompletionAnswer:
        completion = Completion(
            claim=claim,
            decision=decision or Succeed(result="1"),
            started_at=NOW,
            finished_at=NOW,
            still_running=still_running,
        )
        return self.store.complete([completion], now=NOW, within=within)[0]

    def status(self, job: JobSpec | JobClaim) -> JobStatus:
        record = self.store.get(job.job_id)
        assert record is not None
        return record.status

    def register(self, node: str = NODE) -> None:
        self.store.register(
            NodeSpec(
                node_id=node,
                name=node,
                host="h",
                pid=1,
                version="1",
                beat_interval=timedelta(seconds=2),
                silence=timedelta(seconds=5),
            ),
            now=NOW,
        )


FAILURE = Fail(error=ErrorRecord(message="no", type="E"), reason="r", error_hash="h")


def edge(parent: JobSpec, child: JobSpec, kind: EdgeKind = EdgeKind.SUCCESS) -> Edge:
    return Edge(parent_id=parent.job_id, child_id=child.job_id, kind=kind)


def content(store: MemoryStore) -> dict[str, dict[object, object]]:
    """Every row of every table."""
    tables = [value for value in vars(store._state).values() if isinstance(value, Table)]
    assert len(tables) > 15
    return {table.name: dict(table.items()) for table in tables}


def furnished() -> tuple[Shop, dict[str, JobSpec], dict[str, JobClaim]]:
    """A shop with something of everything; the same every time."""
    shop = Shop()
    shop.register()
    shop.store.set_limit("gateway", concurrent=9, rate=100, period=MINUTE, now=NOW)
    batch_id = shop.id()
    jobs = {
        "running": shop.spec(business_key="running", stream=StreamKey(resource="gateway")),
        "child": shop.step(business_key="child"),
        "grandchild": shop.step(),
        "failure branch": shop.step(),
        "batch child": shop.spec(batch_id=batch_id),
        "dead": shop.spec(business_key="dead", batch_id=batch_id),
        "victim": shop.step(business_key="victim"),
        "canceled": shop.spec(business_key="canceled", stream=StreamKey(resource="gateway")),
        "third crash": shop.spec(),
        "later": shop.spec(
            scheduled_at=NOW + MINUTE,
            business_key="later",
            expires_at=NOW + 2 * MINUTE,
            stream=StreamKey(resource="gateway"),
        ),
        "signal": shop.spec(status=JobStatus.WAITING, signal=SignalWait(key="go", deadline=NOW + MINUTE)),
    }
    parent = shop.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
    edges = [
        edge(jobs["running"], jobs["child"]),
        edge(jobs["child"], jobs["grandchild"]),
        edge(jobs["running"], jobs["failure branch"], EdgeKind.FAILURE),
        edge(jobs["dead"], jobs["victim"]),
    ]
    batch = BatchSpec(batch_id=batch_id, name="b", parent=parent, total=2)
    shop.store.insert(list(jobs.values()), now=NOW, edges=edges, batch=batch)
    claims = {
        name: claim for claim in shop.claim() for name, spec in jobs.items() if spec.job_id == claim.job_id
    }
    shop.end(claims["dead"], FAILURE)
    shop.store.cancel(claims["canceled"].job_id, reason="r", now=NOW)
    jobs["parent"] = parent
    shop.store.upsert_schedule(
        ScheduleSpec(
            name="n", expression="* * * * *", zone="UTC", target="a:b", template="", next_fire_at=NOW
        ),
        now=NOW,
    )
    shop.store.check_invariants()
    return shop, jobs, claims
