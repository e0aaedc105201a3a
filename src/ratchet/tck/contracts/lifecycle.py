"""Lifecycle: every move of the state machine is possible, and every other move is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.composition import EdgeKind
from ratchet.model.decision import Decision, VerdictKind
from ratchet.model.job import SignalWait
from ratchet.model.status import TRANSITIONS, JobStatus, Transition, Trigger, sources, targets
from ratchet.tck.harness import Harness

#: The parents of the job under test have their own queue, so that claims for the job leave them alone.
PARENTS = "parents"
MINE = frozenset({"default"})

DEADLINE = timedelta(hours=1)


@dataclass
class Subject:
    """
    A job in a given state, with the means to try every trigger on it.

    It also depends on *parent*, which is RUNNING: ending that parent tries to release the job, to cancel
    it, to fail it by its condition, and to revive it.
    """

    harness: Harness
    job_id: UUID
    parent: JobClaim
    claim: JobClaim | None = None

    def run(self) -> JobClaim:
        """Claim the job, which is PENDING."""
        (self.claim,) = self.harness.claim(queues=MINE)
        assert self.claim.job_id == self.job_id
        return self.claim

    def best_claim(self) -> JobClaim:
        """The claim that a worker would use: the live one, else one that was never given out."""
        if self.harness.status(self.job_id) is JobStatus.RUNNING and self.claim is not None:
            return self.claim
        return self.harness.forged_claim(self.job_id)

    def end(self, decision: Decision) -> bool:
        """Try to end a run of the job."""
        return self.harness.complete(self.best_claim(), decision).won

    def end_parent(self, decision: Decision, verdict: VerdictKind | None = None) -> None:
        """End the parent, with the verdict of its condition on the job."""
        verdicts = () if verdict is None else (self.harness.verdict(self.job_id, verdict),)
        self.harness.end(self.parent, decision, verdicts=verdicts)


def waiting(harness: Harness) -> Subject:
    """WAITING for a condition on its parent."""
    parent, child = harness.spec(queue=PARENTS), harness.child()
    harness.insert([parent, child], [harness.edge(parent, child, EdgeKind.CONDITION)])
    return Subject(harness, child.job_id, harness.claim_job(parent.job_id))


def pending(harness: Harness) -> Subject:
    """Released by its first parent, while the second one is still running."""
    first, second = harness.specs(2, queue=PARENTS)
    child = harness.child(needs=1)
    edges = [harness.edge(first, child), harness.edge(second, child, EdgeKind.CONDITION, position=1)]
    harness.insert([first, second, child], edges)
    harness.end(harness.claim_job(first.job_id))
    return Subject(harness, child.job_id, harness.claim_job(second.job_id, queues=frozenset({PARENTS})))


def running(harness: Harness) -> Subject:
    subject = pending(harness)
    subject.run()
    return subject


def succeeded(harness: Harness) -> Subject:
    subject = pending(harness)
    harness.end(subject.run())
    return subject


def failed(harness: Harness) -> Subject:
    subject = pending(harness)
    harness.end(subject.run(), harness.failure())
    return subject


def paused(harness: Harness) -> Subject:
    subject = pending(harness)
    assert harness.store.pause(subject.job_id, now=harness.now)
    return subject


def paused_from_failed(harness: Harness) -> Subject:
    subject = failed(harness)
    assert harness.store.pause(subject.job_id, now=harness.now)
    return subject


def canceled(harness: Harness) -> Subject:
    subject = pending(harness)
    assert harness.store.cancel(subject.job_id, reason="not needed", now=harness.now)
    return subject


def canceled_by_parent(harness: Harness) -> Subject:
    subject = waiting(harness)
    subject.end_parent(harness.failure())
    return subject


STATES: dict[str, tuple[JobStatus, Callable[[Harness], Subject]]] = {
    "PENDING": (JobStatus.PENDING, pending),
    "RUNNING": (JobStatus.RUNNING, running),
    "SUCCEEDED": (JobStatus.SUCCEEDED, succeeded),
    "FAILED": (JobStatus.FAILED, failed),
    "PAUSED": (JobStatus.PAUSED, paused),
    "PAUSED from FAILED": (JobStatus.PAUSED, paused_from_failed),
    "CANCELED": (JobStatus.CANCELED, canceled),
    "CANCELED by parent": (JobStatus.CANCELED, canceled_by_parent),
    "WAITING": (JobStatus.WAITING, waiting),
}


def claim(subject: Subject) -> bool:
    return any(c.job_id == subject.job_id for c in subject.harness.claim(queues=MINE))


def hand_back(subject: Subject) -> bool:
    return subject.harness.store.hand_back([subject.best_claim()], now=subject.harness.now) == 1


def rescue(subject: Subject) -> bool:
    harness = subject.harness
    node = subject.claim.node_id if subject.claim else "node-1"
    harness.store.hand_back([subject.parent], now=harness.now)  # only the job itself is to be rescued
    harness.register(node)
    rescued = harness.rescue(node)
    return subject.job_id in rescued.requeued


def release(subject: Subject) -> bool:
    subject.end_parent(subject.harness.success(), VerdictKind.TAKEN)
    return False


def condition_error(subject: Subject) -> bool:
    subject.end_parent(subject.harness.success(), VerdictKind.ERROR)
    return False


def revive(subject: Subject) -> bool:
    harness = subject.harness
    if harness.status(subject.parent.job_id) is JobStatus.RUNNING:
        subject.end_parent(harness.failure())
    assert harness.store.retry(subject.parent.job_id, now=harness.now)
    return False


def signal_timeout(subject: Subject) -> bool:
    harness = subject.harness
    ended = harness.store.expire(now=harness.now + 2 * DEADLINE, limit=100)
    return any(job.job_id == subject.job_id for job in ended)


def cancel(subject: Subject) -> bool:
    harness = subject.harness
    return bool(harness.store.cancel(subject.job_id, reason="r", now=harness.now))


#: How each trigger is tried; the answer is True if the store says that it changed the job.
TRIGGERS: dict[Trigger, Callable[[Subject], bool]] = {
    Trigger.CLAIM: claim,
    Trigger.SUCCESS: lambda s: s.end(s.harness.success()),
    Trigger.RETRY: lambda s: s.end(s.harness.another_try()),
    Trigger.FAILURE: lambda s: s.end(s.harness.failure()),
    Trigger.HAND_BACK: hand_back,
    Trigger.RESCUE: rescue,
    Trigger.PAUSE: lambda s: s.harness.store.pause(s.job_id, now=s.harness.now),
    Trigger.RESUME: lambda s: s.harness.store.resume(s.job_id, now=s.harness.now),
    Trigger.CANCEL: cancel,
    Trigger.MANUAL_RETRY: lambda s: s.harness.store.retry(s.job_id, now=s.harness.now),
    Trigger.RELEASE: release,
    Trigger.SIGNAL_TIMEOUT: signal_timeout,
    Trigger.CONDITION_ERROR: condition_error,
    Trigger.REVIVE: revive,
}

#: Where a trigger leads if that depends on how the job came into its state.
DEPENDS: dict[tuple[str, Trigger], JobStatus] = {
    ("PAUSED", Trigger.RESUME): JobStatus.PENDING,
    ("PAUSED from FAILED", Trigger.RESUME): JobStatus.FAILED,
    ("PAUSED", Trigger.MANUAL_RETRY): JobStatus.PAUSED,  # it has not failed
    ("PAUSED from FAILED", Trigger.MANUAL_RETRY): JobStatus.PENDING,  # `JobRetryStore.retry` says so
    ("CANCELED", Trigger.REVIVE): JobStatus.CANCELED,  # a person canceled it, not the failure
    ("WAITING", Trigger.SIGNAL_TIMEOUT): JobStatus.WAITING,  # it waits for its parent, not for a signal
}

#: These cannot be tried in that state: the parent that would do it has ended, or trying it ends the parent.
NOT_APPLICABLE = {
    ("WAITING", Trigger.REVIVE),
    ("CANCELED by parent", Trigger.RELEASE),
    ("CANCELED by parent", Trigger.CONDITION_ERROR),
}

CASES = [
    (state, trigger) for state in STATES for trigger in Trigger if (state, trigger) not in NOT_APPLICABLE
]


def expected_status(state: str, trigger: Trigger) -> JobStatus:
    """Where the trigger leads from this state; the state itself if the table has no such move."""
    source = STATES[state][0]
    if (state, trigger) in DEPENDS:
        return DEPENDS[state, trigger]
    reachable = targets(source, trigger)
    assert len(reachable) < 2, (
        f"{state} and {trigger}: the table allows several states, so DEPENDS must name one"
    )
    return next(iter(reachable), source)


class TestStateMachine:
    @pytest.mark.parametrize(
        ("state", "trigger"), [pytest.param(s, t, id=f"{s}-{t.value}") for s, t in CASES]
    )
    def test_every_state_and_every_trigger(self, harness: Harness, state: str, trigger: Trigger) -> None:
        """A legal move ends where the table says; an illegal one is refused and does not change the job."""
        source, make = STATES[state]
        subject = make(harness)
        before = harness.record(subject.job_id)
        assert before.status is source
        expected = expected_status(state, trigger)
        answered = TRIGGERS[trigger](subject)
        after = harness.record(subject.job_id)
        assert after.status is expected
        if expected is source:
            assert after == before
            # pausing a paused job is True: the job is as the caller wants it
            assert not answered or (source is JobStatus.PAUSED and trigger is Trigger.PAUSE)
        elif trigger not in (Trigger.RELEASE, Trigger.CONDITION_ERROR, Trigger.REVIVE):
            assert answered

    def test_a_signal_s_deadline_only_counts_while_waiting(self, harness: Harness) -> None:
        """A WAITING job fails at its deadline; a job that got its signal is left alone, in every later state."""
        late, got, ran = (
            harness.waiting(signal=SignalWait(key=key, deadline=harness.now + DEADLINE)) for key in "abc"
        )
        for key in "bc":
            harness.store.send_signal(harness.signal(key), now=harness.now)
        harness.end(harness.claim_job(ran))
        before = [harness.record(job_id) for job_id in (got, ran)]
        harness.now += DEADLINE
        ended = harness.store.expire(now=harness.now, limit=10)
        assert [job.job_id for job in ended] == [late]
        assert harness.status(late) is JobStatus.FAILED
        assert [harness.record(job_id) for job_id in (got, ran)] == before

    def test_every_edge_of_the_table_was_taken(self) -> None:
        """The cases above and the signal's deadline cover the whole table: no move is left untested."""
        taken = {Transition(JobStatus.WAITING, Trigger.SIGNAL_TIMEOUT, JobStatus.FAILED)}
        for state, trigger in CASES:
            source, target = STATES[state][0], expected_status(state, trigger)
            if target in targets(source, trigger):
                taken.add(Transition(source, trigger, target))
        assert set(TRANSITIONS) <= taken

    def test_every_trigger_has_a_source(self) -> None:
        """Every trigger of the model is tried, and each has a state to start from."""
        assert set(TRIGGERS) == set(Trigger)
        assert all(sources(trigger) for trigger in Trigger)


class TestStatusCounts:
    def test_counts_follow_every_move(self, harness: Harness) -> None:
        """At each step of its life the job counts once, in its current state."""

        def alone(status: JobStatus) -> None:
            assert harness.store.counts() == {**dict.fromkeys(JobStatus, 0), status: 1}

        job_id = harness.submit()
        alone(JobStatus.PENDING)
        harness.store.pause(job_id, now=harness.now)
        alone(JobStatus.PAUSED)
        harness.store.resume(job_id, now=harness.now)
        claim_ = harness.claim_job(job_id)
        alone(JobStatus.RUNNING)
        harness.end(claim_, harness.failure())
        alone(JobStatus.FAILED)
        harness.store.retry(job_id, now=harness.now)
        alone(JobStatus.PENDING)
        harness.end(harness.claim_job(job_id))
        alone(JobStatus.SUCCEEDED)
