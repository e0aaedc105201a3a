"""Single submissions on PostgreSQL: one prepared statement in one round trip, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ratchet.model.errors import StoreError, StoreUnavailable, UnstorableData
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, JobRecord, JobSpec, StreamKey
from ratchet.model.options import Options
from ratchet.model.status import BackoffPolicy, JobType, Priority
from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange
from ratchet.stores.sql.dialects.postgresql.connections import Connection
from ratchet.stores.sql.store import SqlStore, open_store
from ratchet.tck.faults import Proxy
from tests.stores.backlog import NOW
from tests.stores.counting import Statements
from tests.stores.sql_stores import REFUSED_COMMITS, SqlSteps, at_once, opened

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

#: What a record and the spec that it was made from have in common.
FIELDS = {*JobSpec.__struct_fields__} & {*JobRecord.__struct_fields__} - {"tags", "signal"}


@pytest.fixture
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened("postgresql", request, tmp_path) as found:
        yield found


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who has waited for an answer of the server, in order."""
    made: list[str] = []
    for talks in (Connection, Exchange):

        def waiting(*args: Any, original: Any = talks.wait, name: str = talks.__name__, **given: Any) -> Any:
            made.append(name)
            return original(*args, **given)

        monkeypatch.setattr(talks, "wait", waiting)
    return made


def submit(steps: SqlSteps, **options: Any) -> JobSpec:
    """Submit one job by itself."""
    spec = steps.spec(**options)
    steps.store.insert([spec], now=steps.now)
    return spec


def rows(steps: SqlSteps, spec: JobSpec) -> tuple[int, int]:
    """How many rows a job has in the cold table and in the queue."""
    ((cold, hot),) = steps.sql(
        "SELECT (SELECT count(*) FROM scheduler_job WHERE job_id = :job_id) AS cold, "
        "(SELECT count(*) FROM scheduler_job_queue WHERE job_id = :job_id) AS hot",
        job_id=spec.job_id,
    )
    return cold, hot


class TestOneRoundTrip:
    def test_a_plain_job(self, steps: SqlSteps, trips: list[str]) -> None:
        """Neither a BEGIN nor a COMMIT, no look at the connection, no question for the stream."""
        submit(steps)
        submit(steps)
        trips.clear()
        spec = submit(steps)
        assert trips == ["Exchange"]
        assert rows(steps, spec) == (1, 1)

    def test_a_job_with_options(self, steps: SqlSteps, trips: list[str]) -> None:
        """Every set of options is a statement of its own, prepared when it is first used."""
        for _ in range(2):
            submit(steps, max_retries=3, timeout=timedelta(seconds=5))
        trips.clear()
        submit(steps, max_retries=3, timeout=timedelta(seconds=5))
        assert trips == ["Exchange"]

    def test_a_job_that_is_late_is_told_to_the_claims(self, steps: SqlSteps, statements: Statements) -> None:
        """A due time that claims may have passed takes the long way, which raises the stream's epoch."""
        submit(steps)
        sent = statements.of(lambda: submit(steps, scheduled_at=steps.now - timedelta(minutes=1)))
        assert any("SET epoch = epoch + 1" in text for text in sent)

    @pytest.fixture
    def statements(self, monkeypatch: pytest.MonkeyPatch) -> Statements:
        return Statements(monkeypatch)


def test_every_field_survives(steps: SqlSteps) -> None:
    """A job with everything that one without keys, tags and edges can have, stored alone and read back."""
    spec = submit(
        steps,
        payload='{"args":["% \\" \\\\ {} :name \N{SNOWMAN}"],"kwargs":{}}',
        root_id=new_id(),
        type=JobType.CHAIN_STEP,
        priority=Priority.CRITICAL,
        stream=StreamKey(queue="q", resource="r"),
        scheduled_at=steps.now + timedelta(days=3, microseconds=7),
        expires_at=steps.now + timedelta(days=9),
        max_retries=2**31 - 1,
        backoff=BackoffPolicy.EXPONENTIAL,
        backoff_base=timedelta(microseconds=1),
        jitter=0.25,
        timeout=timedelta(days=400),
        no_retry_for=("builtins.ValueError",),
        params='{"a":1}',
        on_success="module:done",
        on_failure="module:failed",
        parent_id=new_id(),
        schedule="nightly",
        caller="somebody",
    )
    record = steps.store.get(spec.job_id)
    assert record is not None
    assert record.created_at == steps.now
    for name in FIELDS:
        assert getattr(record, name) == getattr(spec, name), name
    hot = steps.sql(
        "SELECT priority, status, max_retries, timeout_us, scheduled_time FROM scheduler_job_queue "
        "WHERE job_id = :job_id",
        job_id=spec.job_id,
    )
    timeout = spec.timeout // timedelta(microseconds=1) if spec.timeout is not None else None
    assert hot == [(int(spec.priority), "PENDING", spec.max_retries, timeout, spec.scheduled_at)]


class TestRefusedCommits:
    def test_a_submission(self, steps: SqlSteps, postgresql_url: str) -> None:
        """It is an error, not a job that is acknowledged and not there; what holds it up goes, and all is well."""
        submit(steps)
        submit(steps)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(REFUSED_COMMITS.format(event="INSERT", table="scheduler_job"))
            spec = steps.spec()
            with pytest.raises(StoreError, match="not today"):
                steps.store.insert([spec], now=steps.now)
            assert rows(steps, spec) == (0, 0)
            admin.execute("DROP TRIGGER refusal ON scheduler_job")
        assert rows(steps, submit(steps)) == (1, 1)

    def test_a_claim(self, steps: SqlSteps, postgresql_url: str) -> None:
        """Nobody gets jobs whose claim was rolled back."""
        steps.register("n1")
        submit(steps)
        assert len(steps.claim(node_id="n1")) == 1
        spec = submit(steps)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(REFUSED_COMMITS.format(event="UPDATE", table="scheduler_job_queue"))
            with pytest.raises(StoreError, match="not today"):
                steps.claim(node_id="n1")
            admin.execute("DROP TRIGGER refusal ON scheduler_job_queue")
        assert [claim.job_id for claim in steps.claim(node_id="n1")] == [spec.job_id]


