"""Sending: a job that is sent without waiting for the answer, and what becomes of it."""

from __future__ import annotations

import select
from datetime import timedelta
from typing import cast

from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.status import JobStatus
from ratchet.spi.store import SendingStore, Sent
from ratchet.tck.harness import Harness, needs
from ratchet.tck.race import TIMEOUT


def send(harness: Harness, spec: JobSpec) -> Sent | None:
    """Send one job."""
    return cast("SendingStore", harness.store).send_insert(spec, now=harness.now)


def sent(harness: Harness, spec: JobSpec) -> Sent:
    """Send one job, which must be possible; a store may have to look something up for the first jobs."""
    harness.submit()
    harness.submit()
    found = send(harness, spec)
    assert found is not None
    return found


@needs("sends")
class TestSendInsert:
    def test_it_is_stored_when_it_is_finished(self, harness: Harness) -> None:
        """A sent job is stored like any other: with its due time, and ready to be claimed."""
        spec = harness.spec()
        assert sent(harness, spec).finish()
        record = harness.record(spec.job_id)
        assert (record.status, record.target, record.payload) == (
            JobStatus.PENDING,
            spec.target,
            spec.payload,
        )
        assert (record.scheduled_at, record.created_at) == (harness.now, harness.now)
        assert spec.job_id in [claim.job_id for claim in harness.claim()]

    def test_its_file_says_when_there_is_an_answer(self, harness: Harness) -> None:
        """A caller can wait until the file is readable, and need not wait in the store."""
        spec = harness.spec()
        waiting = sent(harness, spec)
        while not waiting.is_answered():
            ready, _, _ = select.select([waiting.fileno()], [], [], TIMEOUT)
            assert ready
        assert waiting.finish()
        assert harness.store.get(spec.job_id) is not None

    def test_several_on_their_way(self, harness: Harness) -> None:
        """Sent jobs can be finished in any order."""
        specs = harness.specs(3)
        harness.submit_many(2)
        first = sent(harness, specs[0])
        others = [send(harness, spec) for spec in specs[1:]]
        for one in (*reversed(others), first):
            assert one is None or one.finish()
        stored = [spec.job_id for spec in specs if harness.store.get(spec.job_id) is not None]
        assert len(stored) == 1 + sum(other is not None for other in others)

    def test_sent_again_it_is_there_once(self, harness: Harness) -> None:
        """The answer was lost: neither sending nor inserting the job again stores it twice."""
        spec = harness.spec()
        assert sent(harness, spec).finish()
        again = send(harness, spec)
        assert again is None or not again.finish()
        (answer,) = harness.store.insert([spec], now=harness.now)
        assert (answer.job_id, answer.created) == (spec.job_id, True)
        assert [record.job_id for record in harness.store.find(JobFilter())].count(spec.job_id) == 1
        assert [claim.job_id for claim in harness.claim()].count(spec.job_id) == 1

    def test_what_takes_more_than_that_is_not_sent(self, harness: Harness) -> None:
        """
        A job with a key, with tags or with a due time in the past is not sent, and nothing is stored:
        `insert` is for those.
        """
        harness.submit_many(2)
        for changes in (
            {"business_key": "k"},
            {"idempotency_key": "k"},
            {"tags": ("t",)},
            {"scheduled_at": harness.now - timedelta(hours=1)},
        ):
            spec = harness.spec(**changes)
            assert send(harness, spec) is None
            assert harness.store.get(spec.job_id) is None
