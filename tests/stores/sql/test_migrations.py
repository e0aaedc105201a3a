"""The schema: made once by whoever comes first, whole or not at all, and never from a script that has changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from ratchet.model.breaker import BreakerState
from ratchet.model.cluster import NodeState
from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.errors import SchemaChanged, SchemaOutOfDate, SchemaTooNew, StoreError
from ratchet.model.options import Options
from ratchet.model.status import BackoffPolicy, JobType
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.migrations import Migration, SchemaMigrator, clean_install, migrations_of
from ratchet.stores.sql.store import open_store
from ratchet.stores.sql.urls import dialect_of

FIRST = Migration(
    "V001__first", "CREATE TABLE scheduler_one (a integer); CREATE TABLE scheduler_two (a integer);"
)
SECOND = Migration("V002__second", "CREATE TABLE scheduler_three (a integer);")
BROKEN = Migration(
    "V002__second", "CREATE TABLE scheduler_three (a integer); CREATE TABLE scheduler_one (a integer);"
)


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param != "sqlite":
        found: str = request.getfixturevalue(f"{request.param}_url")
        return found
    return f"sqlite:///{tmp_path / 'x.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(dialect_of(url, Options()))
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    names = ("scheduler_one", "scheduler_two", "scheduler_three")
    with database.dialect.reading() as session:
        return {name.rpartition("_")[2] for name in names if database.dialect.has_table(session, name)}


class TestMigrate:
    def test_applies_what_is_missing_in_order(self, database: Database) -> None:
        """The first call makes the schema, the next ones only what has been added since."""
        assert SchemaMigrator(database, [FIRST]).migrate() == ["V001__first"]
        assert SchemaMigrator(database, [FIRST]).migrate() == []
        upgraded = SchemaMigrator(database, [FIRST, SECOND])
        assert upgraded.status() == [("V001__first", True), ("V002__second", False)]
        assert upgraded.migrate() == ["V002__second"]
        assert tables(database) == {"one", "two", "three"}
        upgraded.check()

    def test_a_script_that_fails_leaves_nothing(self, database: Database) -> None:
        """
        Neither its tables nor its record; what came before stays, and the repaired script is applied.

        Where every change of the schema commits by itself its tables stay, and are not made again.
        """
        with pytest.raises(StoreError):
            SchemaMigrator(database, [FIRST, BROKEN]).migrate()
        left = set() if database.dialect.transactional_ddl else {"three"}
        assert tables(database) == {"one", "two"} | left
        with pytest.raises(SchemaOutOfDate):
            SchemaMigrator(database, [FIRST, SECOND]).check()
        assert SchemaMigrator(database, [FIRST, SECOND]).migrate() == ["V002__second"]

    def test_a_changed_script_is_refused(self, database: Database) -> None:
        """Neither check nor migrate accepts another text under an applied name; line endings do not count."""
        SchemaMigrator(database, [FIRST]).migrate()
        changed = SchemaMigrator(database, [Migration(FIRST.name, FIRST.text + "-- edited"), SECOND])
        for action in (changed.migrate, changed.check):
            with pytest.raises(SchemaChanged, match="V001__first"):
                action()
        assert tables(database) == {"one", "two"}
        text = "CREATE TABLE scheduler_three\n(a integer);"
        SchemaMigrator(database, [FIRST, Migration("V002__second", text)]).migrate()
        SchemaMigrator(database, [FIRST, Migration("V002__second", text.replace("\n", "\r\n"))]).check()

    def test_a_newer_schema_is_refused(self, database: Database) -> None:
        """An old version neither uses nor changes what a newer one has made."""
        SchemaMigrator(database, [FIRST, SECOND]).migrate()
        old = SchemaMigrator(database, [FIRST])
        for action in (old.migrate, old.check):
            with pytest.raises(SchemaTooNew, match="V002__second"):
                action()

    def test_a_missing_schema_names_the_command(self, database: Database) -> None:
        """Whoever forgot to upgrade is told how."""
        with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
            SchemaMigrator(database, [FIRST]).check()
        SchemaMigrator(database, [FIRST]).migrate()
        with pytest.raises(SchemaOutOfDate, match=r"V002__second.*ratchet db upgrade"):
            SchemaMigrator(database, [FIRST, SECOND]).check()

    def test_many_at_once(self, url: str) -> None:
        """Of eight that migrate at the same moment one applies each script; the others wait and find it done."""
        barrier = threading.Barrier(8)
        applied: list[str] = []
        errors: list[BaseException] = []

        def migrate() -> None:
            database = Database(dialect_of(url, Options()))
            try:
                barrier.wait(10)
                applied.extend(SchemaMigrator(database, [FIRST, SECOND]).migrate())
            except BaseException as error:
                errors.append(error)
            finally:
                database.close()

        threads = [threading.Thread(target=migrate) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sorted(applied) == ["V001__first", "V002__second"]


STOPPED_IN_THE_MIDDLE = """
import os, sys
from ratchet.model.options import Options
from ratchet.model.status import BackoffPolicy, JobType
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.migrations import SchemaMigrator
from ratchet.stores.sql.urls import dialect_of
database = Database(dialect_of(sys.argv[1], Options()))
dialect = database.dialect
whole = dialect.run_script
def half(session, script):
    whole(session, script[: script.index("CREATE TABLE scheduler_node")])
    print("half", flush=True)
    sys.stdin.read()
