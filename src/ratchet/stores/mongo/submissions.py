"""
Submissions in MongoDB: what is stored together, all or none.

A plain job is one document and needs no transaction; many of them are written as they are, in one. Whatever has
keys, edges, a batch or a signal goes through the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from pymongo.errors import DuplicateKeyError

from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, Conflict
from ratchet.model.identifiers import is_young
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.blocked_submissions import blocked
from ratchet.stores.memory.changes import Effects
from ratchet.stores.memory.insertion import InsertCall, RunningHolder, replace_job, supersede
from ratchet.stores.memory.values import check, check_spec, in_utc
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.jobs import document_of, new_row
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.errors import TransactionAborted, aborted
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work
from ratchet.stores.mongo.wakeups import wake_with
from ratchet.stores.validation import validate

#: Seconds that a submission waits for a key that another open transaction holds.
KEY_WAIT: Final = 5.0


class MongoSubmissions(MongoPart):
    """Stores new jobs."""

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        """Store *specs* with their *edges* (and *batch* with its parent job), all or none."""
        self._prepare_submission(specs, edges, batch, now)
        fresh = within is None and all(map(_is_fresh, specs))  # then they are not looked up first
        alone = bool(specs) and fresh and not edges and batch is None and all(map(_stands_alone, specs))
        if alone and len(specs) == 1:
            return [self._insert_one(specs[0], now)]
        tries = 0

        def store(work: Work) -> list[Insertion] | BusinessKeyBusy:
            nonlocal tries
            tries += 1
            if alone and tries == 1:
                return self._insert_alone(work, specs, now)
            load_submission(work, specs, edges, batch, fresh=fresh and tries == 1)
            if within is not None and self.database.notify:
                work.afterwards(Names.WAKEUPS, lambda wakeups: wake_with(wakeups, work.session))
            submission = InsertCall(work, Effects(), now=now)
            try:
                return work.run(lambda: submission.store(specs, edges=edges, batch=batch))
            except RunningHolder as busy:
                # nothing of the call is stored, but the holder is asked to make room
                supersede(work, busy.holder, now=now)
                return BusinessKeyBusy(busy.key, busy.holder)

        try:
            answer = self.database.run(store, within=within, retry_for=KEY_WAIT)
        except TransactionAborted as error:
            raise aborted(error, submission=True) from error
        except Conflict as error:
            raise blocked(specs, edges) from error
        if isinstance(answer, BusinessKeyBusy):
            raise answer
        return answer

    def _insert_one(self, spec: JobSpec, now: datetime) -> Insertion:
        """Store a job that nothing else belongs to: one document is whole by itself, and needs no transaction."""

        def insert(collections: Collections) -> None:
            try:
                collections[Names.JOBS].insert_one(self._document(spec, now))
            except DuplicateKeyError:
                pass  # the same submission again, after a lost answer

        self.database.write(insert)
        return Insertion(job_id=spec.job_id, created=True)

    def _insert_alone(self, work: Work, specs: Sequence[JobSpec], now: datetime) -> list[Insertion]:
        """Store many of them; one that is there already is a conflict, and the next try looks."""
        documents = [self._document(spec, now) for spec in specs]
        work.write(Names.JOBS, lambda jobs: jobs.insert_many(documents, ordered=False, session=work.session))
        return [Insertion(job_id=spec.job_id, created=True) for spec in specs]

    def _document(self, spec: JobSpec, now: datetime) -> Document:
        stream_id = self.database.streams.id_of(spec.stream)
        return document_of(new_row(in_utc(spec), stream_id, now), stream_id)

    def replace(
        self, job_id: UUID, spec: JobSpec, *, now: datetime, within: object | None = None
    ) -> CanceledJob | None:
        """Cancel a PENDING, PAUSED or WAITING job and store *spec* in its place, in one transaction."""
        self._prepare_submission([spec], (), None, now)

        def work(work: Work) -> CanceledJob | None:
            work.load_jobs([job_id])
            load_submission(work, [spec], (), None)
            return replace_job(work, job_id, spec, now=now)

        return self.change(work, within)

    def _prepare_submission(
        self, specs: Sequence[JobSpec], edges: Sequence[Edge], batch: BatchSpec | None, now: datetime
    ) -> None:
        """Refuse what cannot be stored, and make the streams that are missing, before anything is written."""
        check((now, *edges, batch), "now")
        for spec in specs if batch is None else (*specs, batch.parent):
            check_spec(spec)
        self.database.streams.make(validate(specs, edges, batch, now=now))


def load_submission(
    work: Work,
    specs: Sequence[JobSpec],
    edges: Sequence[Edge],
    batch: BatchSpec | None,
    *,
    fresh: bool = False,
) -> None:
    """Read together what a submission will ask for one by one; *fresh* as in `Work.load_new`."""
    everything = list(specs) if batch is None else [*specs, batch.parent]
    own = {spec.job_id for spec in everything}
    work.load_new([spec.job_id for spec in everything], fresh=fresh)
    work.idempotency.load({spec.idempotency_key for spec in everything if spec.idempotency_key is not None})
    work.reservations.load({spec.business_key for spec in everything if spec.business_key is not None})
    work.batches.load({spec.batch_id for spec in everything if spec.batch_id is not None})
    work.load_jobs({edge.parent_id for edge in edges} - own)


def _is_fresh(spec: JobSpec) -> bool:
    """True for a job without keys whose id is so young that it can hardly be stored, and not in the archive."""
    keyless = spec.idempotency_key is None and spec.business_key is None
    return keyless and is_young(spec.job_id)


def _stands_alone(spec: JobSpec) -> bool:
    """True for a keyless job without parents, batch and signal."""
    return spec.status is JobStatus.PENDING and spec.batch_id is None and spec.signal is None
