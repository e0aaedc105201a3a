"""What jobs behind closed gates cost the claims of others: no writes, and no statement more than without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.cluster import BreakerRecord
from ratchet.model.status import Priority
from ratchet.tck.steps import Steps
from tests.stores.counting import Statements
from tests.stores.mongo_store import Commands
from tests.stores.mongo_store import opened as opened_mongo
from tests.stores.sql_stores import KINDS, SqlSteps, opened

MANY = 400

TABLES = """
    SELECT 'job' AS which, CAST(ctid AS text), CAST(xmin AS text), CAST(xmax AS text) FROM scheduler_job_queue
    UNION ALL SELECT 'stream', CAST(ctid AS text), CAST(xmin AS text), CAST(xmax AS text) FROM scheduler_stream
    UNION ALL SELECT 'limit', CAST(ctid AS text), CAST(xmin AS text), CAST(xmax AS text) FROM scheduler_resource_limit
    UNION ALL SELECT 'permit', CAST(ctid AS text), CAST(xmin AS text), CAST(xmax AS text) FROM scheduler_resource_permit
    UNION ALL SELECT 'breaker', CAST(ctid AS text), CAST(xmin AS text), CAST(xmax AS text) FROM scheduler_circuit_breaker
     ORDER BY 1, 2
"""


def close_gates(steps: Steps) -> None:
    """An open breaker, an empty pool and a paused queue, with urgent jobs behind each."""
    held = BreakerRecord(service="bank", state="OPEN", until=steps.now + timedelta(hours=1))
    assert steps.store.save_breaker(held, expected_version=0, now=steps.now)
    steps.store.set_limit("printer", concurrent=1, now=steps.now)
    steps.running(resource="printer", node="elsewhere")
    steps.store.pause_queue("reports", now=steps.now)
    for behind in ({"breaker": "bank"}, {"resource": "printer"}, {"queue": "reports"}):
        steps.submit_many(MANY, priority=Priority.CRITICAL, **behind)


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch, steps: SqlSteps) -> Statements:
    return Statements(monkeypatch)


def polls(steps: Steps, nodes: list[Any]) -> Callable[[], None]:
    """Each node asks for work, and when there will be some."""

    def poll() -> None:
        for number, store in enumerate(nodes):
            assert steps.claim(20, store=store, node_id=f"node-{number}") == []
            opens = store.next_due_at(steps.request(), now=steps.now)
            assert opens == steps.after(hours=1)  # the breaker's; nobody knows of the others

    return poll


class TestSql:
    def test_nothing_is_written_while_they_are_closed(self, steps: SqlSteps, statements: Statements) -> None:
        """Three nodes poll again and again: reads only, and not even a row is locked."""
        close_gates(steps)
        nodes = [steps.store, steps.another(), steps.another()]
        poll = polls(steps, nodes)
        poll()
        kind = steps.store.name
        before = steps.sql(TABLES) if kind == "postgresql" else []
        sent = [text for _ in range(5) for text in statements.of(poll)]
        assert {text.split()[0] for text in sent} <= {"SELECT", "WITH"}
        assert not [text for text in sent if "UPDATE" in text]
        assert (steps.sql(TABLES) if kind == "postgresql" else []) == before

    def test_other_work_costs_what_it_did(self, steps: SqlSteps, statements: Statements) -> None:
        """The same statements for a claim of ten with 1,200 closed jobs as with none; SQLite looks at the limit besides."""
        steps.submit_many(50)
        assert len(steps.claim(10)) == 10
        before = statements.of(lambda: steps.claim(10))
        close_gates(steps)
        found: list[int] = []
        after = statements.of(lambda: found.append(len(steps.claim(10))))
        assert found == [10]
        more = 2 if steps.store.name == "sqlite" else 0
        assert len(before) <= len(after) <= len(before) + more, (before, after)

    def test_opened_they_flow_in_claim_order(self, steps: SqlSteps) -> None:
        """Resumed, reset, freed: the next claim takes from all three."""
        close_gates(steps)
        steps.store.resume_queue("reports", now=steps.now)
        assert {claim.stream_id for claim in steps.claim(MANY)} == {_stream(steps, queue="reports")}
        closed = BreakerRecord(service="bank", state="CLOSED")
        assert steps.store.save_breaker(closed, expected_version=1, now=steps.now)
        assert {claim.stream_id for claim in steps.claim(MANY)} == {_stream(steps, breaker="bank")}
        steps.store.set_limit("printer", concurrent=3, now=steps.now)
        assert [claim.stream_id for claim in steps.claim(MANY)] == [_stream(steps, resource="printer")] * 2


def _stream(steps: Steps, **wanted: str) -> int:
    (found,) = [
        stream.stream_id
        for stream in steps.store.streams()
        if all(getattr(stream.key, name) == value for name, value in wanted.items())
    ]
    return found


class TestMongo:
    @pytest.fixture
    def steps(self, mongodb_url: str) -> Iterator[Any]:
        with opened_mongo(mongodb_url) as found:
            yield found

    @pytest.fixture
    def commands(self, steps: Any) -> Commands:
        found: Commands = steps.listened()
        return found

    def test_nothing_is_written_while_they_are_closed(self, steps: Any, commands: Commands) -> None:
        """Polls are reads."""
        close_gates(steps)
        poll = polls(steps, [steps.store])
        poll()
        commands.names.clear()
        for _ in range(5):
            poll()
        assert set(commands.names) <= {"aggregate", "find", "getMore"}

    def test_other_work_costs_what_it_did(self, steps: Any, commands: Commands) -> None:
        """One more read, which counts the permits of the pool, and no write."""
        steps.submit_many(50)
        for _ in range(2):
            commands.names.clear()
            assert len(steps.claim(10)) == 10
        assert commands.names == ["aggregate", "update", "find"]
        close_gates(steps)
        for _ in range(2):
            commands.names.clear()
            assert len(steps.claim(10)) == 10
        assert sorted(commands.names) == ["aggregate", "aggregate", "find", "update"]
