"""Recurring schedules: one run per fire time, however many nodes race, and how overlapping runs are handled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ratchet.model.composition import Fire, FireOutcome, FireRecord, ScheduleRecord
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness


def stored(harness: Harness, name: str = "nightly") -> ScheduleRecord:
    """The schedule as it is now."""
    record = harness.store.schedule(name)
    assert record is not None
    return record


def advance(
    harness: Harness, fires: Sequence[Fire], *, expected: datetime | None = None, name: str = "nightly"
) -> list[FireRecord] | None:
    """Fire a schedule that is due now (or at *expected*); the next fire is in an hour."""
    return harness.store.advance(
        name,
        expected=expected or harness.now,
        fires=fires,
        next_fire_at=harness.after(hours=1),
        now=harness.now,
    )


class TestSchedule:
    def test_every_field_comes_back(self, harness: Harness) -> None:
        """Every declared field is read back unchanged."""
        spec = harness.schedule_spec(
            misfire="catch_up:11",
            overlap="QUEUE",
            starts_at=harness.now,
            ends_at=harness.after(days=30),
            jitter=timedelta(seconds=3, microseconds=1),
            declared=True,
            template='{"ü":1}',
        )
        created = harness.store.upsert_schedule(spec, now=harness.now)
        record = stored(harness)
        assert record == created
        assert record.spec == spec
        assert (record.paused, record.next_fire_at, record.last_fire_at) == (False, harness.now, None)
        assert (record.created_at, record.updated_at) == (harness.now, harness.now)

    def test_an_equal_spec_changes_nothing(self, harness: Harness) -> None:
        """Every node declares its schedules at start: declaring an equal spec again changes nothing."""
        spec = harness.schedule_spec()
        before = harness.store.upsert_schedule(spec, now=harness.now)
        harness.advance(hours=1)
        assert harness.store.upsert_schedule(spec, now=harness.now) == before

    def test_the_next_fire_survives_a_change_of_the_job(self, harness: Harness) -> None:
        """The target or template changes: the next fire stays as it was."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        changed = harness.schedule_spec(target="x:y", template="{}", next_fire_at=harness.after(days=9))
        record = harness.store.upsert_schedule(changed, now=harness.after(seconds=1))
        assert (record.spec.target, record.spec.template) == ("x:y", "{}")
        assert record.next_fire_at == harness.now
        assert stored(harness).next_fire_at == harness.now

    def test_a_new_timetable_brings_a_new_next_fire(self, harness: Harness) -> None:
        """The expression, zone, start or end changes: the next fire is taken from the new spec."""
        changes: list[dict[str, Any]] = [
            {"expression": "0 3 * * *"},
            {"zone": "UTC"},
            {"starts_at": harness.after(days=1)},
            {"ends_at": harness.after(days=99)},
        ]
        for days, change in enumerate(changes, 1):
            name = next(iter(change))
            harness.store.upsert_schedule(harness.schedule_spec(name), now=harness.now)
            at = harness.after(days=days)
            harness.store.upsert_schedule(
                harness.schedule_spec(name, next_fire_at=at, **change), now=harness.now
            )
            assert stored(harness, name).next_fire_at == at, change

    def test_pausing_survives_an_upsert(self, harness: Harness) -> None:
        """A schedule that a person paused stays paused when the next node declares it."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        assert harness.store.pause_schedule("nightly", now=harness.now)
        harness.store.upsert_schedule(harness.schedule_spec(expression="1 1 * * *"), now=harness.now)
        assert stored(harness).paused

    def test_all_by_name(self, harness: Harness) -> None:
        """Schedules are listed by name; an unknown name gives None."""
        for name in ("b", "c", "a"):
            harness.store.upsert_schedule(harness.schedule_spec(name), now=harness.now)
        assert [s.spec.name for s in harness.store.schedules()] == ["a", "b", "c"]
        assert harness.store.schedule("nobody") is None

    def test_removing(self, harness: Harness) -> None:
        """The schedule and its fire times are forgotten; its runs stay."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        records = advance(harness, [harness.fire()])
        assert records is not None
        assert harness.store.remove_schedule("nightly")
        assert harness.store.schedule("nightly") is None
        assert harness.store.fires("nightly") == []
        assert records[0].job_id is not None
        assert harness.status(records[0].job_id) is JobStatus.PENDING
        assert not harness.store.remove_schedule("nightly")


