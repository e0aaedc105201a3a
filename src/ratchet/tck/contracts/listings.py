"""Listings: sorted pages, and criteria that need no index."""

from __future__ import annotations

from uuid import UUID

import pytest

from ratchet.model.decision import ErrorRecord, Fail, Succeed
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import new_id
from ratchet.model.job import BoundedFilter, JobFilter, SortBy
from ratchet.model.status import JobStatus, Priority
from ratchet.model.traces import Trace, with_trace
from ratchet.tck.harness import Harness


def listed(
    harness: Harness, sort: SortBy, *, descending: bool = True, where: JobFilter | None = None
) -> list[UUID]:
    """All pages of a listing, two jobs each."""
    found: list[UUID] = []
    cursor: str | None = None
    while True:
        page = harness.store.find(
            where or JobFilter(), limit=2, cursor=cursor, sort=sort, descending=descending
        )
        found += [record.job_id for record in page]
        cursor = page.next_cursor
        if cursor is None:
            return found


class TestSortedListings:
    def test_by_priority(self, harness: Harness) -> None:
        """Highest first, the newer first where it is equal; the other way round when it is asked for."""
        levels = [Priority.LOW, Priority.HIGH, Priority.NORMAL, Priority.HIGH, Priority.LOWEST]
        low, high, normal, other, lowest = [harness.submit(priority=level) for level in levels]
        assert listed(harness, SortBy.PRIORITY) == [other, high, normal, low, lowest]
        assert listed(harness, SortBy.PRIORITY, descending=False) == [lowest, low, normal, high, other]

    def test_by_due_time(self, harness: Harness) -> None:
        """The time at which a job is due now, also after it was moved."""
        first, second, third = [harness.submit(scheduled_at=harness.after(hours=n)) for n in (3, 1, 2)]
        assert listed(harness, SortBy.SCHEDULED) == [first, third, second]
        assert harness.store.reschedule(second, harness.after(hours=9), now=harness.now)
        assert listed(harness, SortBy.SCHEDULED, descending=False) == [third, first, second]

    def test_by_end(self, harness: Harness) -> None:
        """Jobs that have not ended come last, whichever way it is sorted."""
        waiting = [harness.submit(scheduled_at=harness.after(days=1)) for _ in range(4)]
        ended = []
        for _ in range(3):
            claim = harness.running()
            harness.advance(minutes=1)
            harness.end(claim, Succeed())
            ended.append(claim.job_id)
        assert listed(harness, SortBy.FINISHED) == [*ended[::-1], *waiting[::-1]]
        assert listed(harness, SortBy.FINISHED, descending=False) == [*ended, *waiting]

    def test_oldest_first(self, harness: Harness) -> None:
        """The order of ids, upwards."""
        ids = sorted(harness.submit() for _ in range(5))
        assert listed(harness, SortBy.CREATED, descending=False) == ids
        assert listed(harness, SortBy.CREATED) == ids[::-1]

    def test_a_cursor_holds_while_jobs_come_and_go(self, harness: Harness) -> None:
        """What was there is listed once, what is added later is not, whatever its place would be."""
        jobs = [harness.submit(priority=Priority(n)) for n in (4, 3, 2, 1)]
        first = harness.store.find(JobFilter(), limit=2, sort=SortBy.PRIORITY)
        harness.submit(priority=Priority.NORMAL)
        harness.submit(priority=Priority.LOWEST)
        assert harness.store.delete(jobs[1])
        rest = harness.store.find(JobFilter(), limit=9, cursor=first.next_cursor, sort=SortBy.PRIORITY)
        assert [record.job_id for record in (*first, *rest)] == jobs
        assert rest.next_cursor is None

    def test_filtered_and_with_the_archive(self, harness: Harness) -> None:
        """The criteria hold, and archived jobs are sorted among the others."""
        old = harness.succeeded(priority=Priority.HIGH, tags=("a",))
        harness.advance(days=30)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 1
        live = [harness.submit(priority=level, tags=("a",)) for level in (Priority.LOW, Priority.CRITICAL)]
        harness.submit(tags=("b",))
        where = JobFilter(tags=["a"], include_archived=True)
        assert listed(harness, SortBy.PRIORITY, where=where) == [live[1], old, live[0]]

    def test_cursors_of_other_listings(self, harness: Harness) -> None:
        """Refused: they would skip jobs."""
        for _ in range(3):
            harness.submit()
        cursor = harness.store.find(JobFilter(), limit=1, sort=SortBy.PRIORITY).next_cursor
        for sort, descending in ((SortBy.SCHEDULED, True), (SortBy.PRIORITY, False), (SortBy.CREATED, True)):
            with pytest.raises(InvalidJob, match="cursor"):
                harness.store.find(JobFilter(), cursor=cursor, sort=sort, descending=descending)


