"""Streams that no job has: how long ids are believed, what marks a stream as used, and how far old jobs are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.identifiers import timestamp_of
from ratchet.model.job import JobFilter, StreamKey
from ratchet.stores import unused_streams as unused
from ratchet.stores.mongo import streams as mongo_streams
from ratchet.stores.sql import streams as sql_unused
from ratchet.stores.stream_cache import HOUR, Trust
from ratchet.stores.unused_streams import SAFETY, known_until
from tests.stores.counting import Statements
from tests.stores.mongo_store import MongoSteps
from tests.stores.mongo_store import opened as opened_mongo
from tests.stores.sql_stores import KINDS, SqlSteps, opened

KEY = StreamKey(limit_key="order-1")
DAY = timedelta(days=1)


class Clocks:
    """A monotonic clock and one on the wall."""

    def __init__(self) -> None:
        self.monotonic = self.wall = 1_000_000.0

    def trust(self) -> Trust:
        return Trust(monotonic=lambda: self.monotonic, wall=lambda: self.wall)


class TestTrust:
    def test_it_lasts_an_hour(self) -> None:
        """And then begins anew."""
        clocks = Clocks()
        trust = clocks.trust()
        clocks.monotonic += HOUR - 1
        clocks.wall += HOUR - 1
        assert not trust.is_over()
        clocks.monotonic += 2
        clocks.wall += 2
        assert [trust.is_over(), trust.is_over()] == [True, False]

    @pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["asleep", "set back"])
    def test_either_clock_ends_it(self, jump: float) -> None:
        """A machine that slept has a monotonic clock that did, too; and a wall clock may be set."""
        clocks = Clocks()
        trust = clocks.trust()
        clocks.wall += jump
        assert trust.is_over()


class TestKnownUntil:
    def test_all_old_jobs_are_known(self) -> None:
        """Then nothing else limits what may be deleted."""
        now = datetime.now(UTC)
        assert known_until([], now) == now

    def test_there_are_more(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Only what was set aside well before the last of them was submitted."""
        monkeypatch.setattr(unused, "OLDEST", 2)
        steps = SqlSteps("sqlite:///:memory:")
        ids = sorted(steps.submit_many(3))
        steps.close()
        rows = [(job_id, 1) for job_id in ids]
        now = datetime.now(UTC) + 30 * DAY
        assert known_until(rows[:2], now) == now
        assert known_until(rows, now) == timestamp_of(ids[2]) - SAFETY


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened(request.param, request, tmp_path) as found:
        yield found


def old_stream(steps: SqlSteps) -> None:
    """A stream that a job once had, set aside long ago, and a newer one."""
    steps.succeeded(stream=KEY)
    steps.submit(queue="last")
    for _ in range(2):
        steps.advance(days=4)
        purge(steps)


def purge(steps: Any) -> int:
    changed: int = steps.store.purge_streams(before=steps.now - 3 * DAY, limit=100, now=steps.now)
    return changed


def keys(steps: Any) -> list[StreamKey]:
    return [stream.key for stream in steps.store.streams()]


