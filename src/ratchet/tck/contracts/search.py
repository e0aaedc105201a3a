"""Search: pages, filters, counts, tags, and the verbs for many jobs."""

from __future__ import annotations

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.tck.harness import Harness


class TestTimes:
    def test_from_a_moment_to_before_another(self, harness: Harness) -> None:
        """The first moment is included and the last is not, so adjacent spans share no job and miss none."""
        at = harness.after(hours=1)
        job_id = harness.submit(scheduled_at=at)
        created = harness.now
        for after, before, found in ((at, None, 1), (None, at, 0), (at, harness.after(hours=2), 1)):
            where = JobFilter(scheduled_after=after, scheduled_before=before)
            assert harness.store.count(where) == len(harness.store.find(where)) == found
        assert [one.job_id for one in harness.store.find(JobFilter(created_after=created))] == [job_id]
        assert harness.store.count(JobFilter(created_before=created)) == 0


class TestResults:
    def test_a_job_that_is_tried_again_has_none(self, harness: Harness) -> None:
        """The error of an earlier attempt is not the job's result: the job has not ended."""
        claim = harness.running()
        harness.end(claim, harness.another_try(harness.after(hours=1)))
        row = harness.store.results([claim.job_id])[claim.job_id]
        assert (row.status, row.error, row.error_type) == (JobStatus.PENDING, None, None)
        assert harness.record(claim.job_id).node_id is None

    def test_many_jobs_in_one_call(self, harness: Harness) -> None:
        """Each known job has its status and, once ended, its result or error; unknown ids are left out."""
        pending, running = harness.submit(scheduled_at=harness.after(hours=1)), harness.running().job_id
        done, dead, gone = harness.succeeded(), harness.failed(), harness.canceled()
        rows = harness.store.results([pending, running, done, dead, gone, new_id()])
        assert {job_id: row.status for job_id, row in rows.items()} == {
            pending: JobStatus.PENDING,
            running: JobStatus.RUNNING,
            done: JobStatus.SUCCEEDED,
            dead: JobStatus.FAILED,
            gone: JobStatus.CANCELED,
        }
        assert all(job_id == row.job_id for job_id, row in rows.items())
        assert (rows[done].result, rows[done].result_truncated) == ('"receipt"', False)
        assert (rows[dead].error, rows[dead].error_type) == ("card declined", "shop.errors.Declined")
        assert rows[gone].canceled_reason == "not needed"

    def test_of_nothing(self, harness: Harness) -> None:
        """No ids, no rows."""
        assert harness.store.results([]) == {}

    def test_of_many_ids(self, harness: Harness) -> None:
        """A call with 1,001 ids returns every row."""
        ids = harness.submit_many(1001)
        assert set(harness.store.results(ids)) == set(ids)