dialect.run_script = half
SchemaMigrator(database).migrate()
"""

MIGRATE = """
import sys
from ratchet.stores import open_store
store = open_store(sys.argv[1])
print(*store.migrate(), flush=True)
store.close()
"""


def run(script: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


@pytest.mark.cluster
class TestProcesses:
    def test_killed_in_the_middle(self, url: str) -> None:
        """After kill -9 half way through a script nothing of it is there, and the next run completes the schema."""
        with run(STOPPED_IN_THE_MIDDLE, url) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "half\n"
            child.send_signal(signal.SIGKILL)
        store = open_store(url)
        with pytest.raises(SchemaOutOfDate):
            store.check_schema()
        assert store.migrate() == [migration.name for migration in migrations_of(store.name)]
        store.check_schema()
        store.close()

    def test_a_second_process_waits_for_the_first(self, url: str) -> None:
        """While one is in the middle the other waits; when the first dies the second does the work."""
        with run(STOPPED_IN_THE_MIDDLE, url) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "half\n"
            with run(MIGRATE, url) as second:
                with pytest.raises(subprocess.TimeoutExpired):
                    second.wait(1.5)
                first.send_signal(signal.SIGKILL)
                output, _ = second.communicate(timeout=30)
                assert output.split() == [
                    migration.name for migration in migrations_of(url.partition(":")[0])
                ]


class TestOlderCode:
    """A schema of a newer version, met by the code of this one."""

    def test_it_works_where_the_script_says_so(self, database: Database) -> None:
        """A script that serves this version's code is accepted; one that serves newer code only, or none, is refused."""
        known = migrations_of(database.dialect.name)
        ours = SchemaMigrator(database, known)
        serving = Migration(
            "V901__served", f"-- serves: V{known[-1].version:03d}\nCREATE TABLE scheduler_one (a integer);"
        )
        SchemaMigrator(database, [*known, serving]).migrate()
        ours.check()
        assert ours.migrate() == []
        demanding = Migration("V902__demanding", "-- serves: V901\nCREATE TABLE scheduler_two (a integer);")
        SchemaMigrator(database, [*known, serving, demanding]).migrate()
        for action in (ours.migrate, ours.check):
            with pytest.raises(SchemaTooNew, match=r"has V902__demanding, which") as refused:
                action()
            assert "V901" not in str(refused.value)

    def test_every_script_after_the_first_says_whom_it_serves(self) -> None:
        """Whoever adds a script decides it: without the line, older nodes cannot start beside newer ones."""
        for name in ("sqlite", "postgresql", "mysql"):
            first, *later = migrations_of(name)
            assert first.serves is None
            assert all(migration.serves for migration in later), name


