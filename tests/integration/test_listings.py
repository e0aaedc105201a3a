"""Filters, sorted listings and what a job looks like, through the public API on every store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from ratchet import InvalidJob, Job, JobContext, JobFilter, ManualClock, Page, Priority, Progress, SortBy
from ratchet.model.identifiers import first_id_at
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import number

seen: list[Any] = []


def who() -> None:
    seen.append(JobContext.current().caller)


class Ann:
    """Everything is submitted by ann."""

    def current(self) -> str:
        return "ann"


class TestFilters:
    def test_by_argument(self, scheduler: ManualScheduler) -> None:
        """Positional ones by their place, others by name; values compare as they are stored."""
        first = scheduler.enqueue(number, 42).submit()
        named = scheduler.enqueue(number, value=43).submit()
        scheduler.enqueue(number, 44).submit()
        find = scheduler.jobs.find
        assert [job.id for job in find(JobFilter(args={"0": 42}))] == [first.id]
        assert [job.id for job in find(JobFilter(args={"value": 43}))] == [named.id]
        assert scheduler.jobs.count(JobFilter(args={"0": 45})) == 0
        with pytest.raises(InvalidJob, match="by text"):
            find(JobFilter(args={0: 42}))  # type: ignore[dict-item]

    def test_by_time_of_creation(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Exactly the jobs of the span, also across many days."""
        handles = []
        for _ in range(6):
            handles.append(scheduler.enqueue(number, 1).submit())
            clock.advance(timedelta(hours=30))
        start = handles[0].job().created_at
        where = JobFilter(
            created_after=start + timedelta(hours=30), created_before=start + timedelta(hours=90)
        )
        assert [job.id for job in scheduler.jobs.find(where)] == [handles[2].id, handles[1].id]
        assert scheduler.jobs.count(where) == 2
        assert scheduler.cancel_jobs(where) == 2

    def test_it_is_a_range_of_ids(
        self, scheduler: ManualScheduler, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The store is told between which ids to look, a day wider than the span: clocks differ."""
        asked: list[JobFilter] = []
        store = scheduler._core.store
        find = store.find

        def noted(where: JobFilter, **options: Any) -> Any:
            asked.append(where)
            return find(where, **options)

        monkeypatch.setattr(store, "find", noted)
        now, day = clock.now(), timedelta(days=1)
        scheduler.jobs.find(JobFilter(created_after=now - day, created_before=now))
        assert (asked[0].first_id, asked[0].last_id) == (first_id_at(now - 2 * day), first_id_at(now + day))


class TestSorts:
    def test_by_priority(self, scheduler: ManualScheduler) -> None:
        """In pages; a word that is no sort is refused."""
        for level in (Priority.LOW, Priority.CRITICAL, Priority.NORMAL):
            scheduler.enqueue(number, 1).with_priority(level).submit()
        first = scheduler.jobs.find(limit=2, sort=SortBy.PRIORITY)
        rest = scheduler.jobs.find(limit=2, sort=SortBy.PRIORITY, cursor=first.next_cursor)
        assert [job.priority for job in (*first, *rest)] == [
            Priority.CRITICAL,
            Priority.NORMAL,
            Priority.LOW,
        ]
        with pytest.raises(InvalidJob, match="sort is one of"):
            scheduler.jobs.find(sort="SIZE")  # type: ignore[arg-type]


class TestJobs:
    def test_the_caller(self, stores: Any, clock: ManualClock) -> None:
        """A job sees on whose behalf it was submitted, and can be found by it."""
        seen.clear()
        scheduler = ManualScheduler(store=stores.open(), clock=clock, principal_provider=Ann())
        scheduler.enqueue(who).submit()
        scheduler.drain()
        assert seen == ["ann"]
        assert scheduler.jobs.count(JobFilter(caller="ann")) == 1
        scheduler.close()

    def test_updated_at(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Its creation at first, then its end."""
        handle = scheduler.enqueue(number, 1).submit()
        assert handle.job().updated_at == handle.job().created_at
        clock.advance(timedelta(minutes=5))
        scheduler.drain()
        job = handle.job()
        assert job.updated_at == job.finished_at != job.created_at

    def test_as_json(self, scheduler: ManualScheduler) -> None:
        """`to_dict` has every field, as JSON takes it."""
        job = scheduler.enqueue(number, 7).with_tags("a").with_timeout(90).submit().job()
        document = json.loads(json.dumps(job.to_dict()))
        assert document["id"] == str(job.id)
        assert (document["args"], document["tags"], document["timeout"]) == ([7], ["a"], 90.0)
        assert (document["status"], document["priority"]) == ("PENDING", "NORMAL")
        assert document["created_at"] == job.created_at.isoformat()

    def test_pydantic(self, scheduler: ManualScheduler) -> None:
        """Web frameworks can return jobs, pages and progress as they are."""
        scheduler.enqueue(number, 7).submit()
        page = scheduler.jobs.find()
        document = json.loads(TypeAdapter(Page[Job]).dump_json(page))
        assert document["items"][0]["id"] == str(page.items[0].id)
        assert document["next_cursor"] is None
        assert TypeAdapter(Progress).dump_python(Progress(fraction=0.5)) == {"fraction": 0.5, "message": None}
        assert TypeAdapter(Job).json_schema()["properties"]["updated_at"]