class TestSql:
    def test_jobs_beyond_those_that_are_looked_at_keep_it(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job that is not among the oldest may have the stream: it stays, although nobody has seen that job."""
        monkeypatch.setattr(sql_unused, "OLDEST", 2)
        monkeypatch.setattr(unused, "OLDEST", 2)
        steps.submit_many(4, queue="first", scheduled_at=steps.after(days=365))
        old_stream(steps)
        assert KEY in keys(steps)

    def test_it_is_looked_up_again_after_an_hour(
        self, steps: SqlSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Until then a submission asks for nothing; afterwards once."""
        clocks = Clocks()
        registry = steps.store.stream_registry
        registry._trust = clocks.trust()
        steps.submit(stream=KEY)
        sent = Statements(monkeypatch)

        def lookups() -> int:
            asked = sent.of(lambda: steps.submit(stream=KEY))
            return sum("FROM scheduler_stream WHERE stream_key" in text for text in asked)

        assert lookups() == 0
        clocks.monotonic += HOUR + 1
        assert [lookups(), lookups()] == [1, 0]

    def test_reading_a_job_does_not_bring_its_stream_back(self, steps: SqlSteps) -> None:
        """A stream that was set aside is known by its number, but a new job of its key gets another one."""
        steps.succeeded(stream=KEY)
        steps.submit(queue="last")
        (old,) = [stream.stream_id for stream in steps.store.streams() if stream.key == KEY]
        steps.advance(days=4)
        assert purge(steps) == 1
        assert steps.store.stream_registry.key_of(old) == KEY
        assert steps.store.stream_registry.id_of(None, KEY) != old

    def test_a_lookup_marks_it_as_used(self, steps: SqlSteps) -> None:
        """Once a day, so that what is in use is not set aside."""
        registry = steps.store.stream_registry
        stream_id = registry.id_of(None, KEY)
        long_ago = datetime.now(UTC) - 10 * DAY
        mark = "UPDATE scheduler_stream SET created_at = :at WHERE stream_id = :stream_id"
        steps.write(mark, at=long_ago, stream_id=stream_id)
        registry.forget([stream_id])
        assert registry.id_of(None, KEY) == stream_id
        ((used_at,),) = steps.sql(
            "SELECT created_at FROM scheduler_stream WHERE stream_id = :stream_id", stream_id=stream_id
        )
        assert used_at > long_ago + 9 * DAY

    def test_a_job_whose_stream_is_gone_can_be_read_and_tried_again(self, steps: SqlSteps) -> None:
        """As if it had been in the default queue: alone, on a page with others, and when it runs."""
        lost, other = steps.failed(stream=KEY), steps.failed()
        steps.write("DELETE FROM scheduler_stream WHERE limit_key = 'order-1'")
        steps.store.stream_registry.forget(range(10))
        assert steps.record(lost).stream == StreamKey()
        page = steps.store.find(JobFilter(), limit=10)
        assert {record.job_id for record in page.items} == {lost, other}
        assert steps.store.retry(lost, now=steps.now)
        purge(steps)
        assert [claim.job_id for claim in steps.claim()] == [lost]


class TestMongo:
    @pytest.fixture
    def steps(self, mongodb_url: str) -> Iterator[MongoSteps]:
        with opened_mongo(mongodb_url) as found:
            yield found

    def test_jobs_beyond_those_that_are_looked_at_keep_it(
        self, steps: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in SQL."""
        monkeypatch.setattr(mongo_streams, "OLDEST", 2)
        monkeypatch.setattr(unused, "OLDEST", 2)
        steps.submit_many(4, queue="first", scheduled_at=steps.after(days=365))
        old_stream(steps)
        assert KEY in keys(steps)

    def test_streams_of_an_earlier_version(self, steps: Any) -> None:
        """They have no mark: they are set aside like those that were not used for long, and marked when they are."""
        steps.store.database.streams.id_of(KEY)
        steps.store.database.streams.id_of(StreamKey(queue="last"))
        steps.collections["scheduler_stream"].update_many({}, {"$unset": {"used_at": ""}})
        other = steps.another()
        assert other.database.streams.id_of(StreamKey(queue="last")) == 2
        (marked,) = steps.collections["scheduler_stream"].find({"used_at": {"$exists": True}})
        assert marked["queue"] == "last"
        assert purge(steps) == 1

    def test_a_job_whose_stream_is_gone_can_be_read_and_tried_again(self, steps: Any) -> None:
        """As in SQL."""
        lost = steps.failed(stream=KEY)
        steps.collections["scheduler_stream"].delete_one({"limit_key": "order-1"})
        steps.store.database.streams.forget(range(10))
        assert steps.record(lost).stream == StreamKey()
        assert steps.store.retry(lost, now=steps.now)
        purge(steps)
        assert [claim.job_id for claim in steps.claim()] == [lost]

    def test_a_lookup_after_it_was_set_aside(self, steps: Any) -> None:
        """Makes a new one."""
        steps.succeeded(stream=KEY)
        steps.submit(queue="last")
        steps.advance(days=4)
        (old,) = [stream.stream_id for stream in steps.store.streams() if stream.key == KEY]
        assert purge(steps) == 1
        assert steps.store.database.streams.key_of(old) == KEY
        assert steps.store.database.streams.id_of(KEY) != old