class TestChecks:
    """Values that no version writes are refused where they are written, and bad rows do not stop an upgrade."""

    BAD = (
        "UPDATE scheduler_job_queue SET job_type = 'NONSENSE'",
        "UPDATE scheduler_job_queue SET priority = 99",
        "UPDATE scheduler_job_queue SET timeout_us = -1",
    )

    def test_they_admit_what_the_model_has(self) -> None:
        """The words in the scripts are the members of the enums: a new member needs a script that widens the check."""
        for name in ("sqlite", "postgresql", "mysql"):
            text = "".join(migration.text for migration in migrations_of(name)[1:])
            for enum in (JobType, EdgeKind, EdgeState, BreakerState, NodeState):
                assert all(f"'{member.value}'" in text for member in enum), (name, enum)
        text = "".join(migration.text for migration in migrations_of("postgresql")[1:])
        assert all(f"'{member.value}'" in text for member in BackoffPolicy)

    def test_they_refuse_what_cannot_be_read(self, database: Database) -> None:
        """A statement by hand that would write such a value fails, and the row stays as it was."""
        SchemaMigrator(database).migrate()
        database.run(lambda session: session.execute(PLANTED, {"kind": "SINGLE", "id": uuid4()}))
        for bad in self.BAD:
            with pytest.raises(StoreError):
                database.run(lambda session, bad=bad: session.execute(bad))
        kept = "SELECT job_type, priority, timeout_us FROM scheduler_job_queue"
        assert database.read(lambda session: session.rows(kept)) == [("SINGLE", 2, None)]

    def test_a_row_that_is_bad_already(self, database: Database) -> None:
        """The upgrade goes through; that row can still be claimed, ended and mended, and the other checks hold."""
        first, *later = migrations_of(database.dialect.name)
        SchemaMigrator(database, [first]).migrate()
        database.run(lambda session: session.execute(PLANTED, {"kind": "NONSENSE", "id": uuid4()}))
        SchemaMigrator(database, [first, *later]).migrate()
        running = "UPDATE scheduler_job_queue SET status = 'RUNNING', attempts = 1"
        assert database.run(lambda session: session.execute(running)) == 1
        with pytest.raises(StoreError):
            database.run(lambda session: session.execute(self.BAD[1]))
        mended = "UPDATE scheduler_job_queue SET job_type = 'SINGLE'"
        assert database.run(lambda session: session.execute(mended)) == 1


PLANTED = """
    INSERT INTO scheduler_job_queue (job_id, stream_id, priority, status, job_type, scheduled_time)
    SELECT :id, 1, 2, 'PENDING', :kind, {clock}
"""


class TestCleanInstall:
    @pytest.mark.parametrize("name", ["sqlite", "postgresql", "mysql"])
    def test_the_file_is_the_composed_migrations(self, name: str) -> None:
        """The script for people who apply DDL themselves is up to date."""
        dialect = dialect_of("sqlite:///:memory:" if name == "sqlite" else f"{name}://localhost/x", Options())
        shipped = files("ratchet.stores.sql").joinpath("ddl", name, "schema.sql").read_text(encoding="utf-8")
        assert shipped == clean_install(dialect)

    def test_it_makes_the_same_sqlite_catalog(self, tmp_path: Path) -> None:
        """Tables, columns and indexes are those that the migrations make, and the migrator accepts them."""
        by_hand, migrated = tmp_path / "a.db", tmp_path / "b.db"
        connection = sqlite3.connect(by_hand)
        connection.executescript(
            files("ratchet.stores.sql").joinpath("ddl", "sqlite", "schema.sql").read_text()
        )
        store = open_store(f"sqlite:///{migrated}")
        store.migrate()
        query = "SELECT type, name, tbl_name FROM sqlite_master ORDER BY type, name"
        other = sqlite3.connect(migrated)
        assert connection.execute(query).fetchall() == other.execute(query).fetchall()
        for (table,) in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            pragma = f"SELECT * FROM pragma_table_info('{table}')"
            assert connection.execute(pragma).fetchall() == other.execute(pragma).fetchall()
        connection.close()
        other.close()
        store.close()
        checked = open_store(f"sqlite:///{by_hand}")
        checked.check_schema()
        assert checked.migrate() == []
        checked.close()

    def test_it_makes_the_same_postgresql_catalog(self, postgresql_server: Any) -> None:
        """Tables, columns, defaults, storage options and indexes are the same, and the migrator accepts them."""
        catalogs = []
        for by_hand in (True, False):
            url = postgresql_server.create_database()
            store = open_store(url)
            with psycopg.connect(url, autocommit=True) as connection:
                if by_hand:
                    script = files("ratchet.stores.sql").joinpath("ddl", "postgresql", "schema.sql")
                    connection.execute(script.read_text())  # type: ignore[arg-type]
                else:
                    store.migrate()
                catalogs.append([connection.execute(query).fetchall() for query in CATALOG])
            store.check_schema()
            assert store.migrate() == []
            store.close()
            postgresql_server.drop_database(url)
        assert catalogs[0] == catalogs[1]
        assert len(catalogs[0][0]) > 200

    def test_all_dialects_have_the_same_tables_and_columns(self, postgresql_url: str, mysql_url: str) -> None:
        """The logical model is one: the same columns in the same order, so that statements fit them all."""
        found = []
        for url, text in (
            (postgresql_url, COLUMNS_POSTGRESQL),
            (mysql_url, COLUMNS_MYSQL),
            ("sqlite:///:memory:", COLUMNS_SQLITE),
        ):
            store = open_store(url)
            store.migrate()
            found.append(sorted(store.database.read(lambda session, t=text: session.rows(t))))
            store.close()
        assert found[0] == found[1] == found[2]


