"""What completions and sweeps cost in SQL, and by which plans."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.decision import CountCrash, Decision, HandBack, Reschedule, Retry
from ratchet.stores.sql.finish.completions import ORDER_QUEUE_ROWS, SUCCEED, success_row
from ratchet.stores.sql.finish.requeues import REQUEUE
from ratchet.stores.sql.rows.locked import LOCK_HELD_ROWS, LOCK_JOBS
from tests.stores.counting import Statements
from tests.stores.sql_stores import KINDS, SqlSteps
from tests.stores.sql_transitions import claimed, intact


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with intact(request.param, request, tmp_path) as found:
        yield found


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
        first, few, many = claimed(steps, 2), claimed(steps, 2), claimed(steps, 200)
        # the first failure of its cause raises the alert, with one statement more; the others count it
        assert len(statements.of(lambda: steps.end_all(first, decision))) <= 9
        two = statements.of(lambda: steps.end_all(few, decision))
        assert len(statements.of(lambda: steps.end_all(many, decision))) == len(two) <= 8

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
