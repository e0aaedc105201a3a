"""Jobs: insert, read, change, delete; tags and bulk verbs."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.composition import EdgeKind
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, JobSpec, SignalWait
from ratchet.model.status import BackoffPolicy, Busy, JobStatus, JobType, Lane, Priority
from ratchet.tck.harness import Harness


class TestInsert:
    def full_spec(self, harness: Harness) -> JobSpec:
        """A job with something in every field that a record shows."""
        return harness.spec(
            queue="emails",
            lane=Lane.PROCESS,
            resource="gateway",
            breaker="bank",
            limit_key="tenant-7",
            fairness_key="ann",
            target="shop.jobs:päckchen",
            payload='{"args":["🧾 \\u00fc \\" \\\\ \' %s :name ?"],"kwargs":{}}',
            params='{"region":"eu"}',
            tags=("urgent", "billing"),
            priority=Priority.HIGH,
            type=JobType.CALLBACK,
            scheduled_at=harness.after(hours=1, microseconds=7),
            expires_at=harness.after(days=1),
            max_retries=3,
            backoff=BackoffPolicy.EXPONENTIAL,
            backoff_base=timedelta(seconds=1, microseconds=1),
            jitter=0.25,
            timeout=timedelta(minutes=5, microseconds=1),
            idempotency_key="request-1",
            business_key="invoice-42",
            parent_id=new_id(),
            caller="ann",
        )

    def test_every_field_comes_back(self, harness: Harness) -> None:
        """What was submitted is what is read, to the microsecond and to the last character."""
        spec = self.full_spec(harness)
        harness.insert([spec])
        record = harness.record(spec.job_id)
        for name in [
            "job_id",
            "target",
            "payload",
            "params",
            "priority",
            "type",
            "stream",
            "scheduled_at",
            "expires_at",
            "max_retries",
            "backoff",
            "backoff_base",
            "jitter",
            "timeout",
            "idempotency_key",
            "business_key",
            "parent_id",
            "caller",
        ]:
            assert getattr(record, name) == getattr(spec, name), name
        assert sorted(record.tags) == ["billing", "urgent"]
        assert record.status is JobStatus.PENDING
        assert record.created_at == harness.now

    def test_a_new_job_has_no_past(self, harness: Harness) -> None:
        """No run, no error, no result, no node: what has not happened yet is empty."""
        job_id = harness.submit()
        record = harness.record(job_id)
        assert (record.attempts, record.crashes) == (0, 0)
        assert record.root_id == job_id
        for name in [
            "started_at",
            "finished_at",
            "expires_at",
            "timeout",
            "error",
            "error_type",
            "result",
            "progress",
            "state",
            "node_id",
            "claim_id",
            "business_key",
            "idempotency_key",
            "parent_id",
            "batch_id",
            "schedule",
            "superseded_by",
            "canceled_reason",
            "paused_from",
            "signal_key",
            "dead_letter_reason",
            "caller",
            "params",
        ]:
            assert getattr(record, name) is None, name
        assert (record.tags, record.result_truncated, record.archived) == ((), False, False)

    def test_times_are_aware_and_exact(self, harness: Harness) -> None:
        """Stored times come back with a zone and with their microseconds, whatever zone they were given in."""
        at = harness.after(days=3, microseconds=1)
        record = harness.record(harness.submit(scheduled_at=at))
        assert record.scheduled_at == at
        assert record.scheduled_at.utcoffset() == timedelta(0)
        assert record.created_at.utcoffset() == timedelta(0)

    def test_one_answer_per_spec_in_order(self, harness: Harness) -> None:
        """The answers stand where their specs stood."""
        specs = harness.specs(5)
        answers = harness.store.insert(specs, now=harness.now)
        assert [(a.job_id, a.created, a.replaced) for a in answers] == [(s.job_id, True, None) for s in specs]

    def test_nothing_is_a_valid_submission(self, harness: Harness) -> None:
        """No specs, no answers, no job."""
        assert harness.store.insert([], now=harness.now) == []
        assert sum(harness.store.counts().values()) == 0

    def test_thousands_in_one_call(self, harness: Harness) -> None:
        """2,500 jobs with tags go in together, and all of them are there."""
        specs = harness.specs(2500, tags=("bulk",))
        answers = harness.store.insert(specs, now=harness.now)
        assert [a.job_id for a in answers] == [s.job_id for s in specs]
        assert harness.store.count(JobFilter(tags=["bulk"])) == 2500
        assert harness.store.counts()[JobStatus.PENDING] == 2500

    def test_a_past_due_time_is_kept(self, harness: Harness) -> None:
        """A job scheduled in the past has been waiting since then."""
        at = harness.after(days=-2)
        assert harness.record(harness.submit(scheduled_at=at)).scheduled_at == at

    def test_the_same_id_again_is_the_same_submission(self, harness: Harness) -> None:
        """A submission repeated after a lost answer is told that it is stored, and changes nothing."""
        spec = harness.spec(tags=("a",), business_key="k", idempotency_key="i")
        harness.insert([spec])
        before = harness.record(spec.job_id)
        harness.advance(seconds=1)
        answers = harness.store.insert([spec], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(spec.job_id, True)]
        assert harness.record(spec.job_id) == before
        assert sum(harness.store.counts().values()) == 1

    def test_the_same_id_after_its_end_does_not_run_again(self, harness: Harness) -> None:
        """The answer was lost, the job has already succeeded: repeating the submission does not revive it."""
        spec = harness.spec()
        harness.insert([spec])
        harness.end(harness.claim_job(spec.job_id))
        assert [a.created for a in harness.store.insert([spec], now=harness.now)] == [True]
        assert harness.status(spec.job_id) is JobStatus.SUCCEEDED
        assert harness.claim() == []

    def test_a_repeated_graph_is_stored_once(self, harness: Harness) -> None:
        """Jobs, edges and batch of a repeated submission are not doubled."""
        batch, children = harness.batch_of(2)
        follower = harness.child(root_id=children[0].job_id)
        edge = harness.edge(children[0], follower)
        harness.insert([follower], [edge])
        harness.store.insert(children, now=harness.now, batch=batch)
        harness.store.insert([follower], now=harness.now, edges=[edge])
        stored = harness.store.batch(batch.batch_id)
        assert stored is not None
        assert stored.total == 2
        assert len(harness.store.edges_of(follower.job_id)) == 1
        harness.end_all(harness.claim())
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING

    def test_partly_repeated(self, harness: Harness) -> None:
        """Old and new specs in one call: the old ones are left alone, the new ones are stored."""
        old, new = harness.specs(2)
        harness.insert([old])
        answers = harness.store.insert([old, new], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(old.job_id, True), (new.job_id, True)]
        assert harness.store.counts()[JobStatus.PENDING] == 2

    def test_a_waiting_job_is_not_queued(self, harness: Harness) -> None:
        """A job submitted as WAITING stays out of every claim."""
        job_id = harness.waiting()
        assert harness.status(job_id) is JobStatus.WAITING
        assert harness.claim() == []

    def test_an_edge_to_a_parent_that_has_ended_is_settled_at_once(self, harness: Harness) -> None:
        """Late children of an ended parent are released or canceled by the insert itself."""
        done, dead, gone = harness.succeeded(), harness.failed(), harness.canceled()
        cases = [
            (done, EdgeKind.SUCCESS, JobStatus.PENDING),
            (done, EdgeKind.FAILURE, JobStatus.CANCELED),
            (dead, EdgeKind.SUCCESS, JobStatus.CANCELED),
            (dead, EdgeKind.FAILURE, JobStatus.PENDING),
            (gone, EdgeKind.SUCCESS, JobStatus.CANCELED),
            (gone, EdgeKind.END, JobStatus.PENDING),
        ]
        for parent, kind, expected in cases:
            child = harness.child()
            harness.insert([child], [harness.edge(parent, child, kind)])
            assert harness.status(child.job_id) is expected, (parent, kind)


class TestGet:
    def test_an_unknown_id(self, harness: Harness) -> None:
        """There is no such job: None, not an error."""
        assert harness.store.get(new_id()) is None

    def test_a_running_job_shows_its_claim(self, harness: Harness) -> None:
        """Who runs it, under which token, since when it is RUNNING."""
        claim = harness.running()
        record = harness.record(claim.job_id)
        assert (record.status, record.node_id, record.claim_id) == (
            JobStatus.RUNNING,
            claim.node_id,
            claim.claim_id,
        )


class TestResults:
    def test_many_jobs_in_one_call(self, harness: Harness) -> None:
        """Each known job with status and, once ended, its result or error; unknown ids are left out."""
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
        """A thousand and one ids are no problem."""
        ids = harness.submit_many(1001)
        assert set(harness.store.results(ids)) == set(ids)


class TestFind:
    def test_newest_first_in_pages(self, harness: Harness) -> None:
        """Pages follow each other without gap or overlap, newest id first, and the last one says so."""
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
        """Jobs that come or go between two pages neither repeat nor hide others."""
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
        """Every status is found, hot or cold, alone and together."""
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
        """The text is looked for as it stands: % and _ are no wildcards."""
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
        """Every criterion that is given must hold."""
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
        """Each job counts once, under the state it is in."""
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


class TestDelete:
    def test_a_job_that_is_not_running_goes_with_all_it_left(self, harness: Harness) -> None:
        """Record, runs, tags and alerts are gone, in every state but RUNNING."""
        for job_id in (
            harness.submit(tags=("t",)),
            harness.paused(tags=("t",)),
            harness.waiting(tags=("t",)),
            harness.succeeded(tags=("t",)),
            harness.failed(tags=("t",)),
            harness.canceled(tags=("t",)),
        ):
            assert harness.store.delete(job_id)
            assert harness.store.get(job_id) is None
            assert harness.store.executions(job_id, uncounted=True) == []
            assert harness.store.alerts_of(job_id) == []
        assert harness.store.tag_counts() == {}
        assert sum(harness.store.counts().values()) == 0

    def test_a_running_job_stays(self, harness: Harness) -> None:
        """RUNNING: False, and the run can still end."""
        claim = harness.running()
        assert not harness.store.delete(claim.job_id)
        harness.end(claim)

    def test_an_unknown_job(self, harness: Harness) -> None:
        """Nothing to delete: False; the second delete finds nothing either."""
        job_id = harness.submit()
        assert not harness.store.delete(new_id())
        assert harness.store.delete(job_id)
        assert not harness.store.delete(job_id)

    def test_a_deleted_job_is_never_claimed(self, harness: Harness) -> None:
        """It leaves the queue too."""
        assert harness.store.delete(harness.submit())
        assert harness.claim() == []

    def test_its_idempotency_key_stays(self, harness: Harness) -> None:
        """The same key never makes a second job, even when the first one was deleted."""
        job_id = harness.submit(idempotency_key="once")
        assert harness.store.delete(job_id)
        answer = harness.store.insert([harness.spec(idempotency_key="once")], now=harness.now)[0]
        assert (answer.job_id, answer.created) == (job_id, False)

    def test_its_business_key_is_free(self, harness: Harness) -> None:
        """Nobody holds the key any more."""
        assert harness.store.delete(harness.submit(business_key="k"))
        assert harness.status(harness.submit(business_key="k")) is JobStatus.PENDING

    def test_its_dependants_are_canceled(self, harness: Harness) -> None:
        """No child waits forever for a parent that is gone."""
        parent, child, grandchild = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [parent, child, grandchild], [harness.edge(parent, child), harness.edge(child, grandchild)]
        )
        assert harness.store.delete(parent.job_id)
        assert harness.statuses([child.job_id, grandchild.job_id]) == [JobStatus.CANCELED] * 2


class TestReschedule:
    def test_a_pending_job(self, harness: Harness) -> None:
        """The job is claimed at its new time, not before."""
        job_id = harness.submit()
        at = harness.after(minutes=5, microseconds=3)
        assert harness.store.reschedule(job_id, at, now=harness.now)
        assert harness.record(job_id).scheduled_at == at
        assert harness.claim() == []
        harness.now = at
        assert [c.job_id for c in harness.claim()] == [job_id]

    def test_to_an_earlier_time(self, harness: Harness) -> None:
        """A job moved before others that were claimed past is found at once."""
        late = harness.submit(scheduled_at=harness.after(days=1))
        harness.end_all(harness.claim(100))
        harness.submit_many(3)
        assert len(harness.claim(2)) == 2
        assert harness.store.reschedule(late, harness.after(days=-1), now=harness.now)
        assert [c.job_id for c in harness.claim(1)] == [late]

    def test_a_paused_job(self, harness: Harness) -> None:
        """It stays PAUSED and is due at the new time after resuming."""
        job_id = harness.paused()
        at = harness.after(hours=2)
        assert harness.store.reschedule(job_id, at, now=harness.now)
        assert harness.status(job_id) is JobStatus.PAUSED
        assert harness.store.resume(job_id, now=harness.now)
        assert harness.record(job_id).scheduled_at == at
        assert harness.claim() == []

    def test_a_waiting_job(self, harness: Harness) -> None:
        """Released, it is due at its own later time."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        at = harness.after(hours=2)
        assert harness.store.reschedule(child.job_id, at, now=harness.now)
        harness.end(harness.claim_job(parent.job_id))
        assert (harness.status(child.job_id), harness.record(child.job_id).scheduled_at) == (
            JobStatus.PENDING,
            at,
        )

    def test_any_other_state(self, harness: Harness) -> None:
        """RUNNING and ended jobs keep their time; there is nothing to move."""
        ids = [harness.running().job_id, harness.succeeded(), harness.failed(), harness.canceled()]
        before = [harness.record(job_id) for job_id in ids]
        assert [harness.store.reschedule(i, harness.after(hours=1), now=harness.now) for i in ids] == [
            False
        ] * 4
        assert [harness.record(job_id) for job_id in ids] == before
        assert not harness.store.reschedule(new_id(), harness.now, now=harness.now)


