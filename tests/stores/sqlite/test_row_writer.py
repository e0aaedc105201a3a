"""One plain job on SQLite, stored without a session: all of it or nothing, and the lock is free afterwards."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.errors import Conflict, StoreError, UnstorableData
from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect
from tests.stores.sql_stores import SqlSteps


@pytest.fixture
def steps(tmp_path: Path) -> Any:
    made = SqlSteps(f"sqlite:///{tmp_path / 'shop.db'}")
    yield made
    made.close()


def rows(steps: SqlSteps) -> list[int]:
    return [
        steps.sql(f"SELECT count(*) AS jobs FROM {table}")[0][0]
        for table in ("scheduler_job", "scheduler_job_queue")
    ]


def test_both_rows_or_none(steps: SqlSteps) -> None:
    """The queue row is refused: the job's own row is not there either, and the next submission works."""
    refuse = "CREATE TRIGGER no BEFORE INSERT ON scheduler_job_queue BEGIN SELECT RAISE(ABORT, 'no'); END"
    steps.write(refuse)
    with pytest.raises(StoreError, match="no"):
        steps.submit()
    assert rows(steps) == [0, 0]
    steps.write("DROP TRIGGER no")
    steps.submit()
    assert rows(steps) == [1, 1]


def test_sent_again(steps: SqlSteps) -> None:
    """After a lost answer the same job is sent again: it is found, and stored once."""
    spec = steps.spec()
    first, second = (steps.store.insert([spec], now=steps.now)[0] for _ in range(2))
    assert first.created
    assert second.job_id == spec.job_id
    assert rows(steps) == [1, 1]


def test_what_cannot_be_stored(steps: SqlSteps) -> None:
    """It is refused before the lock is taken, or under it; either way the next submission works."""
    for payload in ('[["a\0b"],{}]', '[["\ud800"],{}]'):
        with pytest.raises(UnstorableData):
            steps.store.insert([steps.spec(payload=payload)], now=steps.now)
    assert rows(steps) == [0, 0]
    steps.submit()
    assert rows(steps) == [1, 1]


def test_a_time_without_a_zone(steps: SqlSteps) -> None:
    """It is refused with what to write instead, as everywhere."""
    naive = datetime(2026, 1, 1)
    with pytest.raises(ValueError, match="timezone"):
        steps.store.insert([steps.spec(scheduled_at=naive)], now=steps.now)
    assert rows(steps) == [0, 0]


def test_a_busy_database_is_tried_again(steps: SqlSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that meets another program's lock is a conflict, and the whole transaction is made again."""
    tries: list[int] = []
    original = SqliteDialect.write_once

    def busy_once(self: SqliteDialect, *args: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Conflict("locked")
        original(self, *args)

    monkeypatch.setattr(SqliteDialect, "write_once", busy_once)
    steps.submit()
    assert (len(tries), rows(steps)) == (2, [1, 1])


def test_an_interruption_leaves_nothing_open(steps: SqlSteps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt in the middle: nothing is stored, and the next writer does not wait."""

    class Interrupted:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def execute(self, text: str, *binds: Any) -> Any:
            if text.lstrip().startswith("INSERT INTO scheduler_job_queue"):
                raise KeyboardInterrupt
            return self.connection.execute(text, *binds)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

    steps.submit(scheduled_at=datetime.now(UTC) + timedelta(days=1))
    dialect: Any = steps.store.database.dialect
    begin = dialect._begin_writing
    monkeypatch.setattr(dialect, "_begin_writing", lambda: Interrupted(begin()))
    with pytest.raises(KeyboardInterrupt):
        steps.submit()
    monkeypatch.undo()
    assert rows(steps) == [1, 1]
    steps.submit()
    assert rows(steps) == [2, 2]
