"""What a deep backlog and a long history add to the cost of a job on PostgreSQL: nothing that grows with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.engine.identity import NodeIdentity
from ratchet.engine.maintenance import Housekeeping
from ratchet.model.clock import ManualClock
from ratchet.model.identifiers import new_id
from ratchet.model.options import Options
from ratchet.stores.bounded_scan import STEP
from ratchet.stores.sql import history
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.finish.completions import SUCCEED, success_row
from tests.stores.sql_stores import SqlSteps, opened

# Ids in the order of creation, before those of all jobs that the tests submit.
FINISHED = """
    WITH ended AS (
        INSERT INTO scheduler_job (job_id, root_id, target, payload, job_type, priority, stream_id, status, created_at,
                                   scheduled_at, attempts, started_at, finished_at, node_id)
        SELECT id, id, 'shop:work', '[]', 'SINGLE', 2, 1, 'SUCCEEDED', at, at, 1, at, at, 'n'
          FROM (SELECT CAST(lpad(to_hex(n), 12, '0') || '7' || substr(md5(CAST(n AS text)), 1, 3) || '8'
                            || substr(md5(CAST(n AS text)), 4, 15) AS uuid) AS id,
                       CAST(:now AS timestamptz) - interval '1 day' + n * interval '1 millisecond' AS at
                  FROM generate_series(CAST(:first AS int), CAST(:last AS int)) n) made
     RETURNING job_id, scheduled_at
    )
    INSERT INTO scheduler_job_execution
           (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted)
    SELECT job_id, job_id, 1, 'n', scheduled_at, scheduled_at, scheduled_at, 'SUCCEEDED', true FROM ended
"""


class RolledBack(Exception):
    pass


@pytest.fixture
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened("postgresql", request, tmp_path) as found:
        for table in ("scheduler_job", "scheduler_job_queue", "scheduler_job_execution"):
            found.write(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield found


def deepen(steps: SqlSteps, first: int, last: int) -> None:
    """So many more finished jobs and as many more that wait, and fresh statistics."""
    steps.write(FINISHED, first=first, last=last, now=steps.now)
    steps.submit_many(last - first + 1, scheduled_at=steps.after(hours=1))
    steps.write("ANALYZE scheduler_job")
    steps.write("ANALYZE scheduler_job_queue")
    steps.write("ANALYZE scheduler_job_execution")


def explained(steps: SqlSteps, sql: str, binds: dict[str, Any]) -> dict[str, Any]:
    """The plan of a statement with what it touched; what it did is rolled back."""
    found: list[Any] = []

    def work(session: Session) -> None:
        found.append(session.value(f"EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) {sql}", binds))
        raise RolledBack

    with pytest.raises(RolledBack):
        steps.store.database.run(work)
    plan: dict[str, Any] = (json.loads(found[0]) if isinstance(found[0], str) else found[0])[0]["Plan"]
    return plan


def buffers(plan: dict[str, Any]) -> int:
    """The pages that it touched."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


class TestCompletion:
    def test_depth_does_not_change_it(self, steps: SqlSteps) -> None:
        """
        Fifty successes touch as many pages and write as many records with 500 and with 10,000 finished and waiting jobs, but for a
        level of the indexes, and read no table from its beginning.
        """
        steps.submit_many(50)
        claims = steps.claim(50)
        assert len(claims) == 50
        runs = [success_row(steps.completion(claim), steps.now) for claim in claims]
        binds = {"ids": [claim.job_id for claim in claims], "run": runs}
        deepen(steps, 1, 500)
        small = explained(steps, SUCCEED, binds)
        deepen(steps, 501, 10_000)
        large = explained(steps, SUCCEED, binds)
        assert "Seq Scan" not in json.dumps(large)
        assert buffers(large) < 1.5 * buffers(small)
        assert large["WAL Records"] < 1.5 * small["WAL Records"]


class TestHousekeeping:
    def keeper(self, steps: SqlSteps) -> Housekeeping:
        clock = ManualClock(steps.now)
        identity = NodeIdentity(new_id, "keeper")
        return Housekeeping(store=steps.store, options=Options(), identity=identity, ids=new_id, clock=clock)

    def test_its_look_reads_the_first_ids_only(self, steps: SqlSteps) -> None:
        """With 20,000 jobs of which none is old it reads a few pages, as with a thousand."""
        deepen(steps, 1, 500)
        small = explained(steps, history.OLDEST_CREATED_AT, {"step": STEP})
        deepen(steps, 501, 10_000)
        large = explained(steps, history.OLDEST_CREATED_AT, {"step": STEP})
        assert buffers(large) < buffers(small) + 30
        assert buffers(large) < 150
        archived = explained(steps, history.OLDEST_ARCHIVED_AT, {})
        assert buffers(archived) < 10

    def test_it_searches_for_nothing(self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        """Old or not is told by that look: a search by time reads every job to find that none is old."""

        def refused(*_: Any, **__: Any) -> None:
            raise AssertionError("searched")

        monkeypatch.setattr(steps.store, "find", refused)
        steps.write(FINISHED, first=1, last=20, now=steps.now)
        keeper = self.keeper(steps)
        assert keeper.run_once(steps.now) == 0
        assert keeper.run_once(steps.now + timedelta(days=30)) > 0
        assert steps.sql("SELECT count(*) AS jobs FROM scheduler_job_archive") == [(20,)]


def test_a_success_stays_on_its_page(steps: SqlSteps) -> None:
    """Jobs that were submitted together end together: each finds room beside itself, and no index gets another entry."""
    ids = steps.submit_many(600)
    before = pages(steps)
    claims = steps.claim()
    assert len(claims) == len(ids)
    steps.end_all(claims)
    after = pages(steps)
    moved = [job_id for job_id in ids if before[job_id] != after[job_id]]
    assert len(moved) < len(ids) / 20


def pages(steps: SqlSteps) -> dict[UUID, int]:
    """Where each job's row is."""
    return dict(
        steps.sql("SELECT job_id, CAST((CAST(CAST(ctid AS text) AS point))[0] AS int) FROM scheduler_job")
    )