class TestSearchCriteria:
    def test_each(self, harness: Harness) -> None:
        """Finds its job and no other, in pages and as a number."""
        other = harness.submit(payload='{"args":[43,"eu"],"kwargs":{"n":1}}')
        named = harness.submit(caller="ann")
        args = harness.submit(payload='{"args":[42,{"b":1,"a":[true]}],"kwargs":{"region":"eu"}}')
        cases = [
            (named, JobFilter(caller="ann")),
            (args, JobFilter(args={"0": 42}, targets=[harness.record(args).target])),
            (args, JobFilter(args={"region": "eu"})),
            (args, JobFilter(args={"1": {"a": [True], "b": 1}, "region": "eu"})),
            (other, JobFilter(args={"n": 1})),
            (args, BoundedFilter(first_id=args)),
            (other, BoundedFilter(last_id=other)),
        ]
        for job_id, where in cases:
            found = [record.job_id for record in harness.store.find(where)]
            if where.args == {"0": 42}:  # what other jobs of the kit are called with
                assert job_id in found
                assert other not in found
                continue
            assert found == [job_id], where
            assert harness.store.count(where) == 1, where
            assert listed(harness, SortBy.SCHEDULED, where=where) == [job_id]
        for nothing in ({"region": "us"}, {"n": True}, {"n": "1"}, {"7": 1}, {"eu": 1}):
            assert harness.store.count(JobFilter(args=nothing)) == 0

    def test_trace(self, harness: Harness) -> None:
        """The jobs whose params hold this trace, and no other that only mentions it; together with arguments too."""
        wanted, other = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
        kept = Trace({"traceparent": f"00-{wanted}-00f067aa0ba902b7-01"})
        one = harness.submit(params=with_trace(None, kept), payload='{"args":[1],"kwargs":{}}')
        two = harness.submit(params=with_trace('{"region":"eu"}', kept), payload='{"args":[2],"kwargs":{}}')
        harness.submit(params=with_trace(None, Trace({"traceparent": f"00-{other}-00f067aa0ba902b7-01"})))
        harness.submit(params=f'{{"note":"{wanted}"}}')
        harness.submit(params="{broken")
        harness.submit()
        where = JobFilter(trace_id=wanted)
        assert [record.job_id for record in harness.store.find(where)] == sorted((one, two), reverse=True)
        assert harness.store.count(where) == 2
        assert set(listed(harness, SortBy.SCHEDULED, where=where)) == {one, two}
        assert [r.job_id for r in harness.store.find(JobFilter(trace_id=wanted, args={"0": 2}))] == [two]
        canceled = harness.store.cancel_matching(where, limit=1, reason="requested", now=harness.now)
        assert [job.job_id for job in canceled] == [min(one, two)]

    def test_error_type(self, harness: Harness) -> None:
        """The class of the error by its name; empty text: those that have none."""
        plain, other, named = harness.submit(), harness.running(), harness.running()
        for claim, kind in ((other, "KeyError"), (named, "ValueError")):
            error = ErrorRecord(message="no", type=kind)
            harness.end(claim, Fail(error=error, reason="retries exhausted", error_hash=kind))
        found = harness.store.find(JobFilter(error_type="ValueError"))
        assert [one.job_id for one in found] == [named.job_id]
        assert [one.job_id for one in harness.store.find(JobFilter(error_type=""))] == [plain]
        assert harness.store.count(JobFilter(error_type="Value")) == 0

    def test_counting_ends(self, harness: Harness) -> None:
        """At the number that was given: also by argument, and with the archive; a smaller number is exact."""
        for _ in range(3):
            harness.submit(payload='{"args":[],"kwargs":{"tenant":7}}')
        for where in (
            JobFilter(),
            JobFilter(args={"tenant": 7}),
            JobFilter(statuses=[JobStatus.PENDING], include_archived=True),
        ):
            assert [harness.store.count(where, at_most=most) for most in (1, 2, 3, 9)] == [1, 2, 3, 3], where

    def test_superseded_by(self, harness: Harness) -> None:
        """The job that another one has replaced."""
        old = harness.submit()
        spec = harness.spec()
        assert harness.store.replace(old, spec, now=harness.now)
        assert [one.job_id for one in harness.store.find(JobFilter(superseded_by=spec.job_id))] == [old]

    def test_truncated(self, harness: Harness) -> None:
        """Results that were kept whole, and those that were not."""
        whole, cut = harness.running(), harness.running()
        harness.end(whole, Succeed(result="1"))
        harness.end(cut, Succeed(result='"beg"', truncated=True))
        assert [one.job_id for one in harness.store.find(JobFilter(truncated=True))] == [cut.job_id]
        assert [one.job_id for one in harness.store.find(JobFilter(truncated=False))] == [whole.job_id]

    def test_parked(self, harness: Harness) -> None:
        """While it waits for a node that can run it; not while it runs, or another waits."""
        plain, claim = harness.submit(scheduled_at=harness.after(hours=1)), harness.running()
        assert harness.store.park(claim, harness.record(claim.job_id).target, now=harness.now)
        assert [one.job_id for one in harness.store.find(JobFilter(parked=True))] == [claim.job_id]
        assert [one.job_id for one in harness.store.find(JobFilter(parked=False))] == [plain]

    def test_verbs_for_many(self, harness: Harness) -> None:
        """Cancel and retry by argument: oldest first, up to the limit."""
        ids = [harness.submit(payload='{"args":[],"kwargs":{"tenant":7}}') for _ in range(3)]
        spared = harness.submit(payload='{"args":[],"kwargs":{"tenant":8}}')
        where = JobFilter(args={"tenant": 7})
        canceled = harness.store.cancel_matching(where, limit=2, reason="requested", now=harness.now)
        assert [one.job_id for one in canceled] == sorted(ids)[:2]
        assert harness.record(spared).status is JobStatus.PENDING

    def test_what_cannot_be_read(self, harness: Harness) -> None:
        """A payload that is no JSON has no arguments, and hides no other job."""
        harness.submit(payload="{broken")
        good = harness.submit(payload='{"args":[],"kwargs":{"tenant":7}}')
        assert [one.job_id for one in harness.store.find(JobFilter(args={"tenant": 7}))] == [good]

    def test_more_than_a_page_reads(self, harness: Harness) -> None:
        """Pages of a search by argument join without gap or overlap."""
        wanted = [
            harness.submit(payload=f'{{"args":[],"kwargs":{{"odd":{"true" if n % 2 else "false"}}}}}')
            for n in range(9)
        ][1::2]
        where, cursor, found = JobFilter(args={"odd": True}), None, []
        while True:
            page = harness.store.find(where, limit=1, cursor=cursor)
            found += [record.job_id for record in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == sorted(wanted, reverse=True)
        assert new_id() not in found
