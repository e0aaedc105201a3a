"""What a health check reads: no more where a hundred thousand jobs wait, or where many have failed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ratchet.stores.sql.claiming import load, unreachable
from ratchet.stores.sql.database import Session
from tests.stores import backlog
from tests.stores.sql_stores import SqlSteps

#: Jobs that are counted, and jobs that wait.
MOST, BACKLOG = 100, 20_000
UNREACHABLE: dict[str, object] = {
    "earliest": datetime.min.replace(tzinfo=UTC),
    "latest": datetime.max.replace(tzinfo=UTC),
    "limit": 20,
}
HEADS: dict[str, object] = {
    f"{what}_{slot}": 1 + slot % 3 for what in ("stream", "priority") for slot in range(load.HEADS_AT_ONCE)
}


class TestLoad:
    def test_on_postgresql(self, postgresql: SqlSteps) -> None:
        """With statistics and without, each statement touches few pages of the twenty thousand jobs that wait."""
        steps = postgresql
        for start in range(0, BACKLOG, 5000):
            backlog.insert(steps.store, backlog.spread(5000, seed=start, queues=3))
        steps.write(
            "UPDATE scheduler_job SET status = 'FAILED', dead_lettered_at = now(), finished_at = now() "
            "WHERE job_id IN (SELECT job_id FROM scheduler_job ORDER BY job_id LIMIT 10000)"
        )
        binds = {
            load.FIND_FIRST_DUE: {},
            load.COUNT_DUE: HEADS | {"now": backlog.NOW, "most": MOST // load.HEADS_AT_ONCE},
            load.COUNT_PENDING: {"most": MOST},
            load.COUNT_DEAD_LETTERS: {"most": MOST},
            load.FIND_RUNNING: {},
            unreachable.FIND_BESIDE: UNREACHABLE,
            unreachable.FIND_BEFORE_STREAMS: {},
            unreachable.FIND_AFTER_STREAMS: {},
        }
        for statistics in (None, "ANALYZE scheduler_job_queue", "ANALYZE scheduler_job"):
            if statistics is not None:
                steps.write(statistics)
            for sql, values in binds.items():
                # three streams, and seventeen looks into the index for each; a few pages for each of 32 heads
                most = 300 if sql in (unreachable.FIND_BESIDE, load.COUNT_DUE) else 150
                assert self.buffers(steps, sql, values) < most, sql

    def buffers(self, steps: SqlSteps, sql: str, values: dict[str, object]) -> int:
        """The pages that a statement touches."""
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
        found = steps.store.database.run(lambda session: session.value(text, values))
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    def test_on_sqlite(self, sqlite: SqlSteps) -> None:
        """The queue is read by its indexes, never scanned."""
        binds: dict[str, dict[str, object]] = {
            load.FIND_FIRST_DUE: {},
            load.COUNT_DUE: HEADS | {"now": 0, "most": MOST},
            load.COUNT_DEAD_LETTERS: {"most": MOST},
            load.FIND_RUNNING: {},
            unreachable.FIND_BESIDE: {"earliest": 0, "latest": 0, "limit": 1},
            unreachable.FIND_BEFORE_STREAMS: {},
            unreachable.FIND_AFTER_STREAMS: {},
        }
        for sql, values in binds.items():
            plan = [row[3] for row in sqlite.sql(f"EXPLAIN QUERY PLAN {sql}", **values)]
            assert not [step for step in plan if step in ("SCAN q", "SCAN j")], plan


class TestManyStreams:
    @pytest.mark.parametrize("most", [7, 100, 1000, 100_000])
    def test_counted_in_few_statements(self, steps: SqlSteps, most: int) -> None:
        """Fifty streams are counted as one after the other would be, and mostly many in one statement."""
        backlog.insert(steps.store, backlog.spread(2000, seed=1, queues=50))
        asked: list[str] = []
        found = steps.store.database.read(
            lambda session: load.read_load(_Asked(session, asked), backlog.NOW, most)  # type: ignore[arg-type]
        )
        rows = steps.sql(
            "SELECT q.stream_id, count(*) FROM scheduler_job_queue q WHERE q.status = 'PENDING' "
            "AND q.scheduled_time <= :now GROUP BY q.stream_id ORDER BY q.stream_id",
            now=backlog.NOW,
        )
        left = most
        expected = {}
        for stream_id, jobs in rows:
            expected[stream_id] = max(1, min(jobs, left))
            left -= min(jobs, left)
        assert {stream.stream_id: stream.due for stream in found.streams if stream.due} == expected
        # counted one by one it would be 250: fifty streams with five priorities
        assert len(asked) < 30, len(asked)


class _Asked:
    """A session that writes down what it is asked."""

    def __init__(self, session: Session, asked: list[str]) -> None:
        self._session = session
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._session, name)

        def asking(sql: str, *values: object) -> Any:
            self._asked.append(sql)
            return ask(sql, *values)

        return asking
