"""What a declaration changes, and what a fire time leads to, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from ratchet.model.composition import Edge, EdgeKind, Fire, FireOutcome, FireRecord, ScheduleSpec
from ratchet.model.job import JobSpec
from ratchet.model.schedules import PlannedRun, changed_schedule, is_same_schedule, new_schedule, plan_fire
from ratchet.model.status import JobStatus

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN = JobSpec(job_id=UUID(int=1), target="shop:report", payload="[]", scheduled_at=NOW)
FIRE = Fire(fire_at=NOW, spec=RUN)
EARLIER = UUID(int=9)
NIGHTLY = ScheduleSpec(
    name="nightly", expression="0 3 * * *", zone="UTC", target="shop:report", template="{}", next_fire_at=NOW
)


class TestPlanFire:
    @pytest.mark.parametrize("overlap", ["ALLOW", "SKIP", "QUEUE"])
    def test_without_an_earlier_run_it_runs(self, overlap: str) -> None:
        """There is nothing to overlap with."""
        plan = plan_fire("nightly", FIRE, overlap=overlap, unended=None)
        assert plan == PlannedRun(replace(RUN, schedule="nightly"), ())

    def test_allow_runs_beside_the_earlier_run(self) -> None:
        """Without an edge to it."""
        plan = plan_fire("nightly", FIRE, overlap="ALLOW", unended=EARLIER)
        assert plan == PlannedRun(replace(RUN, schedule="nightly"), ())

    def test_skip_records_the_overlap(self) -> None:
        """There is no run."""
        plan = plan_fire("nightly", FIRE, overlap="SKIP", unended=EARLIER)
        assert plan == FireRecord(
            schedule="nightly", fire_at=NOW, outcome=FireOutcome.SKIPPED, reason="overlap"
        )

    def test_queue_waits_for_the_earlier_run(self) -> None:
        """However that one ends."""
        plan = plan_fire("nightly", FIRE, overlap="QUEUE", unended=EARLIER)
        assert isinstance(plan, PlannedRun)
        assert (plan.spec.status, plan.spec.needs) == (JobStatus.WAITING, 1)
        assert plan.edges == (Edge(parent_id=EARLIER, child_id=RUN.job_id, kind=EdgeKind.END),)

    def test_a_fire_time_that_the_engine_skipped_stays_skipped(self) -> None:
        """With the engine's reason, whatever the overlap says."""
        missed = Fire(fire_at=NOW, reason="misfire")
        plan = plan_fire("nightly", missed, overlap="QUEUE", unended=EARLIER)
        assert plan == FireRecord(
            schedule="nightly", fire_at=NOW, outcome=FireOutcome.SKIPPED, reason="misfire"
        )


class TestDeclaration:
    def test_the_next_fire_time_alone_changes_nothing(self) -> None:
        """Every node computes it anew when it declares its schedules."""
        assert is_same_schedule(replace(NIGHTLY, next_fire_at=NOW + timedelta(days=1)), NIGHTLY)
        assert not is_same_schedule(replace(NIGHTLY, misfire="skip"), NIGHTLY)

    def test_the_same_timetable_keeps_the_next_fire_time(self) -> None:
        """A fire time that is due must not be lost because the template changed."""
        held, later = new_schedule(NIGHTLY, NOW), NOW + timedelta(days=1)
        changed = changed_schedule(held, replace(NIGHTLY, template="{1}", next_fire_at=later), later)
        assert (changed.next_fire_at, changed.spec.next_fire_at) == (NOW, NOW)
        assert (changed.spec.template, changed.created_at, changed.updated_at) == ("{1}", NOW, later)

    def test_another_timetable_brings_its_own(self) -> None:
        """The old next fire time means nothing there."""
        held, later = new_schedule(NIGHTLY, NOW), NOW + timedelta(days=1)
        changed = changed_schedule(held, replace(NIGHTLY, expression="0 4 * * *", next_fire_at=later), later)
        assert (changed.next_fire_at, changed.spec.next_fire_at) == (later, later)
