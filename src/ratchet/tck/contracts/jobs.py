"""Jobs: insert, read, change, delete."""

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
        """Whatever has not happened yet is empty: no run, no error, no result, no node."""
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
        """Stored times come back in UTC and with their microseconds."""
        at = harness.after(days=3, microseconds=1)
        record = harness.record(harness.submit(scheduled_at=at))
        assert record.scheduled_at == at
        assert record.scheduled_at.utcoffset() == timedelta(0)
        assert record.created_at.utcoffset() == timedelta(0)

    def test_one_answer_per_spec_in_order(self, harness: Harness) -> None:
        """There is one answer for each spec, in the same order."""
        specs = harness.specs(5)
        answers = harness.store.insert(specs, now=harness.now)
        assert [(a.job_id, a.created, a.replaced) for a in answers] == [(s.job_id, True, None) for s in specs]

    def test_nothing_is_a_valid_submission(self, harness: Harness) -> None:
        """No specs, no answers, no job."""
        assert harness.store.insert([], now=harness.now) == []
        assert sum(harness.store.counts().values()) == 0

    def test_thousands_in_one_call(self, harness: Harness) -> None:
        """2,500 jobs with tags go in together, and all of them are stored."""
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
        """A submission that is repeated after a lost answer is answered as stored, and changes nothing."""
        spec = harness.spec(tags=("a",), business_key="k", idempotency_key="i")
        harness.insert([spec])
        before = harness.record(spec.job_id)
        harness.advance(seconds=1)
        answers = harness.store.insert([spec], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(spec.job_id, True)]
        assert harness.record(spec.job_id) == before
        assert sum(harness.store.counts().values()) == 1

    def test_the_same_id_after_its_end_does_not_run_again(self, harness: Harness) -> None:
        """The answer was lost, and the job has already succeeded: the repeated submission does not run it again."""
        spec = harness.spec()
        harness.insert([spec])
        harness.end(harness.claim_job(spec.job_id))
        assert [a.created for a in harness.store.insert([spec], now=harness.now)] == [True]
        assert harness.status(spec.job_id) is JobStatus.SUCCEEDED
        assert harness.claim() == []

    def test_a_repeated_graph_is_stored_once(self, harness: Harness) -> None:
        """The jobs, edges and batch of a repeated submission are not stored twice."""
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
        """A job that is submitted as WAITING is not claimed."""
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
        """The answer is None, not an error."""
        assert harness.store.get(new_id()) is None

    def test_a_running_job_shows_its_claim(self, harness: Harness) -> None:
        """The record shows which node runs the job, and under which token."""
        claim = harness.running()
        record = harness.record(claim.job_id)
        assert (record.status, record.node_id, record.claim_id) == (
            JobStatus.RUNNING,
            claim.node_id,
            claim.claim_id,
        )


class TestDelete:
    def test_a_job_that_is_not_running_goes_with_all_it_left(self, harness: Harness) -> None:
        """In every state but RUNNING, the record, runs, tags and alerts are deleted."""
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
        """Deleting a RUNNING job is False, and its run can still end."""
        claim = harness.running()
        assert not harness.store.delete(claim.job_id)
        harness.end(claim)

    def test_an_unknown_job(self, harness: Harness) -> None:
        """Deleting an unknown job is False, and so is deleting a job a second time."""
        job_id = harness.submit()
        assert not harness.store.delete(new_id())
        assert harness.store.delete(job_id)
        assert not harness.store.delete(job_id)

    def test_a_parent_of_a_join_that_still_waits(self, harness: Harness) -> None:
        """One parent has succeeded and is deleted: the join can never be complete, so it is canceled."""
        one, other, join = harness.spec(), harness.spec(), harness.child(needs=2)
        harness.insert([one, other, join], [harness.edge(one, join), harness.edge(other, join, position=1)])
        harness.end(harness.claim_job(one.job_id))
        assert harness.store.delete(one.job_id)
        assert harness.status(join.job_id) is JobStatus.CANCELED

    def test_a_deleted_job_is_never_claimed(self, harness: Harness) -> None:
        """A deleted job leaves the queue too."""
        assert harness.store.delete(harness.submit())
        assert harness.claim() == []

    def test_its_idempotency_key_stays(self, harness: Harness) -> None:
        """The same key never makes a second job, even after the first one was deleted."""
        job_id = harness.submit(idempotency_key="once")
        assert harness.store.delete(job_id)
        answer = harness.store.insert([harness.spec(idempotency_key="once")], now=harness.now)[0]
        assert (answer.job_id, answer.created) == (job_id, False)

    def test_its_business_key_is_free(self, harness: Harness) -> None:
        """Another job can take the key."""
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


