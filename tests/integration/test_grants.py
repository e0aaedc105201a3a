"""
Each role of `ratchet db grants` against each operation, on real servers.

What a role is for works, and everything else is refused by the database: with a `StoreError` that says so, and without a change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pymongo.errors import OperationFailure

from ratchet import (
    AuditFilter,
    BatchHandle,
    BusinessKeyBusy,
    Busy,
    JobFilter,
    JobHandle,
    JobStatus,
    ManualClock,
    NotAuthorized,
    Options,
    Permission,
    RatchetError,
    Schedule,
    Scheduler,
    StoreError,
    StoreUnavailable,
)
from ratchet.api.observe.audit import Audit
from ratchet.api.observe.nodes import Nodes
from ratchet.api.observe.queries import Batches, Breakers, DeadLetters, Jobs, Limits, Schedules
from ratchet.stores import open_store
from ratchet.stores.grants import COLLECTIONS, TABLES, Role, grants_for
from ratchet.stores.mongo.schema import ALL_NAMES, STEPS, Names, Schema, Step
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.sql.dialects.mysql.shapes import KEYS
from ratchet.stores.sql.errors import AccessDenied
from ratchet.stores.sql.migrations import Migration, SchemaMigrator, migrations_of
from ratchet.stores.sql.store import SqlStore
from ratchet.tck.steps import Steps
from ratchet.testing import ManualScheduler
from tests.integration.people_samples import work
from tests.integration.test_permissions import VERBS, World, prepare
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.services.shared import SharedServers
from tests.support.granted import Granted, GuardedMongoDB, OnPostgresql, granted

REFUSED = "does not allow this to the user of the connection"

#: What a submitter's role is not for, although it is a submission: it changes a job that is there already.
CHANGES_OTHERS = {(Scheduler, "join")}
#: What a submitter may see: its jobs and batches, but neither runs, logs, nodes, schedules nor the audit log.
SEEN_BY_SUBMITTER = {
    *((JobHandle, name) for name in ("job", "progress", "result", "status", "wait", "graph")),
    *((BatchHandle, name) for name in ("context", "jobs", "record", "metrics", "results", "wait")),
    *((Jobs, name) for name in ("get", "find", "count", "counts", "tags")),
    *((Batches, name) for name in ("get", "list", "records")),
}
HIDDEN_FROM_SUBMITTER = {
    *((Jobs, name) for name in ("executions", "logs", "history")),
    *((Schedules, name) for name in ("get", "list", "records")),
    (DeadLetters, "alerts"),
    (Nodes, "list"),
    (Limits, "list"),
    (Breakers, "list"),
    (Audit, "find"),
}
#: Nothing is to be applied; `TestTheSchema` has more.
UP_TO_DATE = (Scheduler, "migrate")


class Place:
    """One product: its roles, and a store with one of everything, made by a worker."""

    def __init__(self, made: Granted) -> None:
        self.granted = made
        #: MySQL looks after every upgrade whether one was interrupted before, also if there is nothing to do.
        self.progress = made.admin_url.startswith("mysql")
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.world = prepare(made.store(Role.WORKER), self.clock)
        self.world.scheduler.close()

    def scheduler(self, role: Role) -> ManualScheduler:
        self.clock.advance(timedelta(minutes=1))  # or its first ids would be those of the scheduler before it
        return ManualScheduler(store=self.granted.store(role), clock=self.clock, allow=["tests"])

    def as_role(self, role: Role) -> World:
        """The same things, in the hands of another role."""
        scheduler = self.scheduler(role)
        backend = scheduler.backend
        found: dict[str, Any] = {"scheduler": scheduler}
        for field in fields(World):
            old = getattr(self.world, field.name)
            if isinstance(old, JobHandle):
                found[field.name] = scheduler.handle(old.id)
            elif isinstance(old, BatchHandle):
                found[field.name] = BatchHandle(backend, old.id, old.name)
            elif isinstance(old, Schedule):
                found[field.name] = Schedule(backend, old.name)
        return replace(self.world, **found)


@pytest.fixture(scope="module")
def guarded_mongodb() -> Iterator[MongoDB]:
    with GuardedMongoDB() as server:
        yield server


@pytest.fixture(scope="module", params=["postgresql", "mysql", "mongodb"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "mongodb":
        server: PostgreSQL | MariaDB | MongoDB = request.getfixturevalue("guarded_mongodb")
    else:
        server = SharedServers.current().get({"mysql": "mariadb"}.get(request.param, request.param))
    with granted(request.param, server) as made:
        yield Place(made)


def answer(call: Callable[[], object]) -> str:
    """Whether the database allows it."""
    try:
        call()
    except StoreError as error:
        clear = REFUSED in str(error) and "ratchet db grants" in str(error)
        # what is unavailable would be tried again
        return "refused" if clear and not isinstance(error, StoreUnavailable) else repr(error)
    except (RatchetError, TimeoutError):
        pass  # the verbs before it have left nothing to do, which the database has told
    return "done"


def answers(world: World) -> dict[tuple[type, str], str]:
    """Every public verb, tried once."""
    return {key: answer(lambda row=row: row.call(world)) for key, row in VERBS.items()}  # type: ignore[misc]


class TestEachVerb:
    def test_of_a_reader(self, place: Place) -> None:
        """It sees everything, and changes nothing."""
        before = place.world.scheduler.store.counts()
        found = answers(place.as_role(Role.READER))
        reading = (Permission.VIEW, Permission.LIST, Permission.AUDIT)
        expected = {key: "done" if row.permission in reading else "refused" for key, row in VERBS.items()}
        assert found == expected
        assert place.world.scheduler.store.counts() == before

    def test_of_a_submitter(self, place: Place) -> None:
        """It adds jobs and sees what became of them; it changes no job, not even its own."""
        found = answers(place.as_role(Role.SUBMITTER))
        for key, row in VERBS.items():
            if key in HIDDEN_FROM_SUBMITTER or key in CHANGES_OTHERS or (row.verb and key != UP_TO_DATE):
                assert found[key] == "refused", key
            elif key in SEEN_BY_SUBMITTER or row.permission is Permission.SUBMIT:
                assert found[key] == "done", key

    def test_of_a_worker(self, place: Place) -> None:
        """Whatever people do by hand."""
        found = answers(place.as_role(Role.WORKER))
        assert found == {key: "refused" if key == UP_TO_DATE and place.progress else "done" for key in VERBS}


class TestSubmissions:
    def test_with_everything_that_only_adds(self, place: Place) -> None:
        """Keys, tags, steps, batches, many at once, late ones; a duplicate and a busy key are answered as ever."""
        scheduler = place.scheduler(Role.SUBMITTER)
        keyed = (
            scheduler.enqueue(work, 1)
            .with_idempotency_key("once")
            .with_business_key("one")
            .with_tags("a", "b")
        )
        first = keyed.submit()
        assert scheduler.enqueue(work, 1).with_idempotency_key("once").submit().id == first.id
        with pytest.raises(BusinessKeyBusy):
            scheduler.enqueue(work, 1).with_business_key("one").submit()
        kept = scheduler.enqueue(work, 1).with_business_key("one", busy=Busy.RETURN).submit()
        assert kept.id == first.id
        scheduler.enqueue(work, 1).then(work, 2).then_on_failure(work, 3).submit()
        assert scheduler.enqueue_batch("all").for_each(range(3), work).submit().context().total_items == 3
        assert len(scheduler.enqueue_many(work, [(n,) for n in range(100)])) == 100
        scheduler.enqueue(work, 1).at(place.clock.now() - timedelta(hours=1)).with_queue("late").submit()
        with scheduler.store.begin() as mine:
            scheduler.enqueue(work, 1).with_tags("inside").submit(within=mine)
        assert scheduler.jobs.count(JobFilter(tags=["inside"])) == 1

    def test_that_change_other_jobs_are_refused(self, place: Place) -> None:
        """To replace the holder of a key, to wait for a stored job, to store in chunks: all of these change rows that are there."""
        scheduler = place.scheduler(Role.SUBMITTER)
        holder = scheduler.enqueue(work, 1).with_business_key("held").submit()
        replacing = scheduler.enqueue(work, 1).with_business_key("held", busy=Busy.REPLACE)
        assert answer(replacing.submit) == "refused"
        chunks = scheduler.streaming_batch("s").from_iterable(range(4)).process(work).with_chunk_size(1)
        assert answer(chunks.start) == "refused"
        assert answer(lambda: scheduler.enqueue(work, 1).await_signal("go").submit()) == "refused"
        assert holder.job().status == "PENDING"

    def test_a_refusal_by_the_authorizer_is_written_down(self, place: Place) -> None:
        """A submitter may add to the audit log, and neither read nor change it."""
        store = place.granted.store(Role.SUBMITTER)
        scheduler = ManualScheduler(
            store=store, clock=place.clock, allow=["tests"], authorizer=lambda *_: False
        )
        with scheduler.acting_as("mallory"), pytest.raises(NotAuthorized):
            scheduler.enqueue_now(work, 1)
        entries = place.granted.store(Role.READER).find_audit(AuditFilter(principal="mallory"), limit=10)
        assert [entry.outcome for entry in entries] == ["refused"]


class TestRunning:
    @pytest.mark.parametrize("role", [Role.SUBMITTER, Role.READER])
    def test_neither_a_submitter_nor_a_reader_claims(self, place: Place, role: Role) -> None:
        """A claim changes the row of a job that is there."""
        place.scheduler(Role.SUBMITTER).enqueue(work, 1).with_queue("q").submit()
        steps = Steps()
        steps.store, steps.now = place.granted.store(role), place.clock.now()
        assert answer(lambda: steps.claim(1)) == "refused"

    @pytest.mark.parametrize("role", [Role.SUBMITTER, Role.READER])
    def test_nor_do_statements_of_its_own_change_a_job(self, place: Place, role: Role) -> None:
        """Whatever a program sends with the password of that role: jobs are neither changed nor removed."""
        job = place.scheduler(Role.SUBMITTER).enqueue(work, 1).submit()
        store = place.granted.store(role)
        attempts: list[Callable[[], object]]
        if isinstance(store, SqlStore):
            database = store.database
            attempts = [
                lambda text=text: database.run(lambda session: session.execute(text))  # type: ignore[misc]
                for text in (
                    "UPDATE scheduler_job_queue SET status = 'RUNNING'",
                    "UPDATE scheduler_job SET target = 'os:system'",
                    "DELETE FROM scheduler_job_queue",
                    "DELETE FROM scheduler_job",
                )
            ]
        else:
            assert isinstance(store, MongoStore)
            jobs = store.database.collections()[Names.JOBS]
            attempts = [
                lambda: jobs.update_many({}, {"$set": {"status": "RUNNING"}}),
                lambda: jobs.delete_many({}),
            ]
        for attempt in attempts:
            with pytest.raises((AccessDenied, OperationFailure)):
                attempt()
        assert place.scheduler(Role.SUBMITTER).jobs.get(job.id).status is JobStatus.PENDING

    def test_a_worker_runs_what_a_submitter_has_stored(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A real node, with beats, wakeups and housekeeping; nothing that it does is refused."""
        with (
            closing(Scheduler(place.granted.url(Role.SUBMITTER), allow=["tests"])) as submitter,
            closing(Scheduler(place.granted.url(Role.WORKER), allow=["tests"])) as worker,
        ):
            with worker:
                handle = submitter.enqueue(work, 5).with_queue("real").submit()
                assert handle.result(60) == 5
        assert REFUSED not in caplog.text


