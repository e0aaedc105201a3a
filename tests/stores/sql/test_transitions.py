"""Transitions in SQL: races on real databases, and the invariant of the two tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.composition import EdgeKind
from ratchet.model.decision import CountCrash, Decision, HandBack, Reschedule, Retry, VerdictKind
from ratchet.model.job import ExecutionStatus, JobFilter, SignalWait
from ratchet.model.status import JobStatus, JobType
from tests.stores.sql_stores import KINDS, SqlSteps, at_once
from tests.stores.sql_transitions import claimed, intact


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with intact(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=["file", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store that several nodes can open."""
    with intact(request.param, request, tmp_path) as found:
        yield found


ROUNDS = 12


class TestCompletionRace:
    def test_two_completions_of_one_claim(self, shared: SqlSteps) -> None:
        """Sent twice at once, as after a lost answer: one is written, the other learns that it had won."""
        for _ in range(ROUNDS):
            claim = shared.running()
            completion = shared.completion(claim)
            answers = at_once(*[lambda c=completion: shared.store.complete([c], now=shared.now)[0]] * 4)
            assert [answer.won for answer in answers] == [True] * 4
            assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
            assert len(shared.store.executions(claim.job_id)) == 1
            assert shared.record(claim.job_id).attempts == 1

    def test_twice_in_one_call(self, steps: SqlSteps) -> None:
        """The second of two equal completions is the replay of the first; an old claim beside it loses."""
        claim = steps.running()
        answers = steps.store.complete(
            [
                steps.completion(steps.forged_claim(claim.job_id)),
                steps.completion(claim),
                steps.completion(claim),
            ],
            now=steps.now,
        )
        assert [(answer.won, answer.replayed) for answer in answers] == [
            (False, False),
            (True, False),
            (True, True),
        ]

    @pytest.mark.parametrize("kind", ["success", "failure", "retry"])
    def test_cancel_against_completion(self, shared: SqlSteps, kind: str) -> None:
        """Whoever commits first has it: never both, and the other is told."""
        for _ in range(ROUNDS):
            claim = shared.running(business_key="k")
            decision = {
                "success": shared.success(),
                "failure": shared.failure(),
                "retry": shared.another_try(),
            }[kind]
            completion = shared.completion(claim, decision)
            answers: list[object] = at_once(
                lambda c=completion: shared.store.complete([c], now=shared.now)[0].won,
                lambda c=claim: [
                    e.previous for e in shared.store.cancel(c.job_id, reason="r", now=shared.now)
                ],
            )
            won, canceled = answers
            status = shared.status(claim.job_id)
            if kind == "retry" and won and canceled:  # requeued first, then canceled while PENDING
                assert (canceled, status) == ([JobStatus.PENDING], JobStatus.CANCELED)
            else:
                assert bool(won) != bool(canceled)
                assert (status is JobStatus.CANCELED) == bool(canceled)
            shared.store.cancel(claim.job_id, reason="r", now=shared.now)
            shared.store.settle([claim], now=shared.now)
            assert shared.sql("SELECT job_id FROM scheduler_business_key_reservation") == []

    def test_bulk_cancel_against_mixed_completions(self, shared: SqlSteps) -> None:
        """Sets that overlap in any order: no deadlock reaches a caller, each job ends once."""
        for number in range(ROUNDS):
            tag = f"t{number}"
            claims = claimed(shared, 24, tags=(tag,))
            halves = [
                [shared.completion(c, None if n % 3 else shared.failure()) for n, c in enumerate(part)]
                for part in (claims[::2][::-1], claims[1::2])
            ]

            def complete(half: list[object]) -> Callable[[], object]:
                return lambda: shared.store.complete(half, now=shared.now)  # type: ignore[arg-type]

            def cancel(tag: str = tag) -> object:
                return shared.store.cancel_matching(
                    JobFilter(tags=[tag]), limit=99, reason="r", now=shared.now
                )

            at_once(complete(halves[0]), complete(halves[1]), cancel)  # type: ignore[arg-type]
            ended = shared.statuses([claim.job_id for claim in claims])
            assert all(status.is_terminal for status in ended)
            runs = [shared.store.executions(claim.job_id, uncounted=True) for claim in claims]
            assert [len(found) for found in runs] == [1] * 24

    def test_a_stale_completion_against_the_next_run(self, shared: SqlSteps) -> None:
        """Retried and claimed again while the old run reports: the old claim changes nothing."""
        for _ in range(ROUNDS):
            old = shared.running()
            shared.end(old, shared.another_try())
            new = shared.claim_job(old.job_id)
            completions = [shared.completion(old, shared.failure("stale")), shared.completion(new)]
            answers = at_once(
                *[lambda c=c: shared.store.complete([c], now=shared.now)[0] for c in completions]
            )
            assert [answer.won for answer in answers] == [True, True]  # the old one had won its retry
            assert [answer.replayed for answer in answers] == [True, False]
            assert shared.status(new.job_id) is JobStatus.SUCCEEDED

    def test_pause_and_claim(self, shared: SqlSteps) -> None:
        """Paused or claimed, never both; the other verb says so."""
        for _ in range(ROUNDS):
            job_id = shared.submit()
            paused, claims = at_once(
                lambda j=job_id: shared.store.pause(j, now=shared.now),
                lambda: [claim.job_id for claim in shared.claim()],
            )
            assert paused != bool(claims)
            assert shared.status(job_id) is (JobStatus.PAUSED if paused else JobStatus.RUNNING)
            shared.store.cancel(job_id, reason="r", now=shared.now)