class TestFailures:
    def test_a_second_try_stores_nothing_twice(self, steps: SqlSteps) -> None:
        """The answer of the first was lost: the same job again, at once and by several, is there once."""
        spec = submit(steps)
        assert all(answer.created for answer in steps.store.insert([spec], now=steps.now))
        assert rows(steps, spec) == (1, 1)
        fresh = steps.spec()
        answers = at_once(*[lambda: steps.store.insert([fresh], now=steps.now)] * 6)
        assert all(answer.created for (answer,) in answers)
        assert rows(steps, fresh) == (1, 1)

    def test_a_connection_that_died_while_idle(self, steps: SqlSteps, postgresql_url: str) -> None:
        """It is replaced without a word."""
        submit(steps)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(CUT)
        assert rows(steps, submit(steps)) == (1, 1)

    def test_a_user_who_throws_prepared_statements_away(self, steps: SqlSteps) -> None:
        """In a block on the same connection: the next submission takes the long way, the one after it the short one."""
        submit(steps)
        with steps.store.begin() as connection:
            connection.execute("DEALLOCATE ALL")  # type: ignore[attr-defined]
        assert rows(steps, submit(steps)) == (1, 1)
        assert rows(steps, submit(steps)) == (1, 1)

    @pytest.mark.parametrize("payload", ['"half a pair \ud83e"', '"a NUL \0"'])
    def test_what_no_database_holds_is_refused(self, steps: SqlSteps, payload: str) -> None:
        """As unstorable data, and the connection works afterwards."""
        submit(steps)
        with pytest.raises(UnstorableData):
            submit(steps, payload=payload)
        assert rows(steps, submit(steps)) == (1, 1)

    def test_more_than_the_network_takes_at_once(self, steps: SqlSteps) -> None:
        """A payload of several megabytes arrives whole."""
        text = '"' + "x" * 6_000_000 + '"'
        spec = submit(steps, payload=text)
        record = steps.store.get(spec.job_id)
        assert record is not None
        assert record.payload == text

    def test_a_server_that_does_not_answer(self, steps: SqlSteps, postgresql_url: str) -> None:
        """The submission ends after its deadline, and finds a working server again."""
        parts = urlsplit(postgresql_url)
        options = Options(connect_timeout=timedelta(seconds=2))
        with (
            Proxy((parts.hostname or "", parts.port or 5432)) as proxy,
            closing(
                open_store(postgresql_url.replace(f":{parts.port}/", f":{proxy.address[1]}/"), options)
            ) as store,
        ):
            store.insert([steps.spec()], now=steps.now)
            (connection,) = store.database.dialect._connections._idle  # type: ignore[attr-defined]
            connection.exchange._timeout = 200
            proxy.silent = True
            with pytest.raises(StoreUnavailable):
                store.insert([steps.spec()], now=steps.now)
            assert connection.closed
            proxy.cut_all()
            proxy.silent = False
            last = steps.spec()
            store.insert([last], now=steps.now)
            assert rows(steps, last) == (1, 1)


class TestBehindPooler:
    """Whoever gets the server's connection next finds nothing on it; what needs no settings is one round trip all the same."""

    @pytest.fixture
    def pooled(self, pgbouncer_url: str) -> Iterator[SqlStore]:
        with closing(open_store(pgbouncer_url)) as store:
            store.migrate()
            yield store
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as other:
            assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)

    def test_nothing_is_prepared(self, pooled: SqlStore, trips: list[str]) -> None:
        """Each submission is one statement with its text."""
        specs = [plain() for _ in range(3)]
        for spec in specs:
            trips.clear()
            pooled.insert([spec], now=NOW)
        assert trips == ["Exchange"]
        assert all(pooled.get(spec.job_id) is not None for spec in specs)

    def test_jobs_are_sent(self, pooled: SqlStore, pgbouncer_url: str) -> None:
        """The capability is true here too: a job goes out without a wait, and is there once, also when it is sent again."""
        for _ in range(2):
            pooled.insert([plain()], now=NOW)
        spec = plain()
        sent = pooled.send_insert(spec, now=NOW)
        assert sent is not None
        assert sent.finish()
        again = pooled.send_insert(spec, now=NOW)
        assert again is not None
        assert not again.finish()
        (answer,) = pooled.insert([spec], now=NOW)
        assert answer.created
        assert len(pooled.find(JobFilter())) == 3

    def test_a_server_that_was_ended(self, pooled: SqlStore, pgbouncer_url: str) -> None:
        """The pooler's servers are ended under an idle client: the submission goes through, sent or waited for."""
        for _ in range(2):
            pooled.insert([plain()], now=NOW)
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as admin:
            admin.execute(CUT)
            waited, sent = plain(), plain()
            pooled.insert([waited], now=NOW)
            admin.execute(CUT)
            on_its_way = pooled.send_insert(sent, now=NOW)
            if on_its_way is None or not on_its_way.finish():
                pooled.insert([sent], now=NOW)
        assert all(pooled.get(spec.job_id) is not None for spec in (waited, sent))


def plain() -> JobSpec:
    """A job without anything."""
    return JobSpec(job_id=new_id(), target="m:f", payload="[]", scheduled_at=NOW)
