"""Transitions in SQL: what completions cost, the invariant of the two tables, and races on real databases."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.composition import EdgeKind
from ratchet.model.decision import (
    CompletionAnswer,
    CountCrash,
    Decision,
    HandBack,
    Reschedule,
    Retry,
    VerdictKind,
)
from ratchet.model.job import ExecutionStatus, JobFilter, SignalWait
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.sql.completions import ORDER_QUEUE_ROWS
from ratchet.stores.sql.locked import LOCK_HELD_ROWS, LOCK_JOBS
from ratchet.stores.sql.requeues import REQUEUE
from ratchet.stores.sql.runs import success_row
from ratchet.stores.sql.successes import SUCCEED
from tests.unit.stores.counting import Statements
from tests.unit.stores.sql_stores import KINDS, SqlSteps, at_once, opened

ROUNDS = 12

# A queue row exists exactly while the cold row says PENDING, and nothing waits in a state it has left.
BROKEN_ROWS = """
    SELECT j.job_id
      FROM scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
     WHERE (j.status = 'PENDING') <> (q.job_id IS NOT NULL)
        OR (j.held_at IS NOT NULL) <> (j.status IN ('PAUSED', 'WAITING'))
        OR (j.dead_lettered_at IS NOT NULL) <> (j.status = 'FAILED')
        OR (j.status IN ('SUCCEEDED', 'FAILED', 'CANCELED')) <> (j.finished_at IS NOT NULL AND j.status <> 'PAUSED')
        OR (q.status = 'RUNNING') <> (q.claim_id IS NOT NULL)
