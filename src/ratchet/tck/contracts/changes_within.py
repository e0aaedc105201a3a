"""Changes by hand in the caller's transaction: made when it is committed, and not at all if it is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.job import JobFilter, SignalWait
from ratchet.model.status import JobStatus, Priority
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.tck.harness import Harness, needs

TAG = "by-hand"
KEY = "approved"


@dataclass(frozen=True)
class Verb:
    """A change: a job that it can be made to, the change, and how the job is before and after."""

    name: str
    prepare: Callable[[Harness], UUID]
    change: Callable[[Harness, UUID, object | None], Any]
    before: JobStatus
    after: JobStatus


def _within(connection: object | None) -> dict[str, object]:
    return {} if connection is None else {"within": connection}


def _replace(harness: Harness, job_id: UUID, connection: object | None) -> Any:
    spec = harness.spec(queue="brand-new", tags=("new",))
    return harness.store.replace(job_id, spec, now=harness.now, **_within(connection))


def _reschedule(harness: Harness, job_id: UUID, connection: object | None) -> Any:
    later = harness.now + timedelta(hours=1)
    return harness.store.reschedule(job_id, later, now=harness.now, **_within(connection))


VERBS = [
    Verb(
        "cancel",
        lambda harness: harness.submit(),
        lambda harness, job, own: harness.store.cancel(job, reason="r", now=harness.now, **_within(own)),
        JobStatus.PENDING,
        JobStatus.CANCELED,
    ),
    Verb(
        "cancel running",
        lambda harness: harness.running().job_id,
        lambda harness, job, own: harness.store.cancel(job, reason="r", now=harness.now, **_within(own)),
        JobStatus.RUNNING,
        JobStatus.CANCELED,
    ),
    Verb(
        "cancel matching",
        lambda harness: harness.submit(tags=(TAG,)),
        lambda harness, job, own: harness.store.cancel_matching(
            JobFilter(tags=[TAG]), limit=10, reason="r", now=harness.now, **_within(own)
        ),
        JobStatus.PENDING,
        JobStatus.CANCELED,
    ),
    Verb(
        "pause",
        lambda harness: harness.submit(),
        lambda harness, job, own: harness.store.pause(job, now=harness.now, **_within(own)),
        JobStatus.PENDING,
        JobStatus.PAUSED,
    ),
    Verb(
        "resume",
        lambda harness: harness.paused(),
        lambda harness, job, own: harness.store.resume(job, now=harness.now, **_within(own)),
        JobStatus.PAUSED,
        JobStatus.PENDING,
    ),
    Verb(
        "retry",
        lambda harness: harness.failed(),
        lambda harness, job, own: harness.store.retry(job, now=harness.now, **_within(own)),
        JobStatus.FAILED,
        JobStatus.PENDING,
    ),
    Verb(
        "retry matching",
        lambda harness: harness.failed(tags=(TAG,)),
        lambda harness, job, own: harness.store.retry_matching(
            JobFilter(tags=[TAG]), limit=10, now=harness.now, **_within(own)
        ),
        JobStatus.FAILED,
        JobStatus.PENDING,
    ),
    Verb("reschedule", lambda harness: harness.submit(), _reschedule, JobStatus.PENDING, JobStatus.PENDING),
    Verb(
        "set priority",
        lambda harness: harness.submit(),
        lambda harness, job, own: harness.store.set_priority(
            job, Priority.HIGH, now=harness.now, **_within(own)
        ),
        JobStatus.PENDING,
        JobStatus.PENDING,
    ),
    Verb("replace", lambda harness: harness.submit(), _replace, JobStatus.PENDING, JobStatus.CANCELED),
    Verb(
        "signal",
        lambda harness: harness.waiting(signal=SignalWait(key=KEY)),
        lambda harness, job, own: harness.store.send_signal(
            harness.signal(KEY), now=harness.now, **_within(own)
        ),
        JobStatus.WAITING,
        JobStatus.PENDING,
    ),
]


@needs("transactions", "within")
class TestChangesWithin:
    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_committed_with_the_caller(self, harness: Harness, verb: Verb) -> None:
        """The answer says what will be, and with the commit it is; a node then claims what may run."""
        job_id = verb.prepare(harness)
        due = harness.record(job_id).scheduled_at
        with harness.store.begin() as connection:
            assert verb.change(harness, job_id, connection)
        assert harness.status(job_id) is verb.after
        if verb.name == "reschedule":
            assert harness.record(job_id).scheduled_at == due + timedelta(hours=1)
        elif verb.after is JobStatus.PENDING:
            assert job_id in {claim.job_id for claim in harness.claim()}

    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_rolled_back_with_the_caller(self, harness: Harness, verb: Verb) -> None:
        """Nothing has happened: the job is as it was, nothing new is stored, and the change can be made again."""
        job_id = verb.prepare(harness)
        before, jobs = harness.record(job_id), sum(harness.store.counts().values())
        with rolled_back(harness.store) as connection:
            assert verb.change(harness, job_id, connection)
        assert harness.record(job_id) == before
        assert sum(harness.store.counts().values()) == jobs
        assert verb.change(harness, job_id, None)
        assert harness.status(job_id) is verb.after

    @needs("concurrent_writers")
    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_nobody_sees_it_before_the_commit(self, harness: Harness, verb: Verb) -> None:
        """Other handles see the job as it was, until the caller commits."""
        job_id, other = verb.prepare(harness), harness.reopen()
        with harness.store.begin() as connection:
            assert verb.change(harness, job_id, connection)
            seen = other.get(job_id)
            assert seen is not None
            assert seen.status is verb.before
        assert harness.status(job_id) is verb.after

    def test_a_change_and_a_submission_are_one(self, harness: Harness) -> None:
        """Both are there after the commit; a change of a job of the same transaction works, too."""
        old = harness.submit()
        with harness.store.begin() as connection:
            new = harness.spec()
            harness.store.insert([new], now=harness.now, within=connection)
            assert harness.store.cancel(old, reason="r", now=harness.now, within=connection)
            assert harness.store.pause(new.job_id, now=harness.now, within=connection)
        assert harness.statuses([old, new.job_id]) == [JobStatus.CANCELED, JobStatus.PAUSED]

    def test_what_cannot_be_changed_is_answered_inside(self, harness: Harness) -> None:
        """False and None inside of a transaction mean the same as outside, and the transaction goes on."""
        done = harness.succeeded()
        with harness.store.begin() as connection:
            assert harness.store.cancel(done, reason="r", now=harness.now, within=connection) == []
            assert not harness.store.pause(done, now=harness.now, within=connection)
            assert not harness.store.resume(done, now=harness.now, within=connection)
            assert not harness.store.retry(done, now=harness.now, within=connection)
            assert harness.store.replace(done, harness.spec(), now=harness.now, within=connection) is None
            assert not harness.store.reschedule(done, harness.now, now=harness.now, within=connection)
            made = harness.spec()
            harness.store.insert([made], now=harness.now, within=connection)
        assert harness.statuses([done, made.job_id]) == [JobStatus.SUCCEEDED, JobStatus.PENDING]