class TestCodeThatStillRuns:
    def test_a_held_back_retry_gets_its_own_time_again(self, steps: SqlSteps) -> None:
        """Held for a minute at most; when the code has ended, due when the retry said."""
        claim = steps.running()
        at = steps.after(seconds=5)
        steps.end(claim, Retry(at=at, error=steps.error()), still_running=True)
        assert steps.record(claim.job_id).scheduled_at == steps.after(seconds=60)
        steps.store.settle([claim], now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_a_retry_later_than_the_hold_keeps_its_time(self, steps: SqlSteps) -> None:
        """The hold never makes a retry earlier."""
        claim = steps.running()
        at = steps.after(hours=1)
        steps.end(claim, Retry(at=at, error=steps.error()), still_running=True)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_rescheduled_while_held_back(self, steps: SqlSteps) -> None:
        """A person's new time counts, but not before the code of the old run has ended."""
        claim = steps.running()
        steps.end(claim, steps.another_try(), still_running=True)
        at = steps.after(seconds=10)
        assert steps.store.reschedule(claim.job_id, at, now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == steps.after(seconds=60)
        steps.store.settle([claim], now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_canceled_while_held_back(self, steps: SqlSteps) -> None:
        """The key stays with the run whose code still works, and goes when that has ended."""
        claim = steps.running(business_key="k")
        steps.end(claim, steps.another_try(), still_running=True)
        steps.store.cancel(claim.job_id, reason="r", now=steps.now)
        held = "SELECT claim_id, node_id FROM scheduler_business_key_reservation WHERE business_key = 'k'"
        assert steps.sql(held) == [(claim.claim_id, claim.node_id)]
        steps.store.settle([claim], now=steps.now)
        assert steps.sql(held) == []

    def test_retried_by_hand_while_its_code_still_runs(self, steps: SqlSteps) -> None:
        """The job takes its own key again, and the end of the old code takes nothing from it."""
        claim = steps.running(business_key="k")
        steps.end(claim, steps.failure(), still_running=True)
        assert steps.store.retry(claim.job_id, now=steps.now)
        steps.store.settle([claim], now=steps.now)
        assert steps.sql("SELECT job_id FROM scheduler_business_key_reservation") == [(claim.job_id,)]
        steps.end(steps.claim_job(claim.job_id))
        assert steps.sql("SELECT job_id FROM scheduler_business_key_reservation") == []

    def test_the_permit_of_a_run_that_goes_on(self, steps: SqlSteps) -> None:
        """`settle` said of a run that still holds its job frees nothing."""
        steps.store.set_limit("gateway", concurrent=1, now=steps.now)
        claim = steps.running(resource="gateway")
        steps.store.settle([claim], now=steps.now)
        assert [limit.held for limit in steps.store.limits()] == [1]
        steps.end(claim)
        assert [limit.held for limit in steps.store.limits()] == [0]


class TestReplay:
    @pytest.mark.parametrize("kind", ["success", "retry", "failure", "reschedule", "crash", "hand back"])
    def test_an_answer_that_was_lost(self, steps: SqlSteps, kind: str) -> None:
        """Each decision finds its own run when it is sent again, and changes nothing."""
        decisions: dict[str, Decision] = {
            "success": steps.success(),
            "retry": Retry(at=steps.after(hours=1), error=steps.error()),
            "failure": steps.failure(),
            "reschedule": Reschedule(at=steps.after(hours=1)),
            "crash": CountCrash(detail="killed", max_crashes=3),
            "hand back": HandBack(),
        }
        claim = steps.running()
        steps.end(claim, decisions[kind])
        before = steps.record(claim.job_id)
        answer = steps.complete(claim, decisions[kind])
        assert (answer.won, answer.replayed) == (True, True)
        assert steps.record(claim.job_id) == before
        assert len(steps.store.executions(claim.job_id, uncounted=True)) == 1

    def test_a_canceled_run_has_not_won(self, steps: SqlSteps) -> None:
        """Its row in the history was written by the cancellation, not by its completion."""
        claim = steps.running()
        steps.store.cancel(claim.job_id, reason="r", now=steps.now)
        assert not steps.complete(claim).won
        (run,) = steps.store.executions(claim.job_id, uncounted=True)
        assert (run.status, run.counted) == (ExecutionStatus.CANCELED, False)


class TestUnseenFailures:
    def callbacks(self, steps: SqlSteps, parent: UUID) -> list[str]:
        """The targets of the callbacks of a job."""
        found = steps.store.find(JobFilter(parent_id=parent, types=[JobType.CALLBACK]))
        return [record.target for record in found]

    def test_a_condition_that_raised(self, steps: SqlSteps) -> None:
        """The branch's own job failed on no worker; its on_failure is called all the same."""
        parent, child = steps.spec(), steps.child(on_failure="shop.jobs:alarm")
        steps.insert([parent, child], [steps.edge(parent, child, EdgeKind.CONDITION)])
        claim = steps.claim_job(parent.job_id)
        steps.end(claim, verdicts=(steps.verdict(child, VerdictKind.ERROR),))
        assert self.callbacks(steps, child.job_id) == ["shop.jobs:alarm"]

    def test_one_crash_too_many(self, steps: SqlSteps) -> None:
        """A crash that uses up the budget calls on_failure once, unless the completion brings its own callback."""
        claim = steps.running(on_failure="shop.jobs:alarm")
        assert steps.end(claim, CountCrash(detail="killed", max_crashes=1)).dead_lettered
        assert self.callbacks(steps, claim.job_id) == ["shop.jobs:alarm"]
        claim = steps.running(on_failure="shop.jobs:alarm")
        own = steps.spec(type=JobType.CALLBACK, parent_id=claim.job_id, target="shop.jobs:own")
        steps.end(claim, CountCrash(detail="killed", max_crashes=1), callback=own)
        assert self.callbacks(steps, claim.job_id) == ["shop.jobs:own"]

    def test_a_signal_that_did_not_come(self, steps: SqlSteps) -> None:
        """Past its deadline the job fails in a sweep, and its on_failure is called."""
        wait = SignalWait(key="go", deadline=steps.after(minutes=1))
        job_id = steps.waiting(signal=wait, on_failure="shop.jobs:alarm")
        steps.advance(minutes=2)
        assert [ended.status for ended in steps.store.expire(now=steps.now, limit=9)] == [JobStatus.FAILED]
        assert self.callbacks(steps, job_id) == ["shop.jobs:alarm"]
