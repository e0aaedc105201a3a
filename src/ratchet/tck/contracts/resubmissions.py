"""Resubmissions: the same jobs sent again, long after they were stored, archived or deleted."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import BatchSpec
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness

_DAY = 86_400_000
_ids = IdFactory(lambda: time.time_ns() // 1_000_000 - _DAY)


def yesterday(harness: Harness, **changes: Any) -> JobSpec:
    """A job whose id is a day old, so that no store takes it for a new one."""
    return harness.spec(job_id=_ids(), **changes)


def archived(harness: Harness, *specs: JobSpec) -> None:
    """Store jobs, let them succeed, and move them to the archive."""
    harness.insert(specs)
    harness.end_all(harness.claim())
    harness.advance(days=1)
    assert harness.store.archive(before=harness.now, limit=99, now=harness.now) == len(specs)


def send(harness: Harness, *specs: JobSpec, **more: Any) -> list[Insertion]:
    """Send jobs, for the first time or again."""
    return harness.store.insert(specs, now=harness.now, **more)


def created(*job_ids: UUID) -> list[Insertion]:
    """The answers for jobs that are stored."""
    return [Insertion(job_id=job_id, created=True) for job_id in job_ids]


class TestArchivedJob:
    def test_its_id_again_is_the_same_submission(self, harness: Harness) -> None:
        """The submission is answered as stored; the job stays in the archive and can still be purged."""
        spec = yesterday(harness, tags=("red",))
        archived(harness, spec)
        before = harness.record(spec.job_id)
        assert send(harness, spec) == created(spec.job_id)
        assert harness.record(spec.job_id) == before
        assert (harness.claim(), sum(harness.store.counts().values())) == ([], 0)
        harness.advance(days=1)
        assert harness.store.archive(before=harness.now, limit=99, now=harness.now) == 0
        assert harness.store.purge_archive(before=harness.now, limit=99) == 1

    def test_among_others(self, harness: Harness) -> None:
        """Archived and new jobs come in one call: exactly the new ones are stored."""
        old, new = [yesterday(harness) for _ in range(3)], [yesterday(harness) for _ in range(3)]
        archived(harness, *old)
        mixed = [spec for pair in zip(old, new, strict=True) for spec in pair]
        assert send(harness, *mixed) == created(*(spec.job_id for spec in mixed))
        assert {claim.job_id for claim in harness.claim()} == {spec.job_id for spec in new}

    def test_with_its_keys(self, harness: Harness) -> None:
        """Sent again, the archived job takes neither key again: another job can use its business key."""
        spec = yesterday(harness, business_key="k", idempotency_key="i")
        archived(harness, spec)
        assert send(harness, spec) == created(spec.job_id)
        other = harness.spec(business_key="k")
        assert send(harness, other) == created(other.job_id)
        assert send(harness, spec) == created(spec.job_id)
        assert harness.status(other.job_id) is JobStatus.PENDING

    def test_as_a_parent(self, harness: Harness) -> None:
        """A new dependant in the same call is released, because its archived parent has succeeded."""
        parent = yesterday(harness)
        archived(harness, parent)
        child = harness.child()
        assert send(harness, parent, child, edges=[harness.edge(parent, child)]) == created(
            parent.job_id, child.job_id
        )
        assert harness.status(child.job_id) is JobStatus.PENDING


class TestDeletedJob:
    def test_its_idempotency_key_stands_for_it(self, harness: Harness) -> None:
        """The same submission is answered with the deleted job and is not stored, so the job does not run after all."""
        spec = yesterday(harness, idempotency_key="i")
        harness.insert([spec])
        assert harness.store.delete(spec.job_id)
        assert send(harness, spec) == [Insertion(job_id=spec.job_id, created=False)]
        assert send(harness, harness.spec(idempotency_key="i")) == [
            Insertion(job_id=spec.job_id, created=False)
        ]
        assert harness.store.get(spec.job_id) is None

    def test_a_young_one(self, harness: Harness) -> None:
        """The same holds for an id that has just been made."""
        spec = harness.spec(idempotency_key="i")
        harness.insert([spec])
        assert harness.store.delete(spec.job_id)
        assert send(harness, spec) == [Insertion(job_id=spec.job_id, created=False)]
        assert harness.store.get(spec.job_id) is None

    def test_of_a_graph(self, harness: Harness) -> None:
        """The deleted root is stored again, but the rest of the graph stays as it is: no job waits for the new root."""
        root = yesterday(harness)
        step = replace(yesterday(harness), status=JobStatus.WAITING, needs=1, root_id=root.job_id)
        edge = harness.edge(root, step)
        harness.insert([root, step], [edge])
        assert harness.store.delete(root.job_id)
        assert harness.status(step.job_id) is JobStatus.CANCELED
        assert send(harness, root, step, edges=[edge]) == created(root.job_id, step.job_id)
        assert harness.store.edges_of(step.job_id) == []
        harness.end(harness.claim_job(root.job_id))
        assert harness.status(step.job_id) is JobStatus.CANCELED

    def test_of_a_batch(self, harness: Harness) -> None:
        """
        A batch that is already stored takes no new children: a deleted child stays deleted, and the
        counters are right.
        """
        parent = yesterday(harness, status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
        batch_id = _ids()
        children = [yesterday(harness, type=JobType.BATCH_CHILD, batch_id=batch_id) for _ in range(2)]
        batch = BatchSpec(batch_id=batch_id, name="import", parent=parent, total=2, sealed=True)
        assert send(harness, *children, batch=batch) == created(*(child.job_id for child in children))
        assert harness.store.delete(children[0].job_id)
        assert send(harness, *children, batch=batch) == created(*(child.job_id for child in children))
        assert harness.store.get(children[0].job_id) is None
        harness.end(harness.claim_job(children[1].job_id))
        record = harness.store.batch(batch_id)
        assert record is not None
        assert (record.total, record.completed, record.canceled) == (2, 1, 1)
        assert harness.status(parent.job_id) is JobStatus.PENDING