class TestFind:
    def test_newest_first_in_pages(self, harness: Harness) -> None:
        """Pages follow each other without gap or overlap, newest id first; the last one has no cursor."""
        ids = harness.submit_many(7)
        found, cursor, sizes = [], None, []
        while True:
            page = harness.store.find(JobFilter(), limit=3, cursor=cursor)
            found += [record.job_id for record in page]
            sizes.append(len(page))
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == ids[::-1]
        assert sizes[:2] == [3, 3]

    def test_a_cursor_outlives_changes(self, harness: Harness) -> None:
        """Jobs that are added or deleted between two pages do not make other jobs repeat or disappear."""
        ids = harness.submit_many(6)
        page = harness.store.find(JobFilter(), limit=2)
        harness.submit_many(3)
        assert harness.store.delete(ids[4])
        rest = harness.store.find(JobFilter(), limit=10, cursor=page.next_cursor)
        assert [record.job_id for record in rest] == [ids[3], ids[2], ids[1], ids[0]]

    def test_records_are_complete(self, harness: Harness) -> None:
        """What `find` returns is what `get` returns."""
        ids = [
            harness.submit(tags=("a", "b")),
            harness.running().job_id,
            harness.succeeded(),
            harness.failed(),
        ]
        for record in harness.store.find(JobFilter(), limit=10):
            assert record == harness.store.get(record.job_id)
            assert record.job_id in ids

    def test_by_status(self, harness: Harness) -> None:
        """Each status is found, alone and with others; an empty list of statuses finds nothing."""
        by_status = {
            JobStatus.SUCCEEDED: harness.succeeded(),
            JobStatus.FAILED: harness.failed(),
            JobStatus.CANCELED: harness.canceled(),
            JobStatus.PAUSED: harness.paused(),
            JobStatus.WAITING: harness.waiting(),
            JobStatus.RUNNING: harness.running().job_id,
            JobStatus.PENDING: harness.submit(),
        }
        for status, job_id in by_status.items():
            assert [r.job_id for r in harness.store.find(JobFilter(statuses=[status]))] == [job_id]
        some = [JobStatus.PENDING, JobStatus.FAILED]
        found = {r.job_id for r in harness.store.find(JobFilter(statuses=some))}
        assert found == {by_status[status] for status in some}
        assert len(harness.store.find(JobFilter(statuses=[]))) == 0

    def test_by_each_criterion(self, harness: Harness) -> None:
        """Every criterion selects exactly the job that it describes."""
        parent_id = new_id()
        plain = harness.submit()
        harness.advance(hours=1)
        cases = [
            (harness.submit(tags=("a", "b")), JobFilter(tags=["a", "b"])),
            (harness.submit(target="x:y"), JobFilter(targets=["x:y", "z:z"])),
            (harness.submit(queue="emails"), JobFilter(queue="emails")),
            (harness.submit(type=JobType.CALLBACK), JobFilter(types=[JobType.CALLBACK])),
            (harness.submit(priority=Priority.LOWEST), JobFilter(priorities=[Priority.LOWEST])),
            (harness.submit(business_key="k"), JobFilter(business_key="k")),
            (harness.submit(parent_id=parent_id), JobFilter(parent_id=parent_id)),
            (harness.submit(schedule="nightly"), JobFilter(schedule="nightly")),
            (
                harness.submit(scheduled_at=harness.after(days=9)),
                JobFilter(scheduled_after=harness.after(days=8)),
            ),
            (
                harness.submit(scheduled_at=harness.after(days=-9)),
                JobFilter(scheduled_before=harness.after(days=-8)),
            ),
            (plain, JobFilter(created_before=harness.after(minutes=-1))),
        ]
        for job_id, where in cases:
            assert [r.job_id for r in harness.store.find(where)] == [job_id], where
            assert harness.store.count(where) == 1, where
        assert harness.store.count(JobFilter(created_after=harness.after(minutes=-1))) == len(cases) - 1

    def test_by_node(self, harness: Harness) -> None:
        """Jobs that a node runs, and jobs that it ended."""
        ended = harness.succeeded(node="node-a")
        running = harness.running(node="node-a").job_id
        harness.running(node="node-b")
        assert {r.job_id for r in harness.store.find(JobFilter(node_id="node-a"))} == {ended, running}

    def test_by_error_text(self, harness: Harness) -> None:
        """The text is matched literally: % and _ are not wildcards."""
        job_id = harness.end(harness.running(), harness.failure("lost 100% of foo_bar")).job_id
        harness.end(harness.running(), harness.failure("lost 100 of fooxbar"))
        for text in ("100%", "foo_bar", "lost 100% of foo_bar"):
            assert [r.job_id for r in harness.store.find(JobFilter(error_contains=text))] == [job_id]
        assert harness.store.count(JobFilter(error_contains="o%x")) == 0

    def test_tags_mean_all_of_them(self, harness: Harness) -> None:
        """A job that lacks one of the tags is not found."""
        both = harness.submit(tags=("a", "b", "c"))
        harness.submit(tags=("a",))
        assert [r.job_id for r in harness.store.find(JobFilter(tags=["a", "b"]))] == [both]
        assert harness.store.count(JobFilter(tags=["a"])) == 2

    def test_criteria_are_combined(self, harness: Harness) -> None:
        """A job must meet every criterion that is given."""
        harness.submit(queue="emails", priority=Priority.LOW)
        wanted = harness.submit(queue="emails", priority=Priority.HIGH, tags=("a",))
        where = JobFilter(
            queue="emails", priorities=[Priority.HIGH], tags=["a"], statuses=[JobStatus.PENDING]
        )
        assert [r.job_id for r in harness.store.find(where)] == [wanted]


class TestCounts:
    def test_every_status_is_a_key(self, harness: Harness) -> None:
        """An empty store counts zero everywhere."""
        assert harness.store.counts() == dict.fromkeys(JobStatus, 0)

    def test_what_is_there(self, harness: Harness) -> None:
        """Each job counts once, under its current state."""
        harness.running()
        harness.succeeded()
        harness.failed()
        harness.canceled()
        harness.paused()
        harness.waiting()
        harness.submit_many(2)
        assert harness.store.counts() == {**dict.fromkeys(JobStatus, 1), JobStatus.PENDING: 2}

    def test_of_everything(self, harness: Harness) -> None:
        """An empty filter counts every job."""
        harness.succeeded()
        harness.submit_many(2)
        assert harness.store.count(JobFilter()) == 3