class TestPauseSchedule:
    def test_paused_it_is_never_due(self, harness: Harness) -> None:
        """A paused schedule is never due, and pausing it again is True; resumed, it fires from the given time on."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        assert [harness.store.pause_schedule("nightly", now=harness.now) for _ in range(2)] == [True, True]
        assert harness.store.claim_due_recurring(limit=9, now=harness.after(days=9)) == []
        at = harness.after(hours=3)
        assert harness.store.resume_schedule("nightly", at, now=harness.now)
        assert (stored(harness).paused, stored(harness).next_fire_at) == (False, at)
        assert harness.store.claim_due_recurring(limit=9, now=harness.after(hours=2)) == []
        assert [r.spec.name for r in harness.store.claim_due_recurring(limit=9, now=at)] == ["nightly"]

    def test_what_is_not_paused_is_not_resumed(self, harness: Harness) -> None:
        """Resuming an active schedule is False and keeps its next fire; an unknown one is neither paused nor resumed."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        assert not harness.store.resume_schedule("nightly", harness.after(days=1), now=harness.now)
        assert stored(harness).next_fire_at == harness.now
        assert not harness.store.pause_schedule("nobody", now=harness.now)
        assert not harness.store.resume_schedule("nobody", harness.now, now=harness.now)


class TestClaimDueRecurring:
    def test_due_ones_oldest_first(self, harness: Harness) -> None:
        """Schedules due now or earlier come oldest first, up to the limit; one without a next fire is never due."""
        for minutes in (1, -1, 0, -2):
            spec = harness.schedule_spec(f"at {minutes}", next_fire_at=harness.after(minutes=minutes))
            harness.store.upsert_schedule(spec, now=harness.now)
        harness.store.upsert_schedule(harness.schedule_spec("ended", next_fire_at=None), now=harness.now)
        due = harness.store.claim_due_recurring(limit=9, now=harness.now)
        assert [r.spec.name for r in due] == ["at -2", "at -1", "at 0"]
        assert [r.spec.name for r in harness.store.claim_due_recurring(limit=1, now=harness.now)] == ["at -2"]

    def test_it_is_a_read(self, harness: Harness) -> None:
        """Asking twice gives the same answer: `advance` decides who fires."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        due = harness.store.claim_due_recurring(limit=9, now=harness.now)
        assert harness.store.claim_due_recurring(limit=9, now=harness.now) == due
        assert len(due) == 1


class TestAdvance:
    def test_a_run_and_the_next_fire(self, harness: Harness) -> None:
        """One call records the fire, stores a run that can be claimed, and moves the next fire."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        fire = harness.fire()
        records = advance(harness, [fire])
        assert fire.spec is not None
        assert records == [
            FireRecord(
                schedule="nightly", fire_at=harness.now, outcome=FireOutcome.RUN, job_id=fire.spec.job_id
            )
        ]
        assert harness.store.fires("nightly") == records
        assert stored(harness).next_fire_at == harness.after(hours=1)
        assert stored(harness).last_fire_at == harness.now
        (job,) = harness.take()
        assert (job.body.schedule, job.claim.type) == ("nightly", JobType.RECURRING_RUN)
        assert harness.store.count(JobFilter(schedule="nightly")) == 1

    def test_only_where_the_next_fire_is_as_expected(self, harness: Harness) -> None:
        """Another node was faster: the answer is None, and nothing is recorded, stored or moved."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        assert advance(harness, [harness.fire()], expected=harness.after(seconds=-1)) is None
        assert advance(harness, [harness.fire()], name="nobody") is None
        assert harness.store.fires("nightly") == []
        assert stored(harness).next_fire_at == harness.now
        assert sum(harness.store.counts().values()) == 0
        assert advance(harness, [harness.fire()]) is not None
        assert advance(harness, [harness.fire()]) is None

    def test_not_while_it_is_paused(self, harness: Harness) -> None:
        """The schedule is paused between the read and the write: nothing fires."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        harness.store.pause_schedule("nightly", now=harness.now)
        assert advance(harness, [harness.fire()]) is None
        assert sum(harness.store.counts().values()) == 0

    def test_a_skipped_fire_is_recorded(self, harness: Harness) -> None:
        """A skipped fire is recorded with its reason and without a job."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        records = advance(harness, [Fire(fire_at=harness.now, reason="misfire")])
        assert records == [
            FireRecord(schedule="nightly", fire_at=harness.now, outcome=FireOutcome.SKIPPED, reason="misfire")
        ]

    def test_the_last_fire(self, harness: Harness) -> None:
        """Without a next fire the schedule is never due again."""
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        records = harness.store.advance(
            "nightly", expected=harness.now, fires=[harness.fire()], next_fire_at=None, now=harness.now
        )
        assert records is not None
        assert stored(harness).next_fire_at is None
        assert harness.store.claim_due_recurring(limit=9, now=harness.after(days=999)) == []

    def test_a_fire_time_is_used_once(self, harness: Harness) -> None:
        """A time that is already recorded makes no second run, even if the schedule is set back to it."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap="ALLOW"), now=harness.now)
        at = harness.now
        assert advance(harness, [harness.fire()]) is not None
        harness.store.pause_schedule("nightly", now=harness.now)
        harness.store.resume_schedule("nightly", at, now=harness.now)
        again = harness.fire(at=at)
        assert advance(harness, [again], expected=at) is not None
        assert again.spec is not None
        assert harness.store.get(again.spec.job_id) is None
        assert len(harness.store.fires("nightly")) == 1
        assert stored(harness).next_fire_at == harness.after(hours=1)

    def test_fires_newest_first(self, harness: Harness) -> None:
        """Fire times are listed newest first, up to the limit."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap="ALLOW"), now=harness.now)
        times = [harness.after(minutes=-m) for m in (3, 2, 1)]
        assert advance(harness, [harness.fire(at=at) for at in times]) is not None
        assert [f.fire_at for f in harness.store.fires("nightly")] == times[::-1]
        assert [f.fire_at for f in harness.store.fires("nightly", limit=2)] == times[:0:-1]


class TestOverlap:
    def fire_twice(self, harness: Harness, overlap: str) -> list[FireRecord]:
        """Fire now and an hour later, while the first run is RUNNING; the records, oldest first."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap=overlap), now=harness.now)
        assert advance(harness, [harness.fire()]) is not None
        self.first = harness.claim()[0]
        harness.advance(hours=1)
        assert advance(harness, [harness.fire()]) is not None
        return harness.store.fires("nightly")[::-1]

    def test_allow(self, harness: Harness) -> None:
        """Both runs can run at once."""
        records = self.fire_twice(harness, "ALLOW")
        assert [r.outcome for r in records] == [FireOutcome.RUN, FireOutcome.RUN]
        assert [c.job_id for c in harness.claim()] == [records[1].job_id]

    def test_skip(self, harness: Harness) -> None:
        """The second fire is recorded as skipped because of the overlap, and has no job."""
        records = self.fire_twice(harness, "SKIP")
        assert (records[1].outcome, records[1].reason, records[1].job_id) == (
            FireOutcome.SKIPPED,
            "overlap",
            None,
        )
        assert harness.claim() == []

    def test_skip_only_while_the_predecessor_lives(self, harness: Harness) -> None:
        """However the first run ended, the next fire runs."""
        for overlap_end in ("success", "failure", "cancel"):
            name = f"after {overlap_end}"
            harness.store.upsert_schedule(harness.schedule_spec(name, overlap="SKIP"), now=harness.now)
            assert advance(harness, [harness.fire(name)], name=name) is not None
            (claim,) = harness.claim()
            if overlap_end == "cancel":
                harness.store.cancel(claim.job_id, reason="r", now=harness.now)
            else:
                harness.end(claim, harness.success() if overlap_end == "success" else harness.failure())
            harness.advance(hours=1)
            records = advance(harness, [harness.fire(name)], name=name)
            assert records is not None
            assert records[0].outcome is FireOutcome.RUN
            harness.end_all(harness.claim())

    def test_skip_within_one_catch_up(self, harness: Harness) -> None:
        """Three missed fires come at once: the first one runs, and the other two are skipped because of it."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap="SKIP"), now=harness.now)
        records = advance(harness, [harness.fire(at=harness.after(minutes=m)) for m in (-2, -1, 0)])
        assert records is not None
        assert [r.outcome for r in records] == [FireOutcome.RUN, FireOutcome.SKIPPED, FireOutcome.SKIPPED]
        assert len(harness.claim()) == 1

    def test_queue(self, harness: Harness) -> None:
        """The second run waits until the first has ended, even if the first one failed."""
        records = self.fire_twice(harness, "QUEUE")
        assert records[1].outcome is FireOutcome.RUN
        waiting = records[1].job_id
        assert waiting is not None
        assert harness.status(waiting) is JobStatus.WAITING
        assert harness.claim() == []
        answer = harness.end(self.first, harness.failure())
        assert answer.released == (waiting,)
        assert [c.job_id for c in harness.claim()] == [waiting]

    def test_queue_behind_a_canceled_run(self, harness: Harness) -> None:
        """Canceling the first run releases the second."""
        waiting = self.fire_twice(harness, "QUEUE")[1].job_id
        assert waiting is not None
        harness.store.cancel(self.first.job_id, reason="r", now=harness.now)
        assert harness.status(waiting) is JobStatus.PENDING

    def test_queue_keeps_the_order(self, harness: Harness) -> None:
        """Three missed fires that come at once run one after the other."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap="QUEUE"), now=harness.now)
        records = advance(harness, [harness.fire(at=harness.after(minutes=m)) for m in (-2, -1, 0)])
        assert records is not None
        order = []
        while claims := harness.claim():
            (claim,) = claims
            order.append(claim.job_id)
            harness.end(claim)
        assert order == [r.job_id for r in records]


