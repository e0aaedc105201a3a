"""Recurring schedules in SQL: races, and corners that the conformance kit does not reach."""

from __future__ import annotations

from ratchet.model.composition import Fire, FireOutcome, FireRecord
from ratchet.model.job import JobFilter
from ratchet.model.status import Busy, JobStatus
from tests.stores.sql_stores import SqlSteps, at_once

ROUNDS = 10


def advance(steps: SqlSteps, *fires: Fire, handle: object = None) -> list[FireRecord] | None:
    """Fire the schedule that is due now; the next fire is in an hour."""
    store = steps.store if handle is None else handle
    return store.advance(  # type: ignore[attr-defined, no-any-return]
        "nightly", expected=steps.now, fires=fires, next_fire_at=steps.after(hours=1), now=steps.now
    )


def fired(steps: SqlSteps, overlap: str) -> FireRecord:
    """Fire once; the schedule is due again in an hour, which then is now."""
    steps.store.upsert_schedule(steps.schedule_spec(overlap=overlap), now=steps.now)
    records = advance(steps, steps.fire())
    assert records is not None
    steps.advance(hours=1)
    return records[0]


class TestRaces:
    def test_one_node_fires(self, steps: SqlSteps) -> None:
        """Four nodes see the schedule due: one records the fire and its run."""
        handles = [steps.store, *(steps.another() for _ in range(3))]
        steps.store.upsert_schedule(steps.schedule_spec(overlap="ALLOW"), now=steps.now)
        for number in range(1, ROUNDS):
            answers = at_once(
                *[lambda h=handle: advance(steps, steps.fire(), handle=h) for handle in handles]
            )  # type: ignore[misc]
            assert len([answer for answer in answers if answer is not None]) == 1
            assert steps.store.count(JobFilter(schedule="nightly")) == number
            assert len(steps.store.fires("nightly")) == number
            steps.advance(hours=1)

    def test_a_pause_against_a_fire(self, steps: SqlSteps) -> None:
        """Either it fired before it was paused, or it did not fire."""
        other = steps.another()
        steps.store.upsert_schedule(steps.schedule_spec(overlap="ALLOW"), now=steps.now)
        runs = 0
        for _ in range(ROUNDS):
            answers = at_once(
                lambda: advance(steps, steps.fire()),
                lambda: other.pause_schedule("nightly", now=steps.now),
            )
            runs += answers[0] is not None
            assert steps.store.count(JobFilter(schedule="nightly")) == runs
            record = steps.store.schedule("nightly")
            assert record is not None
            assert record.paused
            steps.advance(hours=1)
            assert steps.store.resume_schedule("nightly", steps.now, now=steps.now)

    def test_every_node_declares_it(self, steps: SqlSteps) -> None:
        """Four nodes start at once: one schedule, and all are told of the same."""
        handles = [steps.store, *(steps.another() for _ in range(3))]
        spec = steps.schedule_spec()
        answers = at_once(*[lambda h=handle: h.upsert_schedule(spec, now=steps.now) for handle in handles])  # type: ignore[misc]
        assert answers == [steps.store.schedule("nightly")] * 4

    def test_the_predecessor_ends_while_the_next_is_queued(self, steps: SqlSteps) -> None:
        """However they interleave, the queued run is released."""
        other = steps.another()
        fired(steps, "QUEUE")
        for _ in range(ROUNDS):
            (claim,) = steps.claim()
            answers = at_once(
                lambda: advance(steps, steps.fire(), handle=other),
                lambda claim=claim: steps.end_all([claim]),  # type: ignore[misc]
            )
            assert answers[0] is not None
            assert steps.store.counts()[JobStatus.WAITING] == 0
            assert steps.store.counts()[JobStatus.PENDING] == 1
            steps.advance(hours=1)


