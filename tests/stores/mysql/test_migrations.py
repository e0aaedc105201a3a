"""Migrations where no change of the schema can be rolled back: killed anywhere, resumed, and never done twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.errors import SchemaChanged, SchemaOutOfDate, StoreError
from ratchet.model.options import Options
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dialects.mysql.scripts import PROGRESS, statements_of
from ratchet.stores.sql.migrations import Migration, SchemaMigrator, migrations_of
from ratchet.stores.sql.store import open_store
from ratchet.stores.sql.urls import dialect_of
from tests.services.mariadb import MariaDB
from tests.stores.mysql_server import ask, connect
from tests.stores.sql_stores import SqlSteps

DDL = files("ratchet.stores.sql").joinpath("ddl", "mysql")

# kills itself at the n-th statement that it sends, before or after the server has done it
KILLED = """
import os, signal, sys
from ratchet.model.options import Options
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dialects.mysql.session import MysqlSession
from ratchet.stores.sql.migrations import SchemaMigrator
from ratchet.stores.sql.urls import dialect_of
url, number, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
plain = MysqlSession.plain
sent = 0
def counted(self, text):
    global sent
    sent += 1
    if sent == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = plain(self, text)
    if sent == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
MysqlSession.plain = counted
SchemaMigrator(Database(dialect_of(url, Options()))).migrate()
"""

CATALOG = (
    """SELECT table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra, collation_name
         FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1, 2""",
    """SELECT table_name, index_name, seq_in_index, column_name, non_unique
         FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY 1, 2, 3""",
    "SELECT script, checksum, serves FROM ratchet_schema_version",
    """SELECT constraint_name, check_clause FROM information_schema.check_constraints
        WHERE constraint_schema = DATABASE() ORDER BY 1""",
)


@pytest.fixture
def database(mysql_url: str) -> Iterator[Database]:
    database = Database(dialect_of(mysql_url, Options()))
    yield database
    database.close()


def catalog(url: str) -> list[Any]:
    with closing(connect(url)) as connection:
        return [ask(connection, query) for query in CATALOG]


def tables(url: str) -> set[str]:
    with closing(connect(url)) as connection:
        return {name for (name,) in ask(connection, "SHOW TABLES")}


@pytest.fixture(scope="module")
def whole(mariadb_server: MariaDB) -> Iterator[list[Any]]:
    """The schema as nobody has interrupted it."""
    url = mariadb_server.create_database()
    with closing(open_store(url)) as store:
        store.migrate()
    yield catalog(url)
    mariadb_server.drop_database(url)


@pytest.mark.cluster
class TestKilled:
    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize(
        "number", [2, 3, 4, 5, 6, 7, 30, 31, 32, 33, 94, 95, 96, 97, 98, 99, 105, 110, 111, 112, 113, 114]
    )
    def test_anywhere(self, mysql_url: str, whole: list[Any], number: int, moment: str) -> None:
        """After kill -9 at any statement the schema is refused, and the next run goes on and makes all of it."""
        child = subprocess.run([sys.executable, "-c", KILLED, mysql_url, str(number), moment], timeout=60)
        with closing(open_store(mysql_url)) as store:
            if child.returncode == 0:  # there are not so many statements
                assert number > 4 * len(statements_of(migrations_of("mysql")[0].text))
                return
            assert child.returncode == -9
            try:
                store.check_schema()
            except SchemaOutOfDate:
                applied = store.migrate()
                assert applied  # and those after it
                assert applied == [migration.name for migration in migrations_of("mysql")][-len(applied) :]
            else:  # killed when all was done, but for clearing up
                assert store.migrate() == []
            store.check_schema()
            assert store.migrate() == []
        assert catalog(mysql_url) == whole
        assert PROGRESS not in tables(mysql_url)

    def test_again_and_again(self, mysql_url: str, whole: list[Any]) -> None:
        """Each run gets a little further; in the end it is the same schema."""
        for _ in range(12):
            subprocess.run([sys.executable, "-c", KILLED, mysql_url, "9", "after"], timeout=60)
        assert len(tables(mysql_url)) > 10
        with closing(open_store(mysql_url)) as store:
            store.migrate()
            store.check_schema()
        assert catalog(mysql_url) == whole


class TestProgress:
    def test_what_was_done_is_not_done_again(self, database: Database, mysql_url: str) -> None:
        """Not even by accident: rows that a script has changed are changed once."""
        first = Migration(
            "V001__first",
            "CREATE TABLE scheduler_one (a INT);\nINSERT INTO scheduler_one VALUES (1);\nALTER TABLE no_such_table ADD b INT;",
        )
        for _ in range(2):
            with pytest.raises(StoreError):
                SchemaMigrator(database, [first]).migrate()
        repaired = Migration(first.name, first.text.replace("no_such_table", "scheduler_one"))
        assert SchemaMigrator(database, [repaired]).migrate() == ["V001__first"]
        with closing(connect(mysql_url)) as connection:
            assert ask(connection, "SELECT a, b FROM scheduler_one") == ((1, None),)

    def test_a_script_that_begins_like_another(self, database: Database, mysql_url: str) -> None:
        """The progress of one script is not taken for that of the next."""
        insert = "INSERT INTO scheduler_one VALUES (1);"
        first = Migration("V001__first", "CREATE TABLE scheduler_one (a INT);")
        second, third = Migration("V002__second", insert), Migration("V003__third", insert)
        assert len(SchemaMigrator(database, [first, second, third]).migrate()) == 3
        with closing(connect(mysql_url)) as connection:
            assert ask(connection, "SELECT count(*) FROM scheduler_one") == ((2,),)

    def test_a_script_that_was_changed_after_it_was_applied(self, database: Database) -> None:
        """Is refused, as everywhere."""
        first = Migration("V001__first", "CREATE TABLE scheduler_one (a INT);")
        SchemaMigrator(database, [first]).migrate()
        with pytest.raises(SchemaChanged):
            SchemaMigrator(database, [Migration(first.name, first.text + " ")]).migrate()

    def test_statements(self) -> None:
        """Semicolons and dashes in texts and comments end nothing; what the products read in comments stays."""
        script = (
            "CREATE TABLE a (b TEXT DEFAULT ';--'); -- c; d\n/*M! x; */ SELECT `;`, '\\';', 1 - 2;;\n-- end"
        )
        assert statements_of(script) == [
            "CREATE TABLE a (b TEXT DEFAULT ';--')",
            "/*M! x; */ SELECT `;`, '\\';', 1 - 2",
        ]


class TestCleanInstall:
    def test_it_makes_the_same_catalog(self, mariadb_server: MariaDB) -> None:
        """Tables, columns, collations and indexes are the same, and the migrator accepts them."""
        catalogs = []
        for by_hand in (True, False):
            url = mariadb_server.create_database()
            with closing(open_store(url)) as store:
                if by_hand:
                    with closing(connect(url)) as connection:
                        for statement in statements_of(
                            DDL.joinpath("schema.sql").read_text(encoding="utf-8")
                        ):
                            ask(connection, statement)
                        connection.commit()
                store.migrate()
                store.check_schema()
            catalogs.append(catalog(url))
            mariadb_server.drop_database(url)
        assert catalogs[0] == catalogs[1]
        assert len(catalogs[0][0]) > 200

    def test_texts_are_compared_exactly(self, mysql_url: str) -> None:
        """No column of ours has a collation that ignores case, accents or trailing spaces."""
        with closing(open_store(mysql_url)) as store:
            store.migrate()
        found = {row[7] for row in catalog(mysql_url)[0] if row[0].startswith("scheduler_")}
        assert found <= {None, "ascii_bin", "utf8mb4_nopad_bin", "utf8mb4_0900_bin"}

    def test_it_is_created_only_when_told_to(self, mysql_url: str) -> None:
        """Without auto_migrate the call fails and says what to do; with it, it works."""
        with (
            closing(open_store(mysql_url)) as store,
            pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"),
        ):
            store.queues()
        with closing(open_store(mysql_url, Options(auto_migrate=True))) as told:
            assert told.queues() == []


class TestViews:
    @pytest.fixture
    def steps(self, mysql_url: str) -> Iterator[SqlSteps]:
        steps = SqlSteps(mysql_url)
        yield steps
        steps.close()

    def test_ids_can_be_read(self, steps: SqlSteps, mysql_url: str) -> None:
        """The operator's views show what the store knows, with ids as people write them; applied twice they stay."""
        parent, child = steps.spec(tags=("billing",)), steps.child()
        steps.insert([parent, child], [steps.edge(parent, child)])
        claim = steps.claim_job(parent.job_id)
        with closing(connect(mysql_url, autocommit=True)) as connection:
            for _ in range(2):
                for statement in statements_of(
                    DDL.joinpath("views", "vw_jobs.sql").read_text(encoding="utf-8")
                ):
                    ask(connection, statement)
            query = "SELECT job_id, status, queue, claim_id, parent_id FROM vw_jobs ORDER BY job_id"
            assert ask(connection, query) == (
                (str(parent.job_id), "RUNNING", "default", str(claim.claim_id), None),
                (
                    str(child.job_id),
                    "WAITING",
                    "default",
                    None,
                    None if child.parent_id is None else str(child.parent_id),
                ),
            )
            found = f"SELECT job_id FROM vw_jobs WHERE raw_job_id = UNHEX(REPLACE('{child.job_id}', '-', ''))"
            assert ask(connection, found) == ((str(child.job_id),),)
            assert ask(connection, "EXPLAIN " + found)[0][3] == "const"
            by_text = f"SELECT status FROM vw_jobs WHERE job_id = '{parent.job_id}'"
            assert ask(connection, by_text) == (("RUNNING",),)
            assert ask(connection, "SELECT job_id, tag FROM vw_job_tags") == (
                (str(parent.job_id), "billing"),
            )
            assert ask(connection, "SELECT parent_id, child_id FROM vw_dependencies") == (
                (str(parent.job_id), str(child.job_id)),
            )
            steps.end(claim, steps.failure())
            (letter,) = ask(connection, "SELECT job_id FROM vw_dead_letters")
            (run,) = ask(connection, "SELECT job_id, claim_id, status FROM vw_job_executions")
            assert UUID(letter[0]) == parent.job_id
            assert run == (str(parent.job_id), str(claim.claim_id), "FAILED")
            assert (
                ask(connection, "SELECT * FROM vw_batches")
                == ask(connection, "SELECT * FROM vw_job_logs")
                == ()
            )
        # people's views are no part of the schema: the migrator does not mind them
        steps.store.check_schema()
