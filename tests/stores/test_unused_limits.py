"""Limits that were made for keys: what an earlier version sets beside us, damaged rows, and old jobs beyond those that are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.stores import unused_streams as unused
from ratchet.stores.mongo import permits as mongo_permits
from ratchet.stores.mongo import streams as mongo_streams
from ratchet.stores.sql import permits as sql_permits
from tests.stores.mongo_store import MongoSteps
from tests.stores.mongo_store import opened as opened_mongo
from tests.stores.sql_stores import KINDS, SqlSteps, opened

DAY = timedelta(days=1)

#: As 0.1.0 stores the limit of a key.
SET_BY_0_1_0 = """
    INSERT INTO scheduler_resource_limit AS held
           (resource, max_concurrent, rate, period_us, tokens, refilled_at, updated_at)
    VALUES (:name, :concurrent, :rate, :period_us, :tokens, :filled_at, :now)
        ON CONFLICT (resource) DO UPDATE
       SET max_concurrent = COALESCE(excluded.max_concurrent, held.max_concurrent),
           rate = COALESCE(excluded.rate, held.rate),
           period_us = COALESCE(excluded.period_us, held.period_us),
           tokens = excluded.tokens, refilled_at = excluded.refilled_at, updated_at = excluded.updated_at
"""


def names(steps: Any) -> list[str]:
    return [limit.name for limit in steps.store.limits()]


def keep_house(steps: Any) -> None:
    for _ in range(3):
        steps.advance(days=4)
        before: datetime = steps.now - 3 * DAY
        steps.store.purge_streams(before=before, limit=100, now=steps.now)
        steps.store.purge_limits(before=before, limit=100, now=steps.now)


def ask_in_between(steps: Any, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Ask for a limit at the moment in which housekeeping knows that no job needs it."""
    other = steps.another()
    steps.store.ensure_limit("order-1", concurrent=1, now=steps.now)
    steps.advance(days=4)
    look = module._names_in_use

    def looked(*args: Any) -> Any:
        found = look(*args)
        other.ensure_limit("order-1", concurrent=1, now=steps.now)
        return found

    monkeypatch.setattr(module, "_names_in_use", looked)
    steps.store.purge_limits(before=steps.now - 3 * DAY, limit=100, now=steps.now)
    assert names(steps) == ["order-1"]
    monkeypatch.undo()
    steps.advance(days=4)
    steps.store.purge_limits(before=steps.now - 3 * DAY, limit=100, now=steps.now)
    assert names(steps) == []


class TestSql:
    @pytest.fixture(params=KINDS)
    def steps(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
        with opened(request.param, request, tmp_path) as found:
            yield found

    def set_by_0_1_0(self, steps: SqlSteps, name: str) -> None:
        values = {"name": name, "concurrent": 1, "rate": None, "period_us": None, "tokens": None}
        steps.write(SET_BY_0_1_0, **values, filled_at=steps.now, now=steps.now)

    def test_what_an_earlier_version_has_set_is_kept(self, steps: SqlSteps) -> None:
        """Its processes rely on a limit for as long as they live; also on one that was made here before, or asked for since."""
        steps.store.ensure_limit("made here", concurrent=1, now=steps.now)
        steps.store.ensure_limit("ours", concurrent=1, now=steps.now)
        steps.advance(hours=1)
        steps.store.ensure_limit("made here too", concurrent=1, now=steps.now)
        steps.advance(hours=1)
        for name in ("made here", "made here too", "made there"):
            self.set_by_0_1_0(steps, name)
        steps.advance(days=2)
        for name in ("made here", "made there"):
            steps.store.ensure_limit(name, concurrent=1, now=steps.now)
            steps.store.ensure_limit(name, concurrent=2, now=steps.now)
        keep_house(steps)
        assert names(steps) == ["made here", "made here too", "made there"]

    def test_jobs_beyond_those_that_are_looked_at_keep_it(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job that is not among the oldest may have the key: its limit stays, although nobody has seen that job."""
        monkeypatch.setattr(sql_permits, "OLDEST", 2)
        monkeypatch.setattr(unused, "OLDEST", 2)
        steps.submit_many(4, queue="first", scheduled_at=steps.after(days=365))
        steps.store.ensure_limit("order-1", concurrent=1, now=steps.now)
        failed = steps.failed(limit_key="order-1")
        steps.submit(queue="last", scheduled_at=steps.after(days=365))
        keep_house(steps)
        assert names(steps) == ["order-1"]
        assert steps.store.retry(failed, now=steps.now)

    # in memory there is one connection, so nothing comes between
    @pytest.mark.parametrize("steps", [kind for kind in KINDS if kind != "memory"], indirect=True)
    def test_asked_for_between_the_look_and_the_lock(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Housekeeping has found nobody who needs it, and then a submission asks for it: it stays."""
        ask_in_between(steps, monkeypatch, sql_permits)

    def test_a_damaged_one_stays(self, steps: SqlSteps) -> None:
        """What it lets through nobody can say; the others go."""
        steps.store.ensure_limit("order-1", rate=1, period=DAY, now=steps.now)
        steps.store.ensure_limit("order-2", rate=1, period=DAY, now=steps.now)
        steps.write(
            "UPDATE scheduler_resource_limit SET refilled_at = :at, tokens = -1e300 WHERE resource = 'order-1'",
            at=steps.now,
        )
        keep_house(steps)
        stored = steps.sql("SELECT resource FROM scheduler_resource_limit ORDER BY resource")
        assert stored == [("order-1",)]


class TestMongo:
    @pytest.fixture
    def steps(self, mongodb_url: str) -> Iterator[MongoSteps]:
        with opened_mongo(mongodb_url) as found:
            yield found

    def test_asked_for_between_the_look_and_the_lock(
        self, steps: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in SQL."""
        ask_in_between(steps, monkeypatch, mongo_permits)

    def test_limits_of_an_earlier_version_are_kept(self, steps: Any) -> None:
        """They do not say whether they were made for a key, and asking for one does not make it so."""
        for name in ("theirs", "ours"):
            steps.store.ensure_limit(name, concurrent=1, now=steps.now)
        limits = steps.collections["scheduler_resource_limit"]
        limits.update_one({"_id": "theirs"}, {"$unset": {"asked_at": ""}})
        steps.advance(days=2)
        steps.store.ensure_limit("theirs", concurrent=2, now=steps.now)
        keep_house(steps)
        assert names(steps) == ["theirs"]

    def test_jobs_beyond_those_that_are_looked_at_keep_it(
        self, steps: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in SQL."""
        monkeypatch.setattr(mongo_streams, "OLDEST", 2)
        monkeypatch.setattr(unused, "OLDEST", 2)
        steps.submit_many(4, queue="first", scheduled_at=steps.after(days=365))
        steps.store.ensure_limit("order-1", concurrent=1, now=steps.now)
        steps.failed(limit_key="order-1")
        steps.submit(queue="last", scheduled_at=steps.after(days=365))
        keep_house(steps)
        assert names(steps) == ["order-1"]