class TestTheSchema:
    def test_only_the_migrator_upgrades_it(self, place: Place) -> None:
        """A script of a later version: who may not apply it is told so, and who may does."""
        for role in (Role.READER, Role.SUBMITTER, Role.WORKER):
            assert answer(lambda role=role: _upgrade(place, role)) == "refused"  # type: ignore[misc]
        assert _upgrade(place, Role.MIGRATOR) == ["V999__later"]
        place.granted.grant()  # again, after the upgrade
        place.scheduler(Role.SUBMITTER).enqueue_now(work, 1)


def _upgrade(place: Place, role: Role) -> list[str]:
    store: Any = place.granted.store(role)
    if place.granted.admin_url.startswith("mongodb"):

        def later(collections: Any) -> None:
            collections[Names.QUEUES].create_index("later")

        return Schema(store.database, (*STEPS, Step("V999__later", later, serves=1))).migrate()
    script = "-- serves: V001\nALTER TABLE scheduler_queue ADD COLUMN later integer;"
    migrations = [*migrations_of(store.name), Migration("V999__later", script)]
    return SchemaMigrator(store.database, migrations).migrate()


def test_an_installation_of_somebody_else_is_taken_over(postgresql_url: str) -> None:
    """On PostgreSQL only the owner may change a table: what is there already is given to the migrator's role."""
    with closing(open_store(postgresql_url, Options())) as store:
        store.migrate()
    made = OnPostgresql(postgresql_url)
    made.grant(Role.MIGRATOR)
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        owners = connection.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
        (function,) = connection.execute(
            "SELECT r.rolname FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE p.proname = 'ratchet_refuse'"
        ).fetchone() or ("",)
        connection.execute(f"DROP OWNED BY {made.prefix}_migrator CASCADE")
        connection.execute(f"DROP ROLE {made.prefix}_migrator")
    assert (owners, function) == ([(f"{made.prefix}_migrator",)], f"{made.prefix}_migrator")


def test_every_table_has_grants() -> None:
    """A new table or collection is in the list, or its role could not use it; nothing else is."""
    assert set(TABLES) == set(KEYS)
    for product in ("postgresql", "mysql", "sqlite"):
        made = {
            match
            for script in migrations_of(product)
            for match in re.findall(r"CREATE TABLE (\w+)", script.text)
        }
        assert set(TABLES) - made == {"ratchet_schema_version"}  # the migrator's own
        assert not made - set(TABLES)
    assert set(COLLECTIONS) == {*ALL_NAMES, Names.VERSION}


def test_the_script_for_mongodb_says_what_the_server_is_told() -> None:
    """What people run in mongosh are the privileges that the tests above have used."""
    (grants,) = grants_for("mongodb://db.example/shop", [Role.SUBMITTER])
    script = grants.statements[1]
    listed = script[script.index("[") : script.rindex("]") + 1]
    assert json.loads(listed) == grants.privileges