class TestOverlap:
    def test_a_run_that_was_canceled_in_the_queue_does_not_hide_one_that_runs(self, steps: SqlSteps) -> None:
        """The newest run was canceled while it waited; the next one still waits for the one before."""
        first = fired(steps, "QUEUE")
        (claim,) = steps.claim()
        assert claim.job_id == first.job_id
        queued = advance(steps, steps.fire())
        assert queued is not None
        assert queued[0].job_id is not None
        steps.store.cancel(queued[0].job_id, reason="r", now=steps.now)
        steps.advance(hours=1)
        third = advance(steps, steps.fire())
        assert third is not None
        assert third[0].job_id is not None
        assert steps.status(third[0].job_id) is JobStatus.WAITING
        assert steps.end(claim).released == (third[0].job_id,)

    def test_a_failed_run_that_was_paused_has_ended(self, steps: SqlSteps) -> None:
        """A dead letter that somebody set aside does not stop the schedule."""
        fired(steps, "SKIP")
        (claim,) = steps.claim()
        steps.end(claim, steps.failure())
        assert steps.store.pause(claim.job_id, now=steps.now)
        records = advance(steps, steps.fire())
        assert records is not None
        assert records[0].outcome is FireOutcome.RUN

    def test_a_paused_run_has_not_ended(self, steps: SqlSteps) -> None:
        """Paused while it was PENDING, it will run: the next one is skipped."""
        first = fired(steps, "SKIP")
        assert first.job_id is not None
        assert steps.store.pause(first.job_id, now=steps.now)
        records = advance(steps, steps.fire())
        assert records is not None
        assert (records[0].outcome, records[0].reason) == (FireOutcome.SKIPPED, "overlap")

    def test_a_trigger_runs_beside(self, steps: SqlSteps) -> None:
        """Asked for by a person, it does not care for overlap; the timetable then sees it."""
        fired(steps, "SKIP")
        record = steps.store.trigger("nightly", steps.fire(at=steps.after(minutes=-1)), now=steps.now)
        assert record is not None
        assert record.outcome is FireOutcome.RUN
        assert len(steps.claim()) == 2


class TestKeys:
    def test_a_busy_key_skips_the_fire_and_nothing_else(self, steps: SqlSteps) -> None:
        """The schedule goes on: the fire is recorded with its reason, the other fires of the call run."""
        steps.submit(business_key="busy")
        steps.store.upsert_schedule(steps.schedule_spec(overlap="ALLOW"), now=steps.now)
        fires = [
            steps.fire(at=steps.after(minutes=-2)),
            steps.fire(at=steps.after(minutes=-1), business_key="busy", idempotency_key="once"),
            steps.fire(),
        ]
        records = advance(steps, *fires)
        assert records is not None
        assert [record.outcome for record in records] == [
            FireOutcome.RUN,
            FireOutcome.SKIPPED,
            FireOutcome.RUN,
        ]
        assert (records[1].reason, records[1].job_id) == ("business_key_busy", None)
        assert steps.store.count(JobFilter(schedule="nightly")) == 2
        assert steps.sql("SELECT job_id FROM scheduler_idempotency_key") == []

    def test_a_key_that_names_an_older_job(self, steps: SqlSteps) -> None:
        """RETURN makes no second job, so there is no run to record."""
        steps.submit(business_key="busy")
        steps.store.upsert_schedule(steps.schedule_spec(), now=steps.now)
        records = advance(steps, steps.fire(business_key="busy", busy=Busy.RETURN))
        assert records is not None
        assert (records[0].outcome, records[0].reason) == (FireOutcome.SKIPPED, "duplicate")


class TestTrigger:
    def test_sent_again(self, steps: SqlSteps) -> None:
        """The same fire time is the same trigger: one run, and the same answer."""
        steps.store.upsert_schedule(steps.schedule_spec(next_fire_at=None), now=steps.now)
        fire = steps.fire()
        first = steps.store.trigger("nightly", fire, now=steps.now)
        assert steps.store.trigger("nightly", fire, now=steps.now) == first
        assert steps.store.count(JobFilter(schedule="nightly")) == 1


class TestManyFires:
    def test_a_thousand_missed_fires(self, steps: SqlSteps) -> None:
        """All are recorded in one transaction; what was recorded before is left alone."""
        start = steps.now
        spec = steps.schedule_spec(next_fire_at=start)
        steps.store.upsert_schedule(spec, now=steps.now)
        recorded = steps.fire(at=steps.after(minutes=10))
        assert steps.store.trigger("nightly", recorded, now=steps.now) is not None
        missed = [Fire(fire_at=steps.after(minutes=minute), reason="misfire") for minute in range(1000)]
        steps.advance(minutes=999)
        answer = steps.store.advance(
            "nightly", expected=start, fires=missed, next_fire_at=steps.after(hours=1), now=steps.now
        )
        assert answer is not None
        assert len(answer) == 999
        assert len(steps.store.fires("nightly", limit=2000)) == 1000
        record = steps.store.schedule("nightly")
        assert record is not None
        assert record.last_fire_at == steps.now
