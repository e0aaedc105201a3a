"""Stateful: random sequences of verbs; the store and the reference must agree after every step."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ratchet.model.composition import EdgeKind
from ratchet.model.decision import CountCrash, HandBack, Reschedule
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobFilter
from ratchet.model.status import Busy, JobStatus, Priority
from ratchet.tck.harness import Harness
from ratchet.tck.reference import MAX_CRASHES, Reference, ReferenceJob
from ratchet.tck.steps import START

STEPS = 40

_HELD = (JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING)

keys = st.sampled_from([None, None, None, "a", "b"])
delays = st.sampled_from([0, 0, 0, -60, -1800, 30, 1000]).map(lambda seconds: timedelta(seconds=seconds))
fairness_keys = st.sampled_from([None, None, "ann", "bob"])
numbers = st.integers(min_value=0, max_value=10_000)  # which job: taken modulo their number


class JobLives(RuleBasedStateMachine):
    """One store, one reference, and every verb that changes a job's state."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self.harness = harness
        self.nodes = ["node-1", "node-2"]
        self.incarnations = 2

    @initialize(
        jobs=st.lists(
            st.tuples(st.sampled_from(list(Priority)), delays, keys, fairness_keys), min_size=2, max_size=8
        )
    )
    def start(self, jobs: list[tuple[Priority, timedelta, str | None, str | None]]) -> None:
        """Every sequence begins with two nodes and a few jobs."""
        self.harness.close()
        self.harness.now = START
        self.harness.store = self.harness.open()
        self.reference = Reference(START)
        for node in self.nodes:
            self.harness.register(node)
        for priority, delay, key, tenant in jobs:
            self.submit(priority=priority, delay=delay, expiry=None, key=key, busy=Busy.RETURN, tenant=tenant)

    # --- which job ------------------------------------------------------------------------------

    def any_job(self, number: int) -> ReferenceJob:
        jobs = list(self.reference.jobs.values())
        return jobs[number % len(jobs)]

    def running_jobs(self) -> list[ReferenceJob]:
        return [job for job in self.reference.jobs.values() if job.status is JobStatus.RUNNING]

    def has_jobs(self) -> bool:
        return bool(self.reference.jobs)

    def has_running(self) -> bool:
        return bool(self.running_jobs())

    @property
    def now(self) -> datetime:
        return self.harness.now

    # --- verbs ----------------------------------------------------------------------------------

    @rule(
        priority=st.sampled_from(list(Priority)),
        delay=delays,
        expiry=st.sampled_from([None, None, 20, 500]),
        key=keys,
        busy=st.sampled_from([Busy.RAISE, Busy.RETURN]),
        tenant=fairness_keys,
    )
    def submit(
        self,
        priority: Priority,
        delay: timedelta,
        expiry: int | None,
        key: str | None,
        busy: Busy,
        tenant: str | None,
    ) -> None:
        expires_at = None if expiry is None else self.now + timedelta(seconds=expiry)
        spec = self.harness.spec(
            priority=priority,
            scheduled_at=self.now + delay,
            expires_at=expires_at,
            business_key=key,
            busy=busy,
            fairness_key=tenant,
        )
        holder = None if key is None else self.reference.holder(key)
        if holder is not None and busy is Busy.RAISE:
            with pytest.raises(BusinessKeyBusy) as caught:
                self.harness.store.insert([spec], now=self.now)
            assert caught.value.holder == holder
            return
        (answer,) = self.harness.store.insert([spec], now=self.now)
        if holder is not None:
            assert (answer.job_id, answer.created, busy) == (holder, False, Busy.RETURN)
            return
        assert (answer.job_id, answer.created) == (spec.job_id, True)
        self.reference.submit(
            ReferenceJob(
                spec.job_id,
                priority,
                spec.scheduled_at,
                expires_at=expires_at,
                key=key,
                fairness_key=tenant,
            )
        )

    @precondition(has_jobs)
    @rule(
        number=numbers,
        kind=st.sampled_from([EdgeKind.SUCCESS, EdgeKind.FAILURE, EdgeKind.END]),
        delay=delays,
    )
    def submit_dependant(self, number: int, kind: EdgeKind, delay: timedelta) -> None:
        parent = self.any_job(number)
        spec = self.harness.child(scheduled_at=self.now + delay)
        self.harness.insert([spec], [self.harness.edge(parent.job_id, spec, kind)])
        self.reference.submit(
            ReferenceJob(spec.job_id, spec.priority, spec.scheduled_at, parent=parent.job_id, kind=kind)
        )

    @rule(
        number=numbers,
        limit=st.integers(1, 4),
        suspects=st.sampled_from([False, False, False, True]),
        after=st.sampled_from([None, "", "ann", "bob", "b"]),
    )
    def claim(self, number: int, limit: int, suspects: bool, after: str | None) -> None:
        node = self.nodes[number % len(self.nodes)]
        claims = self.harness.claim(limit, node_id=node, suspects=suspects, after=after)
        expected = self.reference.in_claim_order(suspects=suspects, after=after)
        assert [c.job_id for c in claims] == expected[:limit]
        for claim in claims:
            job = self.reference.jobs[claim.job_id]
            assert (claim.attempts, claim.crashes, claim.scheduled_at) == (job.attempts, job.crashes, job.due)
            self.reference.started_by(claim)

    @precondition(has_running)
    @rule(
        number=numbers,
        end=st.sampled_from(["succeed", "retry", "fail", "postpone", "hand back", "crash"]),
        delay=delays,
    )
    def complete(self, number: int, end: str, delay: timedelta) -> None:
        running = self.running_jobs()
        job = running[number % len(running)]
        assert job.claim is not None
        at = self.now + delay
        job.started = job.started or end != "hand back"
        match end:
            case "succeed":
                self.harness.end(job.claim)
                self.reference.succeed(job)
            case "fail":
                self.harness.end(job.claim, self.harness.failure())
                self.reference.fail(job)
            case "retry":
                self.harness.end(job.claim, self.harness.another_try(at))
                self.reference.requeue(job, at=at, counted=True)
            case "postpone":
                self.harness.end(job.claim, Reschedule(at=at))
                self.reference.requeue(job, at=at)
            case "hand back":
                self.harness.end(job.claim, HandBack(), started_at=None)
                self.reference.requeue(job)
            case "crash":
                self.harness.end(job.claim, CountCrash(detail="boom", max_crashes=MAX_CRASHES))
                self.reference.crash(job)

    @precondition(has_jobs)
    @rule(number=numbers)
    def complete_with_a_stale_claim(self, number: int) -> None:
        job = self.any_job(number)
        assert not self.harness.complete(self.harness.forged_claim(job.job_id)).won

    @precondition(has_jobs)
    @rule(number=numbers, verb=st.sampled_from(["pause", "resume", "retry", "cancel", "delete"]))
    def control(self, number: int, verb: str) -> None:
        """What a person does to a job."""
        job = self.any_job(number)
        match verb:
            case "pause":
                self._pause(job)
            case "resume":
                self._resume(job)
            case "retry":
                self._retry(job)
            case "cancel":
                self._cancel(job)
            case "delete":
                self._delete(job)

    def _cancel(self, job: ReferenceJob) -> None:
        canceled = self.harness.store.cancel(job.job_id, reason="r", now=self.now)
        assert bool(canceled) == self.reference.cancel(job)

    def _pause(self, job: ReferenceJob) -> None:
        assert self.harness.store.pause(job.job_id, now=self.now) == self.reference.pause(job)

    def _resume(self, job: ReferenceJob) -> None:
        assert self.harness.store.resume(job.job_id, now=self.now) == self.reference.resume(job)

    def _retry(self, job: ReferenceJob) -> None:
        holder = None if job.key is None else self.reference.holder(job.key)
        can = self.reference.can_retry(job)
        if can and holder is not None:
            with pytest.raises(BusinessKeyBusy) as caught:
                self.harness.store.retry(job.job_id, now=self.now)
            assert caught.value.holder == holder
            return
        assert self.harness.store.retry(job.job_id, now=self.now) == can
        if can:
            self.reference.retry(job)

    @precondition(has_jobs)
    @rule(number=numbers, delay=delays)
    def reschedule(self, number: int, delay: timedelta) -> None:
        job, at = self.any_job(number), self.now + delay
        moved = self.harness.store.reschedule(job.job_id, at, now=self.now)
        assert moved == self.reference.reschedule(job, at)

    def _delete(self, job: ReferenceJob) -> None:
        waiting = [child for child in self.reference.jobs.values() if child.status is JobStatus.WAITING]
        assert self.harness.store.delete(job.job_id) == self.reference.delete(job)
        for child in waiting:
            # `delete` is not told the time, so the store says which one it took
            if child.status is JobStatus.PENDING:
                child.due = self.harness.record(child.job_id).scheduled_at

    @rule(seconds=st.sampled_from([1, 30, 60, 900, 4000]))
    def time_passes(self, seconds: int) -> None:
        """Time passes, and whatever is due to end by itself ends."""
        self.reference.now = self.harness.advance(seconds=seconds)
        self._expire()
        self._settle()

    def _expire(self) -> None:
        ended = self.harness.store.expire(now=self.now, limit=1000)
        assert {job.job_id for job in ended if job.status is JobStatus.CANCELED} == self.reference.expire()

    def _settle(self) -> None:
        self.harness.store.settle(list(self.reference.still_running.values()), now=self.now)
        self.reference.still_running.clear()

    @rule(number=numbers)
    def rescue(self, number: int) -> None:
        node = self.nodes[number % len(self.nodes)]
        if any(job.expires_at for job in self.reference.running_on(node)):
            return  # only the node knew whether such a job had started, and it is dead
        rescue = self.harness.rescue(node, max_crashes=MAX_CRASHES)
        lost = {job.job_id for job in self.reference.running_on(node)}
        assert {*rescue.requeued, *rescue.suspects, *rescue.dead_lettered} == lost
        self.reference.node_died(node)
        self.incarnations += 1
        self.nodes[self.nodes.index(node)] = self.harness.register(f"node-{self.incarnations}")

    # --- they agree -----------------------------------------------------------------------------

    @invariant()
    def store_and_reference_agree(self) -> None:
        """Status, attempts, crashes, due time and claim of every job agree, and so do the counts."""
        stored = {record.job_id: record for record in self.harness.store.find(JobFilter(), limit=1000)}
        assert stored.keys() == self.reference.jobs.keys()
        for job in self.reference.jobs.values():
            record = stored[job.job_id]
            assert (record.status, record.attempts, record.crashes) == (job.status, job.attempts, job.crashes)
            assert record.claim_id == (job.claim.claim_id if job.claim else None)
            assert record.paused_from == job.paused_from
            if job.status in _HELD and job.paused_from is not JobStatus.FAILED:
                assert record.scheduled_at == job.due
        counted = dict.fromkeys(JobStatus, 0)
        for job in self.reference.jobs.values():
            counted[job.status] += 1
        assert self.harness.store.counts() == counted


class TestStateful:
    def test_random_lives_agree_with_the_reference(self, harness: Harness) -> None:
        """Any sequence of verbs leaves the store in the state that the reference predicts."""

        class Lives(JobLives):
            def __init__(self) -> None:
                super().__init__(harness)

        run_state_machine_as_test(
            Lives,
            settings=settings(
                max_examples=harness.random_lives,
                stateful_step_count=STEPS,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
