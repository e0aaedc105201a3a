"""Bad input: it is refused with one of our errors, nothing is half written, and the store keeps working."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from ratchet.model.composition import Condition, EdgeKind
from ratchet.model.decision import Succeed
from ratchet.model.errors import InvalidJob, RatchetError, UnstorableData
from ratchet.model.identifiers import new_id
from ratchet.model.job import LogEntry, Progress, SignalWait
from ratchet.model.status import JobStatus, Priority
from ratchet.tck.harness import Harness

NAIVE = datetime(2031, 3, 1, 12, 0)  # noqa: DTZ001 - it must be refused
SURROGATE = "half a pair: \ud83e"
TOO_LONG = "k" * 300


def nothing_is_left(harness: Harness) -> None:
    """Check that no job is stored and that the next submission works."""
    assert sum(harness.store.counts().values()) == 0
    assert harness.store.tag_counts() == {}
    harness.end(harness.running())


class TestBadSubmission:
    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"scheduled_at": NAIVE}, id="naive due time"),
            pytest.param({"expires_at": NAIVE}, id="naive expiry"),
            pytest.param(
                {"signal": SignalWait(key="k", deadline=NAIVE), "status": JobStatus.WAITING},
                id="naive deadline",
            ),
            pytest.param({"payload": SURROGATE}, id="half a surrogate pair in the payload"),
            pytest.param({"params": SURROGATE}, id="half a surrogate pair in the params"),
            pytest.param({"tags": ("fine", SURROGATE)}, id="half a surrogate pair in a tag"),
            pytest.param({"business_key": SURROGATE}, id="half a surrogate pair in a key"),
            pytest.param({"queue": SURROGATE}, id="half a surrogate pair in the queue"),
            pytest.param({"business_key": TOO_LONG}, id="business key of 300 characters"),
            pytest.param({"idempotency_key": TOO_LONG}, id="idempotency key of 300 characters"),
            pytest.param({"queue": TOO_LONG}, id="queue of 300 characters"),
            pytest.param({"tags": (TOO_LONG,)}, id="tag of 300 characters"),
        ],
    )
    def test_refused_and_nothing_written(self, harness: Harness, changes: dict[str, Any]) -> None:
        """One bad spec among good ones raises InvalidJob or UnstorableData, and nothing of the call is stored."""
        specs = [harness.spec(tags=("fine",)), harness.spec(**changes), harness.spec()]
        with pytest.raises((InvalidJob, UnstorableData)) as caught:
            harness.store.insert(specs, now=harness.now)
        assert str(caught.value)
        nothing_is_left(harness)

    def test_a_nul_is_kept_or_refused(self, harness: Harness) -> None:
        """U+0000 in a payload is never cut off silently."""
        spec = harness.spec(payload='"a\x00b"')
        try:
            harness.insert([spec])
        except (InvalidJob, UnstorableData):
            nothing_is_left(harness)
        else:
            assert harness.record(spec.job_id).payload == spec.payload

    def test_a_naive_now(self, harness: Harness) -> None:
        """A time without a zone is refused, and nothing is stored or claimed."""
        job_id = harness.submit()
        spec = harness.spec()
        with pytest.raises(RatchetError):
            harness.store.insert([spec], now=NAIVE)
        with pytest.raises(RatchetError):
            harness.store.claim_next_batch(harness.request(), now=NAIVE)
        assert harness.store.get(spec.job_id) is None
        assert harness.status(job_id) is JobStatus.PENDING

    def test_bad_values_in_edges(self, harness: Harness) -> None:
        """If the condition of an edge cannot be stored, the whole graph is refused."""
        parent, child = harness.spec(), harness.child()
        condition = Condition(kind="result", description=SURROGATE)
        edge = harness.edge(parent, child, EdgeKind.CONDITION, condition=condition)
        with pytest.raises((InvalidJob, UnstorableData)):
            harness.store.insert([parent, child], now=harness.now, edges=[edge])
        assert harness.store.edges_of(parent.job_id) == []
        nothing_is_left(harness)


class TestBadRun:
    def test_values_of_a_run(self, harness: Harness) -> None:
        """Progress and state that cannot be stored are refused; the run goes on and can end."""
        claim = harness.running()
        with pytest.raises(UnstorableData):
            harness.store.save_progress(claim, Progress(fraction=0.5, message=SURROGATE), now=harness.now)
        with pytest.raises(UnstorableData):
            harness.store.save_state(claim, SURROGATE, now=harness.now)
        assert harness.record(claim.job_id).progress is None
        assert harness.record(claim.job_id).state is None
        harness.end(claim)

    def test_a_log_line_is_refused_or_kept_readable(self, harness: Harness) -> None:
        """A log line may contain anything: it is stored with what cannot be stored made visible, or it is refused."""
        claim = harness.running()
        entry = LogEntry(
            job_id=claim.job_id,
            claim_id=claim.claim_id,
            sequence=1,
            attempt=1,
            at=harness.now,
            level="INFO",
            logger="x",
            message=SURROGATE,
        )
        try:
            harness.store.append_logs([entry], now=harness.now)
        except UnstorableData:
            assert harness.store.logs(claim.job_id) == []
        else:
            (line,) = harness.store.logs(claim.job_id)
            assert line.message.startswith("half a pair: ")
            assert line.message.encode()

    def test_values_that_come_with_an_end(self, harness: Harness) -> None:
        """A bad checkpoint, callback, error or result stops the whole completion; without it the run ends."""
        claim = harness.running(business_key="k")
        before = harness.record(claim.job_id)
        callback = harness.spec(payload=SURROGATE)
        cases: list[dict[str, Any]] = [{"state": SURROGATE}, {"callback": callback}]
        for changes in cases:
            with pytest.raises((UnstorableData, InvalidJob)):
                harness.complete(claim, **changes)
        with pytest.raises(UnstorableData):
            harness.complete(claim, harness.failure(SURROGATE))
        with pytest.raises(UnstorableData):
            harness.complete(claim, Succeed(result=SURROGATE))
        assert harness.record(claim.job_id) == before
        assert harness.store.get(callback.job_id) is None
        assert harness.store.alerts() == []
        harness.end(claim)


class TestUnknown:
    def test_verbs_on_jobs_that_are_not_there(self, harness: Harness) -> None:
        """For an id that was never stored, every verb answers that there was nothing to do."""
        job_id = new_id()
        assert harness.store.get(job_id) is None
        assert harness.store.cancel(job_id, reason="r", now=harness.now) == []
        assert not harness.store.pause(job_id, now=harness.now)
        assert not harness.store.resume(job_id, now=harness.now)
        assert not harness.store.retry(job_id, now=harness.now)
        assert not harness.store.delete(job_id)
        assert not harness.store.reschedule(job_id, harness.now, now=harness.now)
        assert not harness.store.set_priority(job_id, Priority.HIGH, now=harness.now)
        assert not harness.store.park(harness.forged_claim(job_id), "a:b", now=harness.now)
        assert not harness.complete(harness.forged_claim(job_id)).won
        assert harness.store.hand_back([harness.forged_claim(job_id)], now=harness.now) == 0
        assert sum(harness.store.counts().values()) == 0