class TestReplace:
    def test_in_every_state_that_can_be_replaced(self, harness: Harness) -> None:
        """PENDING, PAUSED, WAITING: the old job is CANCELED and points at the new one, which is stored."""
        for job_id, previous in (
            (harness.submit(), JobStatus.PENDING),
            (harness.paused(), JobStatus.PAUSED),
            (harness.waiting(), JobStatus.WAITING),
        ):
            spec = harness.spec()
            canceled = harness.store.replace(job_id, spec, now=harness.now)
            assert canceled is not None
            assert (canceled.job_id, canceled.previous, canceled.reason) == (job_id, previous, "superseded")
            old = harness.record(job_id)
            assert (old.status, old.canceled_reason, old.superseded_by) == (
                JobStatus.CANCELED,
                "superseded",
                spec.job_id,
            )
            assert harness.status(spec.job_id) is JobStatus.PENDING
        assert len(harness.claim()) == 3

    def test_in_any_other_state(self, harness: Harness) -> None:
        """None: the old job is as it was, and the new one is not stored."""
        for job_id in (
            harness.running().job_id,
            harness.succeeded(),
            harness.failed(),
            harness.canceled(),
            new_id(),
        ):
            before, spec = harness.store.get(job_id), harness.spec()
            assert harness.store.replace(job_id, spec, now=harness.now) is None
            assert harness.store.get(job_id) == before
            assert harness.store.get(spec.job_id) is None

    def test_the_business_key_passes_on(self, harness: Harness) -> None:
        """Old and new name the same key: the new job holds it."""
        old = harness.submit(business_key="k")
        spec = harness.spec(business_key="k")
        assert harness.store.replace(old, spec, now=harness.now) is not None
        answer = harness.store.insert([harness.spec(business_key="k", busy=Busy.RETURN)], now=harness.now)[0]
        assert (answer.job_id, answer.created) == (spec.job_id, False)

    def test_dependants_of_the_old_job_are_canceled(self, harness: Harness) -> None:
        """Replaced is CANCELED: every edge of the old job is broken."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        assert harness.store.replace(parent.job_id, harness.spec(), now=harness.now) is not None
        assert harness.status(child.job_id) is JobStatus.CANCELED


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
        """What cannot be canceled does not use up the limit."""
        for _ in range(3):
            harness.succeeded(tags=("x",))
        live = harness.submit(tags=("x",))
        canceled = harness.store.cancel_matching(JobFilter(tags=["x"]), limit=1, reason="r", now=harness.now)
        assert [c.job_id for c in canceled] == [live]

    def test_with_dependants_and_running_jobs(self, harness: Harness) -> None:
        """Dependants go too; a RUNNING job names the run to interrupt."""
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
        """Only FAILED jobs, the oldest first, at most the limit."""
        ids = [harness.failed(tags=("x",)) for _ in range(4)]
        harness.succeeded(tags=("x",))
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=2, now=harness.now) == ids[:2]
        assert harness.statuses(ids) == [JobStatus.PENDING] * 2 + [JobStatus.FAILED] * 2
        record = harness.record(ids[0])
        assert (record.attempts, record.error, record.scheduled_at) == (0, None, harness.now)

    def test_a_busy_key_is_passed_over(self, harness: Harness) -> None:
        """A job whose key another live job has taken stays FAILED; the others are retried."""
        busy = harness.failed(tags=("x",), business_key="k")
        free = harness.failed(tags=("x",))
        harness.submit(business_key="k")
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=9, now=harness.now) == [free]
        assert harness.statuses([busy, free]) == [JobStatus.FAILED, JobStatus.PENDING]

    def test_two_claims_on_one_key(self, harness: Harness) -> None:
        """Two failed jobs of one key: the older one takes it, the other stays."""
        first = harness.failed(tags=("x",), business_key="k")
        second = harness.failed(tags=("x",), business_key="k")
        assert harness.store.retry_matching(JobFilter(tags=["x"]), limit=9, now=harness.now) == [first]
        assert harness.status(second) is JobStatus.FAILED


class TestPurgeDeadLetters:
    def test_old_failures_move_to_the_archive(self, harness: Harness) -> None:
        """FAILED before the date: archived, alerts dropped; younger ones stay."""
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
        """A sweep works in portions."""
        for _ in range(3):
            harness.failed()
        harness.advance(days=1)
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 2
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 1
        assert harness.store.purge_dead_letters(before=harness.now, limit=2) == 0


class TestTags:
    def test_tags_of(self, harness: Harness) -> None:
        """Sorted, per job; jobs without tags are left out."""
        tagged, plain = harness.submit(tags=("z", "a", "m")), harness.submit()
        assert dict(harness.store.tags_of([tagged, plain, new_id()])) == {tagged: ("a", "m", "z")}
        assert dict(harness.store.tags_of([])) == {}

    def test_tag_counts(self, harness: Harness) -> None:
        """Most used first, at most the limit."""
        harness.submit_many(3, tags=("often",))
        harness.submit_many(2, tags=("twice", "often"))
        harness.submit(tags=("once",))
        assert list(harness.store.tag_counts().items()) == [("often", 5), ("twice", 2), ("once", 1)]
        assert harness.store.tag_counts(limit=1) == {"often": 5}

    def test_a_tag_given_twice(self, harness: Harness) -> None:
        """A repeated tag is one tag."""
        job_id = harness.submit(tags=("a", "a"))
        assert dict(harness.store.tags_of([job_id])) == {job_id: ("a",)}


class TestSignalWait:
    def test_a_waiting_job_names_its_signal(self, harness: Harness) -> None:
        """Whoever looks at the job sees what it waits for."""
        job_id = harness.waiting(signal=SignalWait(key="order:1:approved"))
        assert harness.record(job_id).signal_key == "order:1:approved"