class TestSetPriority:
    def test_the_next_claim_goes_by_it(self, harness: Harness) -> None:
        """The job is taken before those it has overtaken, and after those that have overtaken it."""
        first, second, third = harness.submit_many(3)
        assert harness.store.set_priority(third, Priority.HIGH, now=harness.now)
        assert harness.store.set_priority(first, Priority.LOW, now=harness.now)
        assert harness.record(third).priority is Priority.HIGH
        assert [(job.claim.job_id, job.claim.priority) for job in harness.take(1)] == [(third, Priority.HIGH)]
        assert [job.claim.job_id for job in harness.take(1)] == [second]
        assert [(job.claim.job_id, job.claim.priority) for job in harness.take(1)] == [(first, Priority.LOW)]

    def test_a_level_that_claims_have_passed(self, harness: Harness) -> None:
        """A node has seen later jobs of that priority: an older job that is put among them is found at once."""
        old = harness.submit(priority=Priority.LOW, scheduled_at=harness.after(minutes=-2))
        harness.submit_many(3, priority=Priority.HIGH, scheduled_at=harness.after(minutes=-1))
        other = harness.reopen()
        assert len(harness.claim(2, store=other)) == 2
        assert harness.store.set_priority(old, Priority.HIGH, now=harness.now)
        assert [claim.job_id for claim in harness.claim(1, store=other)] == [old]

    def test_it_stays(self, harness: Harness) -> None:
        """A job keeps its new priority through a pause, through the release of a waiting job, and a hand-back."""
        paused = harness.paused()
        assert harness.store.set_priority(paused, Priority.CRITICAL, now=harness.now)
        assert harness.status(paused) is JobStatus.PAUSED
        assert harness.store.resume(paused, now=harness.now)
        claim = harness.claim_job(paused)
        assert harness.store.hand_back([claim], now=harness.now) == 1
        assert harness.record(paused).priority is Priority.CRITICAL
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        assert harness.store.set_priority(child.job_id, Priority.HIGH, now=harness.now)
        assert harness.status(child.job_id) is JobStatus.WAITING
        harness.end(harness.claim_job(parent.job_id))
        last = harness.submit(priority=Priority.NORMAL)
        assert [one.claim.priority for one in harness.take(2)] == [Priority.CRITICAL, Priority.HIGH]
        assert [one.job_id for one in harness.claim()] == [last]

    def test_nothing_else_changes(self, harness: Harness) -> None:
        """Due time, attempts, keys and tags are what they were."""
        job_id = harness.submit(business_key="k", tags=("t",), scheduled_at=harness.after(hours=1))
        before = harness.record(job_id)
        assert harness.store.set_priority(job_id, Priority.LOWEST, now=harness.now)
        after = harness.record(job_id)
        assert {
            name for name in dir(before) if name[0] != "_" and getattr(before, name) != getattr(after, name)
        } == {"priority"}

    def test_a_job_that_runs_or_has_ended_keeps_its_own(self, harness: Harness) -> None:
        """False, and nothing is written."""
        running = harness.running().job_id
        jobs = [running, harness.succeeded(), harness.failed(), harness.canceled()]
        for job_id in jobs:
            assert not harness.store.set_priority(job_id, Priority.HIGH, now=harness.now)
            assert harness.record(job_id).priority is Priority.NORMAL


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
        """Later jobs have already been claimed: a job that moves before them is found at once."""
        late = harness.submit(scheduled_at=harness.after(days=1))
        harness.end_all(harness.claim(100))
        harness.submit_many(3)
        assert len(harness.claim(2)) == 2
        assert harness.store.reschedule(late, harness.after(days=-1), now=harness.now)
        assert [c.job_id for c in harness.claim(1)] == [late]

    def test_a_paused_job(self, harness: Harness) -> None:
        """The job stays PAUSED; after resuming it is due at the new time."""
        job_id = harness.paused()
        at = harness.after(hours=2)
        assert harness.store.reschedule(job_id, at, now=harness.now)
        assert harness.status(job_id) is JobStatus.PAUSED
        assert harness.store.resume(job_id, now=harness.now)
        assert harness.record(job_id).scheduled_at == at
        assert harness.claim() == []

    def test_a_waiting_job(self, harness: Harness) -> None:
        """Once released, the job is due at its new, later time."""
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
        """RUNNING and ended jobs cannot be moved and keep their time."""
        ids = [harness.running().job_id, harness.succeeded(), harness.failed(), harness.canceled()]
        before = [harness.record(job_id) for job_id in ids]
        assert [harness.store.reschedule(i, harness.after(hours=1), now=harness.now) for i in ids] == [
            False
        ] * 4
        assert [harness.record(job_id) for job_id in ids] == before
        assert not harness.store.reschedule(new_id(), harness.now, now=harness.now)


class TestReplace:
    def test_in_every_state_that_can_be_replaced(self, harness: Harness) -> None:
        """A PENDING, PAUSED or WAITING job is CANCELED and points at the new job, which is stored."""
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
        """The answer is None: the old job is unchanged, and the new one is not stored."""
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
        """Both jobs name the same key: the new one holds it."""
        old = harness.submit(business_key="k")
        spec = harness.spec(business_key="k")
        assert harness.store.replace(old, spec, now=harness.now) is not None
        answer = harness.store.insert([harness.spec(business_key="k", busy=Busy.RETURN)], now=harness.now)[0]
        assert (answer.job_id, answer.created) == (spec.job_id, False)

    def test_dependants_of_the_old_job_are_canceled(self, harness: Harness) -> None:
        """A replaced job is CANCELED, so its dependants are canceled too."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        assert harness.store.replace(parent.job_id, harness.spec(), now=harness.now) is not None
        assert harness.status(child.job_id) is JobStatus.CANCELED


class TestSignalWait:
    def test_a_waiting_job_names_its_signal(self, harness: Harness) -> None:
        """The record shows which signal the job waits for."""
        job_id = harness.waiting(signal=SignalWait(key="order:1:approved"))
        assert harness.record(job_id).signal_key == "order:1:approved"
