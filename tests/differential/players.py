"""A store with the claims that it gave out, and what can be seen of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

import ratchet.stores.memory.finish
import ratchet.stores.sql.dependants.callbacks
from ratchet.model.callbacks import callback_spec
from ratchet.model.claim import ClaimedJob, ClaimRequest, JobClaim
from ratchet.model.errors import RatchetError
from ratchet.model.job import JobFilter, JobRecord, JobSpec
from ratchet.spi.store import JobStore
from ratchet.tck import Harness
from tests.differential.plain import Plain, plain

Run = tuple[UUID, UUID]  # job and claim

#: What is limited, or is not.
RESOURCES = ("api", "db")


class Player:
    """One store that plays a life. Claims are its own: they name streams by the store's numbers."""

    def __init__(self, name: str, harness: Harness) -> None:
        self.name = name
        self.harness = harness
        self.store: JobStore = harness.open()
        self.claims: dict[Run, JobClaim] = {}

    def close(self) -> None:
        """End this life; the harness stays usable."""
        self.harness.close()

    def take(self, request: ClaimRequest, now: datetime) -> list[ClaimedJob]:
        """Claim, and remember what came of it."""
        taken = self.store.claim_next_batch(request, now=now)
        self.claims.update({(job.claim.job_id, job.claim.claim_id): job.claim for job in taken})
        return taken

    def take_light(self, request: ClaimRequest, now: datetime) -> list[JobClaim]:
        """Claim without bodies, and remember what came of it."""
        taken = self.store.claim_next_batch_optimized(request, now=now)
        self.claims.update({(claim.job_id, claim.claim_id): claim for claim in taken})
        return taken

    def play(self, call: Callable[[Player], object], names: dict[UUID, str]) -> Plain:
        """What the store answers, in plain form; an error of ours is an answer."""
        try:
            return plain(call(self), names)
        except RatchetError as error:
            return plain(error, names)

    def jobs(self, names: dict[UUID, str]) -> Plain:
        """Every job as it is, and how many there are of each status."""
        found = self.store.find(JobFilter(include_archived=True), limit=10_000)
        return {
            "jobs": plain({record.job_id: _settled(record) for record in found}, names),
            "order": [plain(record.job_id, names) for record in found],
            "counts": plain(self.store.counts(), names),
        }

    def everything(self, names: dict[UUID, str], now: datetime) -> Plain:
        """Whatever else a store shows."""
        store = self.store
        ids = [record.job_id for record in store.find(JobFilter(include_archived=True), limit=10_000)]
        batches = store.batches(limit=1000)
        schedules = store.schedules()
        seen: dict[str, Any] = {
            "executions": {job_id: store.executions(job_id, uncounted=True) for job_id in ids},
            "explain": {job_id: reasons(store, job_id, now) for job_id in ids},
            "edges": {job_id: store.edges_of(job_id) for job_id in ids},
            "alerts": {job_id: store.alerts_of(job_id) for job_id in ids},
            "results": store.results(ids),
            "dead letters": store.dead_letters(limit=1000),
            "batches": batches,
            "metrics": {batch.batch_id: store.batch_metrics(batch.batch_id) for batch in batches},
            "schedules": schedules,
            "fires": {record.spec.name: store.fires(record.spec.name) for record in schedules},
            # one that a refused submission named may be there, empty
            "queues": [one for one in store.queues() if one.paused or one.pending or one.running],
            "limits": store.limits(),
            "holders": {name: store.holders(name, limit=100) for name in RESOURCES},
            "breakers": store.breakers(),
            "nodes": store.nodes(),
            "absent_nodes": store.absent_nodes(),
            "tags": store.tag_counts(),
        }
        return plain(seen, names)


def _settled(record: JobRecord) -> JobRecord:
    """A job that is not queued is in no stream; only its own key is left of it."""
    if record.status.is_hot:
        return record
    return replace(record, stream=replace(record.stream, suspect=False, parked_target=None))


def reasons(store: JobStore, job_id: UUID, now: datetime) -> list[tuple[str, datetime | None]]:
    """What a store explains, without its own words."""
    return [(code, until) for code, _, until in store.explain(job_id, now=now)]


def _named_by_its_parent(*, callback_id: UUID, job_id: UUID, now: datetime, **more: Any) -> JobSpec:
    """A callback that a store makes: the same id on every store, later than all others of its millisecond."""
    noise = int.from_bytes(sha256(f"{job_id} {now.isoformat()}".encode()).digest()[:7], "big")
    made = UUID(int=job_id.int >> 80 << 80 | 0x7FFF << 64 | 0b10 << 62 | noise)
    return callback_spec(callback_id=made, job_id=job_id, now=now, **more)


@contextmanager
def same_callbacks() -> Iterator[None]:
    """Callbacks that stores make by themselves get the same ids everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ratchet.stores.memory.finish, "callback_spec", _named_by_its_parent)
        patch.setattr(ratchet.stores.sql.dependants.callbacks, "callback_spec", _named_by_its_parent)
        yield
