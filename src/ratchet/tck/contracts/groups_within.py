"""Batches and schedules changed in the caller's transaction: when it is committed, and not at all if it is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.composition import BatchRecord, BatchSpec, Fire
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.tck.harness import Harness, needs

NAME = "nightly"


def _within(connection: object | None) -> dict[str, object]:
    return {} if connection is None else {"within": connection}


def _mixed(harness: Harness) -> tuple[BatchSpec, list[UUID]]:
    """A batch of five: ended, failed, running, pending and paused; with the parent last."""
    batch, children = harness.batch_of(5)
    ended, failed, running, pending, paused = (spec.job_id for spec in children)
    harness.end(harness.claim_job(ended))
    harness.end(harness.claim_job(failed), harness.failure())
    harness.claim_job(running)
    harness.store.pause(paused, now=harness.now)
    return batch, [ended, failed, running, pending, paused, batch.parent.job_id]


def _seen(harness: Harness, batch: BatchSpec, ids: list[UUID]) -> tuple[list[JobStatus], BatchRecord | None]:
    return harness.statuses(ids), harness.store.batch(batch.batch_id)


@needs("transactions", "within")
class TestBatchWithin:
    def test_canceled_as_without_a_transaction(self, harness: Harness) -> None:
        """The same jobs end, the same ones stay, and the counters are the same."""
        seen = []
        for joined in (False, True):
            batch, ids = _mixed(harness)
            if joined:
                with harness.store.begin() as connection:
                    canceled = harness.store.cancel_batch(
                        batch.batch_id, reason="stop", now=harness.now, within=connection
                    )
            else:
                canceled = harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now)
            statuses, record = _seen(harness, batch, ids)
            assert record is not None
            counted = (record.completed, record.failed, record.canceled, record.sealed, record.finished_at)
            seen.append((statuses, counted, [ids.index(one.job_id) for one in canceled]))
        assert seen[0] == seen[1]
        assert seen[1][0][2:] == [JobStatus.CANCELED] * 4

    def test_a_rolled_back_cancellation(self, harness: Harness) -> None:
        """Nothing has happened, and the batch can be canceled afterwards."""
        batch, ids = _mixed(harness)
        before = _seen(harness, batch, ids)
        with rolled_back(harness.store) as connection:
            assert harness.store.cancel_batch(
                batch.batch_id, reason="stop", now=harness.now, within=connection
            )
        assert _seen(harness, batch, ids) == before
        assert harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now)

    def test_more_items_than_a_portion(self, harness: Harness) -> None:
        """However large the batch is, all of it is canceled with the commit, and finished."""
        batch, _ = harness.batch_of(1100)
        with harness.store.begin() as connection:
            canceled = harness.store.cancel_batch(
                batch.batch_id, reason="stop", now=harness.now, within=connection
            )
        record = harness.store.batch(batch.batch_id)
        assert len(canceled) == 1101
        assert record is not None
        assert (record.canceled, record.finished_at) == (1100, harness.now)

    def test_failed_items_again(self, harness: Harness) -> None:
        """With the commit they are pending and the finished batch is open; after a rollback it is as it was."""
        batch, children = harness.batch_of(2)
        first, second = harness.claim()
        harness.end(first)
        harness.end(second, harness.failure())
        ids = [*(spec.job_id for spec in children), batch.parent.job_id]
        before = _seen(harness, batch, ids)
        with rolled_back(harness.store) as connection:
            assert harness.store.retry_failed(batch.batch_id, now=harness.now, within=connection) == 1
        assert _seen(harness, batch, ids) == before
        with harness.store.begin() as connection:
            assert harness.store.retry_failed(batch.batch_id, now=harness.now, within=connection) == 1
        assert harness.status(second.job_id) is JobStatus.PENDING
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        assert [claim.job_id for claim in harness.claim()] == [second.job_id]

    def test_a_batch_that_still_gets_items_is_refused(self, harness: Harness) -> None:
        """Items that others add before the commit would be missed; the transaction goes on."""
        batch, (child,) = harness.batch_of(1, sealed=False)
        with harness.store.begin() as connection:
            with pytest.raises(InvalidJob, match="still gets items"):
                harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now, within=connection)
            assert harness.store.pause(child.job_id, now=harness.now, within=connection)
        assert harness.status(child.job_id) is JobStatus.PAUSED

    def test_an_unknown_batch(self, harness: Harness) -> None:
        """There is nothing to cancel or retry, also not in a transaction."""
        with harness.store.begin() as connection:
            assert (
                harness.store.cancel_batch(new_id(), reason="stop", now=harness.now, within=connection) == []
            )
            assert harness.store.retry_failed(new_id(), now=harness.now, within=connection) == 0


@dataclass(frozen=True)
class Verb:
    """A change of a schedule, and whether it is paused before."""

    name: str
    change: Callable[[Harness, object | None], Any]
    paused: bool = False
    absent: bool = False


def _trigger(harness: Harness, own: object | None) -> Any:
    fire = Fire(fire_at=harness.after(minutes=1), spec=harness.spec(schedule=NAME))
    return harness.store.trigger(NAME, fire, now=harness.now, **_within(own))


VERBS = [
    Verb(
        "create",
        lambda harness, own: harness.store.upsert_schedule(
            harness.schedule_spec(), now=harness.now, **_within(own)
        ),
        absent=True,
    ),
    Verb(
        "change",
        lambda harness, own: harness.store.upsert_schedule(
            harness.schedule_spec(expression="5 5 * * *"), now=harness.now, **_within(own)
        ),
    ),
    Verb("pause", lambda harness, own: harness.store.pause_schedule(NAME, now=harness.now, **_within(own))),
    Verb(
        "resume",
        lambda harness, own: harness.store.resume_schedule(
            NAME, harness.after(hours=2), now=harness.now, **_within(own)
        ),
        paused=True,
    ),
    Verb("remove", lambda harness, own: harness.store.remove_schedule(NAME, **_within(own))),
    Verb("trigger", _trigger),
]


def _prepare(harness: Harness, verb: Verb) -> None:
    if not verb.absent:
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
    if verb.paused:
        harness.store.pause_schedule(NAME, now=harness.now)


def _state(harness: Harness) -> tuple[object, ...]:
    fires = [(fire.fire_at, fire.outcome) for fire in harness.store.fires(NAME)]
    return harness.store.schedule(NAME), fires, harness.store.counts()


@needs("transactions", "within")
class TestScheduleWithin:
    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_committed_with_the_caller(self, harness: Harness, verb: Verb) -> None:
        """With the commit, what the verb does is done; the transaction itself sees the schedule as it will be."""
        _prepare(harness, verb)
        before = _state(harness)
        with harness.store.begin() as connection:
            assert verb.change(harness, connection)
            inside = harness.store.schedule(NAME, within=connection)
        assert inside == harness.store.schedule(NAME)
        assert _state(harness) != before
        if verb.name == "trigger":
            assert len(harness.claim()) == 1

    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_rolled_back_with_the_caller(self, harness: Harness, verb: Verb) -> None:
        """Nothing has happened, and the same change can be made afterwards."""
        _prepare(harness, verb)
        before = _state(harness)
        with rolled_back(harness.store) as connection:
            assert verb.change(harness, connection)
        assert _state(harness) == before
        assert verb.change(harness, None)
        assert _state(harness) != before

    @needs("concurrent_writers")
    @pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
    def test_nobody_sees_it_before_the_commit(self, harness: Harness, verb: Verb) -> None:
        """Other handles see the schedule as it was, until the caller commits."""
        _prepare(harness, verb)
        other, before = harness.reopen(), harness.store.schedule(NAME)
        with harness.store.begin() as connection:
            assert verb.change(harness, connection)
            assert other.schedule(NAME) == before
            assert other.fires(NAME) == []

    def test_created_changed_and_triggered_at_once(self, harness: Harness) -> None:
        """What is done first in a transaction is there for what follows."""
        with harness.store.begin() as connection:
            harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now, within=connection)
            assert _trigger(harness, connection)
            assert harness.store.pause_schedule(NAME, now=harness.now, within=connection)
        record = harness.store.schedule(NAME)
        assert record is not None
        assert record.paused
        assert len(harness.claim()) == 1

    def test_no_such_schedule(self, harness: Harness) -> None:
        """The answers are those outside of a transaction."""
        with harness.store.begin() as connection:
            assert not harness.store.pause_schedule(NAME, now=harness.now, within=connection)
            assert not harness.store.resume_schedule(NAME, None, now=harness.now, within=connection)
            assert not harness.store.remove_schedule(NAME, within=connection)
            assert harness.store.schedule(NAME, within=connection) is None
            assert _trigger(harness, connection) is None
