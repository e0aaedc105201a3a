"""What nodes cost in SQL: beats, rescues, and the rows that the dead leave."""

from __future__ import annotations

import json
import threading
from typing import ClassVar

import pytest

from ratchet.stores.sql import cluster
from ratchet.stores.sql.recover import unowned_claims
from ratchet.stores.sql.rows import keys_and_permits
from tests.stores.sql_stores import SqlSteps, claim_all


class TestBeatOnly:
    def test_a_node_under_rescue_does_not_silence_its_siblings(self, postgresql: SqlSteps) -> None:
        """While one row is locked, the other children's beats go through at once."""
        steps = postgresql
        steps.register("a")
        steps.register("b")
        answers: list[set[str]] = []
        supervisor = threading.Thread(
            target=lambda: answers.append(steps.another().beat_only(["a", "b"], now=steps.now))
        )
        with steps.store.begin() as connection:
            connection.execute("SELECT 1 FROM scheduler_node WHERE node_id = 'a' FOR UPDATE")
            supervisor.start()
            for _ in range(200):
                if steps.beat_of("b") == 1:
                    break
                threading.Event().wait(0.01)
            assert (steps.beat_of("a"), steps.beat_of("b")) == (0, 1)
        supervisor.join(timeout=20)
        assert answers == [{"a", "b"}]
        assert (steps.beat_of("a"), steps.beat_of("b")) == (1, 1)


class TestPlans:
    """What nodes ask with every beat must not read the jobs that wait."""

    ASKED = (
        cluster.FIND_CLAIMS,
        unowned_claims.FIND_UNOWNED,
        cluster.LIST_NODES,
        cluster.LOCK_RUNNING_OF_NODE,
    )
    BINDS: ClassVar = {"node_id": "node-1", "known": []}

    @pytest.mark.parametrize("sql", [*ASKED, keys_and_permits.LOCK_HELD_BACK_FOR_NODE])
    def test_on_sqlite(self, sqlite: SqlSteps, sql: str) -> None:
        """The queue is searched by the index of claimed rows, never scanned."""
        plan = [row[3] for row in sqlite.sql(f"EXPLAIN QUERY PLAN {sql}", **self.binds(sql))]
        assert any("idx_queue_orphan" in step for step in plan), plan
        assert not [step for step in plan if step in ("SCAN scheduler_job_queue", "SCAN q", "SCAN t")], plan

    def test_on_postgresql(self, postgresql: SqlSteps) -> None:
        """The same with twenty thousand pending jobs, with and without statistics."""
        steps = postgresql
        steps.register()
        steps.submit_many(20_000)
        steps.claim(20)
        for statistics in ("", "ANALYZE scheduler_job_queue"):
            if statistics:
                steps.write(statistics)
            for sql in (*self.ASKED, keys_and_permits.LOCK_HELD_BACK_FOR_NODE):
                plan = self.explain(steps, sql)
                assert "Seq Scan on scheduler_job_queue" not in plan, plan
                assert "idx_queue_orphan" in plan, plan

    def explain(self, steps: SqlSteps, sql: str) -> str:
        """The plan, one step per line."""
        explain = f"EXPLAIN (COSTS off) {sql}"
        return "\n".join(
            row[0] for row in steps.store.database.run(lambda session: session.rows(explain, self.binds(sql)))
        )

    def binds(self, sql: str) -> dict[str, object]:
        """The binds that a statement has."""
        return {
            name: value for name, value in self.BINDS.items() if f":{name}" in sql or f" {name} uuid" in sql
        }


class TestDeadEntries:
    """What nodes ask all the time, after a node has run 20,000 jobs and no vacuum may remove them."""

    RUN = """
        INSERT INTO scheduler_job_queue (job_id, stream_id, priority, status, job_type, scheduled_time, picked_by, claim_id)
        SELECT gen_random_uuid(), 1, 2, 'RUNNING', 'SINGLE', now(), 'node-1', gen_random_uuid()
          FROM generate_series(1, 20000)
    """

    def test_they_are_not_read_over(self, postgresql: SqlSteps) -> None:
        """
        The look at all claims of a node reads over them; the looks at those that it knows of and at the beats of others do
        not, with fresh statistics or without.
        """
        steps = postgresql
        with steps.another().database.dialect.reading() as holder:
            assert holder.value("SELECT count(*) FROM scheduler_job_queue") == 0
            steps.write(self.RUN)
            steps.write("DELETE FROM scheduler_job_queue")
            known = [claim.job_id for claim in claim_all(steps, "node-1", 10)]
            for statistics in ("", "ANALYZE scheduler_job_queue"):
                if statistics:
                    steps.write(statistics)
                assert self.buffers(steps, cluster.FIND_CLAIMS, node_id="node-1") > 250
                assert self.buffers(steps, cluster.LIST_NODES) > 250
                assert self.buffers(steps, cluster.FIND_KNOWN_CLAIMS, node_id="node-1", known=known) < 100
                assert self.buffers(steps, cluster.WATCH_NODES) < 10
                assert self.buffers(steps, unowned_claims.FIND_UNOWNED) < 100

    def buffers(self, steps: SqlSteps, sql: str, **binds: object) -> int:
        """The pages that a statement touches."""
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
        found = steps.store.database.run(lambda session: session.value(text, binds))
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