"""

STRAY_ROWS = (
    "SELECT q.job_id FROM scheduler_job_queue q WHERE q.job_id NOT IN (SELECT j.job_id FROM scheduler_job j)"
)


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened(request.param, request, tmp_path) as found:
        yield found
        assert found.sql(BROKEN_ROWS) == []
        assert found.sql(STRAY_ROWS) == []


@pytest.fixture(params=["file", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    """A store that several nodes can open."""
    with opened(request.param, request, tmp_path) as found:
        yield found
        assert found.sql(BROKEN_ROWS) == []
        assert found.sql(STRAY_ROWS) == []


@pytest.fixture
def postgresql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened("postgresql", request, tmp_path) as found:
        yield found


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


def claimed(steps: SqlSteps, count: int, **changes: object) -> list[JobClaim]:
    """So many RUNNING jobs."""
    steps.submit_many(count, **changes)
    claims = steps.claim()
    assert len(claims) == count
    return claims


class TestCost:
    def test_plain_successes_are_one_statement_on_postgresql(
        self, postgresql: SqlSteps, statements: Statements
    ) -> None:
        """Queue rows, cold rows and runs of two hundred jobs change in one statement."""
        claims = claimed(postgresql, 200)
        assert len(statements.of(lambda: postgresql.end_all(claims))) == 1

    def test_a_node_that_submits_nothing_learns_its_streams_once(
        self, postgresql: SqlSteps, statements: Statements
    ) -> None:
        """A worker's first completion looks up the stream; from the second on it is one statement."""
        node = postgresql.another()
        first, second = claimed(postgresql, 2)
        node.complete([postgresql.completion(first)], now=postgresql.now)
        completion = postgresql.completion(second)
        assert len(statements.of(lambda: node.complete([completion], now=postgresql.now))) == 1

    def test_ids_are_neither_hashed_nor_compared(
        self, postgresql: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both are Python code in a UUID: a claim and a completion of two hundred plain jobs do without."""
        postgresql.submit_many(200)
        calls: list[str] = []
        for name in ("__hash__", "__eq__", "__lt__"):
            original: Callable[..., Any] = getattr(UUID, name)

            def counted(*ids: Any, name: str = name, original: Callable[..., Any] = original) -> Any:
                calls.append(name)
                return original(*ids)

            monkeypatch.setattr(UUID, name, counted)
        postgresql.end_all(postgresql.claim())
        assert len(calls) < 20

    @pytest.mark.parametrize("kind", ["success", "retry", "failure", "hand back"])
    def test_the_number_of_jobs_does_not_matter(
        self, steps: SqlSteps, statements: Statements, kind: str
    ) -> None:
        """A completion of two hundred runs sends as many statements as a completion of two."""
        decision: Decision = {
            "success": steps.success(),
            "retry": Retry(at=steps.after(hours=1), error=steps.error()),
            "failure": steps.failure(),
            "hand back": Reschedule(at=steps.after(hours=1)),
        }[kind]
        few, many = claimed(steps, 2), claimed(steps, 200)
        two = statements.of(lambda: steps.end_all(few, decision))
        assert len(statements.of(lambda: steps.end_all(many, decision))) == len(two) <= 9

    def test_children_of_batches_and_chains(self, steps: SqlSteps, statements: Statements) -> None:
        """What follows from ends is set-based too: ten chains and ten batches cost what two of each cost."""

        def graph(count: int) -> list[JobClaim]:
            roots = steps.specs(count)
            children = [steps.child(root_id=root.job_id) for root in roots]
            steps.insert(
                [*roots, *children], [steps.edge(r, c) for r, c in zip(roots, children, strict=True)]
            )
            for _ in range(count):
                steps.batch_of(2)
            return steps.claim()

        few, many = graph(2), graph(10)
        two = statements.of(lambda: steps.end_all(few))
        assert len(statements.of(lambda: steps.end_all(many))) == len(two)

    def test_hand_back_of_many(self, steps: SqlSteps, statements: Statements) -> None:
        """Two statements: the rows under their fence, and their way back; a third tells claims that remember the edge."""
        claims = claimed(steps, 100)
        sent = statements.of(lambda: steps.store.hand_back(claims, now=steps.now))
        assert len([text for text in sent if not text.startswith("UPDATE scheduler_stream SET epoch")]) == 2
        assert len(sent) <= 3


class TestPlans:
    @pytest.mark.parametrize("analyzed", ["never", "when empty", "now"])
    def test_nothing_is_scanned_whatever_the_statistics_say(
        self, postgresql: SqlSteps, analyzed: str
    ) -> None:
        """A completion finds its rows by index among 20,000, with no, stale and fresh statistics."""
        for table in ("scheduler_job", "scheduler_job_queue"):
            postgresql.write(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        if analyzed == "when empty":
            postgresql.write("ANALYZE")
        postgresql.submit_many(20_000)
        if analyzed == "now":
            postgresql.write("ANALYZE")
        claims = sorted(postgresql.claim(200), key=lambda claim: claim.job_id)
        ids = [claim.job_id for claim in claims]
        pairs = [(claim.job_id, claim.claim_id) for claim in claims]
        successes = [success_row(postgresql.completion(claim), postgresql.now) for claim in claims]
        back = [(job_id, 1, 1, 0, postgresql.now, None, None) for job_id in ids]
        for sql, params in (
            (SUCCEED, {"ids": ids, "run": successes}),
            (LOCK_HELD_ROWS, {"ids": ids, "run": pairs}),
            (LOCK_JOBS, {"ids": ids}),
            (REQUEUE, {"back": back}),
            (ORDER_QUEUE_ROWS, {"ids": ids}),
        ):
            plan = postgresql.store.database.run(
                lambda session, s=sql, p=params: session.rows(f"EXPLAIN {s}", p)
            )
            text = "\n".join(line for (line,) in plan)
            assert "Seq Scan" not in text, text
            assert "Bitmap" not in text, text

    def test_a_completion_reads_no_more_in_a_deep_queue(self, postgresql: SqlSteps) -> None:
        """Buffers touched by the completion of 100 runs grow at most with the height of the indexes."""

        def buffers() -> int:
            claims = sorted(postgresql.claim(100), key=lambda claim: claim.job_id)
            runs = [success_row(postgresql.completion(claim), postgresql.now) for claim in claims]
            params = {"ids": [claim.job_id for claim in claims], "run": runs}
            sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SUCCEED}"
            (plan,) = postgresql.store.database.run(lambda session: session.rows(sql, params))[0]
            plan = json.loads(plan) if isinstance(plan, str) else plan
            root = plan[0]["Plan"]
            return int(root["Shared Hit Blocks"]) + int(root["Shared Read Blocks"])

        postgresql.submit_many(1000)
        buffers()
        shallow = buffers()
        for _ in range(30):
            postgresql.submit_many(1000)
        assert buffers() < 2.5 * shallow


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


class TestLingering:
    def test_a_held_back_retry_gets_its_own_time_again(self, steps: SqlSteps) -> None:
        """Held for a minute at most; when the code has ended, due when the retry said."""
        claim = steps.running()
        at = steps.after(seconds=5)
        steps.end(claim, Retry(at=at, error=steps.error()), lingers=True)
        assert steps.record(claim.job_id).scheduled_at == steps.after(seconds=60)
        steps.store.settle([claim], now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_a_retry_later_than_the_hold_keeps_its_time(self, steps: SqlSteps) -> None:
        """The hold never makes a retry earlier."""
        claim = steps.running()
        at = steps.after(hours=1)
        steps.end(claim, Retry(at=at, error=steps.error()), lingers=True)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_rescheduled_while_held_back(self, steps: SqlSteps) -> None:
        """A person's new time counts, but not before the code of the old run has ended."""
        claim = steps.running()
        steps.end(claim, steps.another_try(), lingers=True)
        at = steps.after(seconds=10)
        assert steps.store.reschedule(claim.job_id, at, now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == steps.after(seconds=60)
        steps.store.settle([claim], now=steps.now)
        assert steps.record(claim.job_id).scheduled_at == at

    def test_canceled_while_held_back(self, steps: SqlSteps) -> None:
        """The key stays with the run whose code still works, and goes when that has ended."""
        claim = steps.running(business_key="k")
        steps.end(claim, steps.another_try(), lingers=True)
        steps.store.cancel(claim.job_id, reason="r", now=steps.now)
        held = "SELECT claim_id, node_id FROM scheduler_business_key_reservation WHERE business_key = 'k'"
        assert steps.sql(held) == [(claim.claim_id, claim.node_id)]
        steps.store.settle([claim], now=steps.now)
        assert steps.sql(held) == []

    def test_retried_by_hand_while_its_code_lingers(self, steps: SqlSteps) -> None:
        """The job takes its own key again, and the end of the old code takes nothing from it."""
        claim = steps.running(business_key="k")
        steps.end(claim, steps.failure(), lingers=True)
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


class TestExpiry:
    def test_a_started_job_never_expires(self, steps: SqlSteps) -> None:
        """After a retry, a crash and a started hand-back the expiry is over; an unstarted hand-back keeps it."""
        jobs = claimed(steps, 5, expires_at=steps.after(hours=1))
        retried, crashed, started, unstarted, handed_back = jobs
        steps.end(retried, Retry(at=steps.after(days=1), error=steps.error()))
        steps.end(crashed, CountCrash(detail="killed", max_crashes=3))
        steps.end(started, HandBack())
        steps.end(unstarted, HandBack(), started_at=None)
        steps.store.hand_back([handed_back], now=steps.now)
        steps.advance(hours=2)
        ended = steps.store.expire(now=steps.now, limit=10)
        assert {one.job_id for one in ended} == {unstarted.job_id, handed_back.job_id}
        assert all(one.reason == "expired" for one in ended)

    def test_running_jobs_do_not_use_up_the_limit(self, steps: SqlSteps) -> None:
        """Jobs that were started before they expired do not hide those that were not."""
        claimed(steps, 5, expires_at=steps.after(minutes=1))
        job_id = steps.submit(expires_at=steps.after(minutes=2))
        steps.advance(hours=1)
        assert [one.job_id for one in steps.store.expire(now=steps.now, limit=1)] == [job_id]

    def test_a_job_that_somebody_is_changing_is_left_to_the_next_sweep(self, postgresql: SqlSteps) -> None:
        """A sweep waits for nobody."""
        busy, free = postgresql.submit_many(2, expires_at=postgresql.after(minutes=1))
        postgresql.advance(hours=1)
        locked, go_on = threading.Event(), threading.Event()

        def hold(session: object) -> None:
            session.rows("SELECT job_id FROM scheduler_job_queue WHERE job_id = :id FOR UPDATE", {"id": busy})  # type: ignore[attr-defined]
            locked.set()
            assert go_on.wait(20)

        holder = threading.Thread(target=lambda: postgresql.store.database.run(hold))
        holder.start()
        try:
            assert locked.wait(20)
            ended = postgresql.store.expire(now=postgresql.now, limit=10)
            assert [one.job_id for one in ended] == [free]
        finally:
            go_on.set()
            holder.join(20)
        assert [one.job_id for one in postgresql.store.expire(now=postgresql.now, limit=10)] == [busy]


class TestAnswers:
    def test_each_completion_is_told_what_followed_from_it(self, steps: SqlSteps) -> None:
        """In one call: releases, cancellations and batches stand with the job whose end brought them."""
        good, bad = steps.specs(2)
        released, canceled, below = steps.child(), steps.child(), steps.child()
        steps.insert(
            [good, bad, released, canceled, below],
            [steps.edge(good, released), steps.edge(bad, canceled), steps.edge(canceled, below)],
        )
        batch, _ = steps.batch_of(1)
        claims = {claim.job_id: claim for claim in steps.claim()}
        child = next(iter(claims.keys() - {good.job_id, bad.job_id}))
        answers: list[CompletionAnswer] = steps.store.complete(
            [
                steps.completion(claims[child]),
                steps.completion(claims[bad.job_id], steps.failure()),
                steps.completion(claims[good.job_id]),
            ],
            now=steps.now,
        )
        assert [answer.job_id for answer in answers] == [child, bad.job_id, good.job_id]
        assert answers[0].finished_batches == (batch.batch_id,)
        assert answers[0].released == (batch.parent.job_id,)
        assert [one.job_id for one in answers[1].canceled] == [canceled.job_id, below.job_id]
        assert (answers[1].dead_lettered, answers[1].alerted) == (True, True)
        assert (answers[2].released, answers[2].canceled) == ((released.job_id,), ())

    def test_the_cascade_is_told_depth_first(self, steps: SqlSteps) -> None:
        """Each canceled child stands before its own children, in the order of definition."""
        root, left, left_below, right, right_below = [steps.spec()] + [steps.child() for _ in range(4)]
        steps.insert(
            [root, left, left_below, right, right_below],
            [
                steps.edge(root, right, position=2),
                steps.edge(root, left, position=1),
                steps.edge(left, left_below),
                steps.edge(right, right_below),
            ],
        )
        ended = steps.store.cancel(root.job_id, reason="not needed", now=steps.now)
        assert [one.job_id for one in ended] == [
            spec.job_id for spec in (root, left, left_below, right, right_below)
        ]
        assert [one.reason for one in ended] == ["not needed"] + ["parent_canceled"] * 4


class TestPausedAfterFailure:
    def test_canceled_it_is_counted_once(self, steps: SqlSteps) -> None:
        """A failed child that is paused and then canceled moves from failed to canceled in its batch."""
        batch, (child,) = steps.batch_of(1)
        steps.end(steps.claim_job(child.job_id), steps.failure())
        assert steps.store.pause(child.job_id, now=steps.now)
        assert steps.store.cancel(child.job_id, reason="r", now=steps.now)
        counters = steps.store.batch(batch.batch_id)
        assert counters is not None
        assert (counters.completed, counters.failed, counters.canceled) == (0, 0, 1)

    def test_resumed_it_is_a_dead_letter_again(self, steps: SqlSteps) -> None:
        """With the time of its failure, so that retention counts from then."""
        job_id = steps.failed()
        failed_at = steps.now
        steps.advance(days=1)
        steps.store.pause(job_id, now=steps.now)
        steps.store.resume(job_id, now=steps.now)
        (letter,) = steps.store.dead_letters().items
        assert (letter.job_id, letter.failed_at) == (job_id, failed_at)


class TestSuspects:
    def test_from_the_second_crash_on(self, steps: SqlSteps) -> None:
        """One crash changes nothing but the count; after two the job is a suspect, at the third a dead letter."""
        claim = steps.running()
        job_id = claim.job_id
        steps.end(claim, CountCrash(detail="killed", max_crashes=3))
        assert (steps.record(job_id).crashes, steps.record(job_id).stream.suspect) == (1, False)
        steps.end(steps.claim_job(job_id), CountCrash(detail="killed", max_crashes=3))
        assert (steps.record(job_id).crashes, steps.record(job_id).stream.suspect) == (2, True)
        assert steps.claim() == []
        claim = steps.claim_job(job_id, suspects=True)
        assert steps.end(claim, CountCrash(detail="killed", max_crashes=3)).dead_lettered
        record = steps.record(job_id)
        assert (record.status, record.dead_letter_reason) == (JobStatus.FAILED, "crashed 3 times")

    def test_retried_by_hand_it_is_none(self, steps: SqlSteps) -> None:
        """A person's retry clears the suspicion, and a parked target too."""
        claim = steps.running()
        assert steps.store.park(claim, "shop.jobs:charge", now=steps.now)
        claim = steps.claim_job(claim.job_id, parked_targets=frozenset({"shop.jobs:charge"}))
        steps.end(claim, CountCrash(detail="killed", max_crashes=1))
        assert steps.store.retry(claim.job_id, now=steps.now)
        record = steps.record(claim.job_id)
        assert (record.crashes, record.stream.suspect, record.stream.parked_target) == (0, False, None)
        assert [again.job_id for again in steps.claim()] == [claim.job_id]

    def test_paused_and_resumed_it_stays_one(self, steps: SqlSteps) -> None:
        """The stream of a suspect survives a pause."""
        claim = steps.running()
        steps.end(claim, CountCrash(detail="killed", max_crashes=9))
        steps.end(steps.claim_job(claim.job_id), CountCrash(detail="killed", max_crashes=9))
        steps.store.pause(claim.job_id, now=steps.now)
        steps.store.resume(claim.job_id, now=steps.now)
        record = steps.record(claim.job_id)
        assert (record.status, record.crashes, record.stream.suspect) == (JobStatus.PENDING, 2, True)