class TestPurgeFires:
    def test_old_records_go_and_their_runs_stay(self, harness: Harness) -> None:
        """Old records are deleted oldest first, at most as many as asked; the runs stay."""
        harness.store.upsert_schedule(harness.schedule_spec(overlap="ALLOW"), now=harness.now)
        times = [harness.after(minutes=m) for m in (-3, -2, -1, 0)]
        records = advance(harness, [harness.fire(at=at) for at in times])
        assert records is not None
        assert harness.store.purge_fires(before=times[3], limit=2) == 2
        assert [record.fire_at for record in harness.store.fires("nightly")] == [times[3], times[2]]
        assert harness.store.purge_fires(before=times[3], limit=10) == 1
        assert harness.store.purge_fires(before=times[3], limit=10) == 0
        assert [record.fire_at for record in harness.store.fires("nightly")] == [times[3]]
        assert harness.statuses(r.job_id for r in records if r.job_id) == [JobStatus.PENDING] * 4


class TestTrigger:
    def test_a_run_outside_the_timetable(self, harness: Harness) -> None:
        """The run is recorded and stored; the next fire does not move."""
        harness.store.upsert_schedule(
            harness.schedule_spec(next_fire_at=harness.after(hours=1)), now=harness.now
        )
        fire = harness.fire()
        record = harness.store.trigger("nightly", fire, now=harness.now)
        assert record is not None
        assert fire.spec is not None
        assert (record.outcome, record.job_id) == (FireOutcome.RUN, fire.spec.job_id)
        assert stored(harness).next_fire_at == harness.after(hours=1)
        assert harness.store.fires("nightly") == [record]
        assert [c.job_id for c in harness.claim()] == [fire.spec.job_id]

    def test_an_unknown_schedule(self, harness: Harness) -> None:
        """The answer is None, and nothing is stored."""
        assert harness.store.trigger("nobody", harness.fire("nobody"), now=harness.now) is None
        assert sum(harness.store.counts().values()) == 0
        assert harness.store.get(new_id()) is None
