"""What a wakeup asks the database: one claim, and one question about everything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ratchet.model.claim import ClaimRequest
from ratchet.model.status import Lane
from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange
from ratchet.stores.sql.dialects.postgresql.connections import Connection
from tests.stores.counting import Statements
from tests.stores.sql_stores import KINDS, SqlSteps, opened

WARM = 3  # by then everything is prepared on the connections that are used


def everything(steps: SqlSteps) -> list[ClaimRequest]:
    """What a node asks that has nothing to do."""
    return [steps.request(1, lane=lane, suspects=suspects) for suspects in (False, True) for lane in Lane]


class TestStatements:
    @pytest.fixture(params=KINDS)
    def steps(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
        with opened(request.param, request, tmp_path) as found:
            yield found

    def test_a_look_at_all_lanes_and_suspects_is_one(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As many as a look at one lane."""
        statements = Statements(monkeypatch)
        steps.submit(lane=Lane.ASYNC)
        steps.submit(lane=Lane.PROCESS, scheduled_at=steps.after(hours=1))
        found: list[Any] = []
        sent = statements.of(lambda: found.extend(steps.store.next_due_of(everything(steps), now=steps.now)))
        assert dict(zip(Lane, found, strict=False)) == {
            Lane.THREAD: None,
            Lane.ASYNC: steps.now,
            Lane.PROCESS: steps.after(hours=1),
        }
        assert found[len(Lane) :] == [None] * len(Lane)
        assert len(sent) == 1


class TestRoundTrips:
    """On PostgreSQL, without a pooler in between."""

    @pytest.fixture
    def steps(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
        with opened("postgresql", request, tmp_path) as found:
            yield found

    @pytest.fixture
    def trips(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """One entry for each time that an answer was awaited."""
        counted: list[int] = []
        for talks in (Connection, Exchange):

            def wait(*args: Any, original: Any = talks.wait, **kwargs: Any) -> Any:
                counted.append(1)
                return original(*args, **kwargs)

            monkeypatch.setattr(talks, "wait", wait)
        return counted

    def test_a_claim_and_a_look_are_one_each(self, steps: SqlSteps, trips: list[int]) -> None:
        """Whether something is there or not."""
        for there in (True, False):
            for _ in range(WARM):
                if there:
                    steps.submit()
                trips.clear()
                assert len(steps.take(20)) == there
                claimed = len(trips)
                steps.store.next_due_of(everything(steps), now=steps.now)
                looked = len(trips) - claimed
            assert (claimed, looked) == (1, 1)

    def test_a_look_survives_the_end_of_its_connections(
        self, steps: SqlSteps, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It takes nothing, so it is simply made again: no error, and no claim that nobody knows of."""
        steps.submit()
        assert steps.store.next_due_of(everything(steps), now=steps.now)[0] == steps.now
        monkeypatch.setattr(Connection, "has_ended", False)  # it ends right after it was looked at
        with psycopg.connect(postgresql_url, autocommit=True) as other:
            while ended(other):
                pass
        assert steps.store.next_due_of(everything(steps), now=steps.now)[0] == steps.now


def ended(connection: psycopg.Connection[Any]) -> list[Any]:
    """The other connections to the same database, which are ended."""
    return connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchall()