class TestCancelMatching:
    def test_up_to_a_limit_oldest_first(self, harness: Harness) -> None:
        """The oldest matching jobs are canceled, the others stay."""
        ids = harness.submit_many(5, tags=("old",))
        other = harness.submit()
        canceled = harness.store.cancel_matching(
            JobFilter(tags=["old"]), limit=3, reason="cleanup", now=harness.now
        )
        assert [c.job_id for c in canceled] == ids[:3]
        assert all(c.reason == "cleanup" for c in canceled)
        assert harness.statuses([*ids, other]) == [JobStatus.CANCELED] * 3 + [JobStatus.PENDING] * 3
        assert harness.record(ids[0]).canceled_reason == "cleanup"

    def test_ended_jobs_do_not_count(self, harness: Harness) -> None:
        """Jobs that cannot be canceled do not use up the limit."""
        for _ in range(3):
            harness.succeeded(tags=("x",))
        live = harness.submit(tags=("x",))
        canceled = harness.store.cancel_matching(JobFilter(tags=["x"]), limit=1, reason="r", now=harness.now)
        assert [c.job_id for c in canceled] == [live]

    def test_with_dependants_and_running_jobs(self, harness: Harness) -> None:
        """Dependants are canceled too; for a RUNNING job the answer names the run to interrupt."""
        parent, child = harness.spec(tags=("x",)), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        claim = harness.claim_job(parent.job_id)
        canceled = harness.store.cancel_matching(JobFilter(tags=["x"]), limit=9, reason="r", now=harness.now)
        assert [(c.job_id, c.previous, c.claim_id) for c in canceled] == [
            (parent.job_id, JobStatus.RUNNING, claim.claim_id),
            (child.job_id, JobStatus.WAITING, None),
        ]


class TestRetryMatching:
    def test_failed_jobs_oldest_first(self, harness: Harness) -> None:
        """Only FAILED jobs are retried, the oldest first, at most as many as the limit."""
        ids = [harness.failed(tags=("x",)) for _ in range(4)]
        harness.succeeded(tags=("x",))
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=2, now=harness.now) == ids[:2]
        assert harness.statuses(ids) == [JobStatus.PENDING] * 2 + [JobStatus.FAILED] * 2
        record = harness.record(ids[0])
        assert (record.attempts, record.error, record.scheduled_at) == (0, None, harness.now)

    def test_busy_keys_do_not_use_up_the_limit(self, harness: Harness) -> None:
        """Jobs that cannot be retried come first: the jobs behind them are still reached."""
        busy = [harness.failed(tags=("x",), business_key=key) for key in "abc"]
        free = [harness.failed(tags=("x",)) for _ in range(3)]
        for key in "abc":
            harness.submit(business_key=key, scheduled_at=harness.after(days=1))
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=2, now=harness.now) == free[:2]
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=2, now=harness.now) == free[2:]
        assert harness.statuses(busy) == [JobStatus.FAILED] * 3

    def test_a_busy_key_is_passed_over(self, harness: Harness) -> None:
        """A job whose key another live job has taken stays FAILED; the others are retried."""
        busy = harness.failed(tags=("x",), business_key="k")
        free = harness.failed(tags=("x",))
        harness.submit(business_key="k")
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=9, now=harness.now) == [free]
        assert harness.statuses([busy, free]) == [JobStatus.FAILED, JobStatus.PENDING]

    def test_two_claims_on_one_key(self, harness: Harness) -> None:
        """Two failed jobs have the same key: the older one takes it, and the other stays FAILED."""
        first = harness.failed(tags=("x",), business_key="k")
        second = harness.failed(tags=("x",), business_key="k")
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=9, now=harness.now) == [first]
        assert harness.status(second) is JobStatus.FAILED


class TestPurgeDeadLetters:
    def test_old_failures_move_to_the_archive(self, harness: Harness) -> None:
        """Jobs that failed before the date are archived, and their alerts are dropped; younger ones stay."""
        old = harness.failed()
        harness.advance(days=10)
        young = harness.failed()
        assert harness.store.purge_dead_letters(before=harness.after(days=-5), limit=10) == 1
        record = harness.record(old)
        assert (record.status, record.archived) == (JobStatus.FAILED, True)
        assert harness.store.alerts_of(old) == []
        assert not harness.record(young).archived
        assert len(harness.store.alerts_of(young)) == 1
        assert harness.store.counts()[JobStatus.FAILED] == 1

    def test_at_most_the_limit(self, harness: Harness) -> None:
        """Each call purges at most as many jobs as the limit."""
        for _ in range(3):
            harness.failed()
        harness.advance(days=1)
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 2
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 1
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 0


class TestTags:
    def test_tags_of(self, harness: Harness) -> None:
        """The tags of each job, sorted; jobs without tags are left out."""
        tagged, plain = harness.submit(tags=("z", "a", "m")), harness.submit()
        assert dict(harness.store.tags_of([tagged, plain, new_id()])) == {tagged: ("a", "m", "z")}
        assert dict(harness.store.tags_of([])) == {}

    def test_tag_counts(self, harness: Harness) -> None:
        """The most used tag comes first; at most as many as the limit."""
        harness.submit_many(3, tags=("often",))
        harness.submit_many(2, tags=("twice", "often"))
        harness.submit(tags=("once",))
        assert list(harness.store.tag_counts().items()) == [("often", 5), ("twice", 2), ("once", 1)]
        assert harness.store.tag_counts(limit=1) == {"often": 5}

    def test_a_tag_given_twice(self, harness: Harness) -> None:
        """A repeated tag counts as one."""
        job_id = harness.submit(tags=("a", "a"))
        assert dict(harness.store.tags_of([job_id])) == {job_id: ("a",)}