CATALOG = (
    """SELECT table_name, ordinal_position, column_name, data_type, character_maximum_length, is_nullable, column_default
         FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1",
    "SELECT script, checksum, serves FROM ratchet_schema_version ORDER BY 1",
    "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' ORDER BY 1, 2",
)
COLUMNS_POSTGRESQL = """
    SELECT table_name, column_name, CAST(ordinal_position AS {int}) AS n FROM information_schema.columns
     WHERE table_schema = 'public'
"""
COLUMNS_MYSQL = """
    SELECT table_name, column_name, CAST(ordinal_position AS {int}) AS n FROM information_schema.columns
     WHERE table_schema = DATABASE()
"""
COLUMNS_SQLITE = """
    SELECT m.name AS table_name, c.name AS column_name, c.cid + 1 AS n
      FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'
"""


class TestFirstUse:
    def test_sqlite_migrates_by_itself(self, tmp_path: Path) -> None:
        """Nobody has to say anything: the first call makes the file and its schema."""
        store = open_store(f"sqlite:///{tmp_path / 'new.db'}")
        assert store.queues() == []
        store.check_schema()
        store.close()

    def test_postgresql_only_when_told_to(self, postgresql_url: str) -> None:
        """Without auto_migrate the call fails and says what to do; with it, it works."""
        store = open_store(postgresql_url)
        with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
            store.queues()
        store.close()
        told = open_store(postgresql_url, Options(auto_migrate=True))
        assert told.queues() == []
        told.close()

    def test_a_schema_of_its_own(self, postgresql_url: str) -> None:
        """Two installations share a database in two schemas; one of them is made on the way."""
        stores = [open_store(postgresql_url, Options(schema=name)) for name in ("one", 'T"wo')]
        for store in stores:
            assert store.migrate() == [migration.name for migration in migrations_of("postgresql")]
            store.check_schema()
        assert stores[0].pause_queue("q", now=stores[0].database_time())
        assert [record.paused for record in stores[0].queues()] == [True]
        assert stores[1].queues() == []
        for store in stores:
            store.close()
        with psycopg.connect(postgresql_url) as connection:
            assert connection.execute("SELECT to_regclass('public.scheduler_job')").fetchone() == (None,)


def test_the_scripts_are_in_the_package() -> None:
    """They are found as package resources, which is what a wheel ships."""
    versions = {
        name: [migration.version for migration in migrations_of(name)]
        for name in ("sqlite", "postgresql", "mysql")
    }
    assert versions["sqlite"] == versions["postgresql"] == versions["mysql"]
    assert versions["sqlite"] == list(range(1, len(versions["sqlite"]) + 1))
