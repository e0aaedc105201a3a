"""``ratchet db upgrade --check``: it says what would be applied and who would wait, and that is what the servers then do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from typer.testing import CliRunner, Result

from ratchet.cli.app import app
from ratchet.model.options import Options
from ratchet.model.upgrades import LockTime, PlannedMigration, TableLock
from ratchet.stores import open_store
from ratchet.stores.sql.dialects.mysql.scripts import statements_of
from ratchet.stores.sql.migrations import PRODUCTS, Migration, SchemaMigrator, migrations_of
from ratchet.stores.sql.store import SqlStore
from ratchet.stores.sql.upgrade_plan import Action, actions_of
from tests.support.store_urls import KINDS, empty_url
from tests.upgrades.restore import mysql, restore

#: The locks of PostgreSQL that a writer, and that a reader, waits for.
STOPS_WRITERS = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock"}
STOPS_EVERYBODY = {"AccessExclusiveLock"}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they need to be."""
    monkeypatch.setenv("COLUMNS", "300")


def run(url: str, *more: str) -> Result:
    return CliRunner().invoke(app, ["db", "upgrade", "--check", "--url", url, *more])


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database as 0.1.0 has left it."""
    found = empty_url(request.param, request, tmp_path)
    restore(request.param, found)
    return found


def test_it_says_what_an_upgrade_of_an_old_database_would_do(url: str) -> None:
    """
    Every missing migration, each table with its rows, who waits; that old nodes may stay, but not start; exit code 4, and 0 afterwards.

    Nothing is changed by asking.
    """
    for _ in range(2):
        answer = run(url, "--json")
        assert answer.exit_code == 4, answer.output
    plan = json.loads(answer.stdout)
    names = [migration["name"] for migration in plan["migrations"]]
    assert names[:2] == ["V002__checks", "V003__queue_pauses"]
    assert (plan["old_nodes_stay"], plan["old_nodes_may_start"], plan["is_new"]) == (True, False, False)
    changes = {change["table"]: change for one in plan["migrations"] for change in one["changes"]}
    assert changes["scheduler_audit"]["rows"] is None  # it is new
    if "mongodb" in url:
        assert {change["waits"] for change in changes.values()} == {"nobody"}
    else:
        assert changes["scheduler_node"]["does"] == "adds the column request"
        assert changes["scheduler_node"]["waits"] == ("writers" if "sqlite" in url else "everybody")
        assert changes["scheduler_node"]["rows"] is not None
    shown = run(url)
    assert shown.exit_code == 4
    assert "may stay: those that run go on, but one that is started after the upgrade refuses" in shown.stdout.replace("\n", " ")  # fmt: skip
    for name in (*names, "scheduler_audit", "who waits", "how long"):
        assert name in shown.stdout

    store = open_store(url, Options())
    assert store.migrate() == names
    store.close()
    done = run(url)
    assert (done.exit_code, "nothing would be applied" in done.stdout) == (0, True)
    assert json.loads(run(url, "--json").stdout)["migrations"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_the_first_upgrade_would_do(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """An empty database: everything would be made, nobody is in the way, and looking makes nothing."""
    url = empty_url(kind, request, tmp_path)
    answer = run(url)
    assert answer.exit_code == 4, answer.output
    assert "V001__initial" in answer.stdout
    assert "there is no schema yet" in answer.stdout
    assert list(tmp_path.iterdir()) == []
    assert json.loads(run(url, "--json").stdout)["is_new"] is True


def test_a_migration_that_older_code_does_not_survive_is_exit_code_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script without ``-- serves:`` says that everybody has to be stopped first, and which script it is."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    store = open_store(url, Options())
    store.migrate()
    store.close()
    breaking = Migration("V999__break", "CREATE TABLE scheduler_new (a INTEGER);")
    known = [*migrations_of("sqlite"), breaking]
    monkeypatch.setattr("ratchet.stores.sql.migrations.migrations_of", lambda product: known)
    answer = run(url)
    assert answer.exit_code == 5
    assert "stop every node and application of the version before first" in answer.stdout.replace("\n", " ")
    assert "V999__break" in answer.stdout


def test_a_newer_schema_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is older than the schema plans nothing, and says so."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with monkeypatch.context() as patched:
        newer = [*migrations_of("sqlite"), Migration("V999__new", "CREATE TABLE scheduler_new (a INTEGER);")]
        patched.setattr("ratchet.stores.sql.migrations.migrations_of", lambda product: newer)
        store = open_store(url, Options())
        store.migrate()
        store.close()
    answer = run(url)
    assert answer.exit_code == 1
    assert "upgrade this installation" in answer.stderr


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_statement_of_every_script_is_understood(product: str) -> None:
    """A script with a statement that the plan cannot read would be planned as the worst that can happen."""
    for migration in migrations_of(product):
        for action, table, name in actions_of(migration.text):
            assert action is not Action.UNKNOWN, f"{migration.name}: {name}"
            assert table.startswith(("scheduler_", "ratchet_")), f"{migration.name}: {table}"


def test_a_statement_that_is_not_understood_is_the_worst() -> None:
    """Nobody is told that an upgrade is harmless because nobody could read it."""
    script = Migration("V002__odd", "-- serves: V001\nREINDEX TABLE scheduler_job;")
    assert [action for action, _, _ in actions_of(script.text)] == [Action.UNKNOWN]


# --- as the servers do it


@pytest.fixture
def old_postgresql(postgresql_url: str) -> Iterator[SqlStore]:
    store = open_store(postgresql_url, Options())
    assert isinstance(store, SqlStore)
    restore("postgresql", postgresql_url)
    yield store
    store.close()


def test_postgresql_takes_the_locks_that_the_plan_says(old_postgresql: SqlStore, postgresql_url: str) -> None:
    """Each script runs in a transaction that is rolled back: `pg_locks` has, for each table, what the plan says, and nothing beside."""
    plan = {one.name: one for one in old_postgresql.upgrade_plan().migrations}
    with psycopg.connect(postgresql_url) as connection:
        existing = {
            name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relkind = 'r'")
        }
        for migration in migrations_of("postgresql")[1:]:
            connection.execute(migration.text)  # type: ignore[call-overload]
            taken = connection.execute(
                "SELECT relation::regclass::text, mode FROM pg_locks JOIN pg_class ON pg_class.oid = relation "
                "WHERE pid = pg_backend_pid() AND relkind = 'r' AND relname NOT LIKE 'pg\\_%%'", ()
            ).fetchall()  # fmt: skip
            assert _said(plan[migration.name]) == _taken(taken, existing), migration.name
            connection.commit()  # the next script builds on it
            existing |= {change.table for change in plan[migration.name].changes}


def _said(planned: PlannedMigration) -> dict[str, TableLock]:
    return {change.table: change.waits for change in planned.changes if change.waits is not TableLock.NOBODY}


def _taken(locks: list[Any], existing: set[str]) -> dict[str, TableLock]:
    found: dict[str, TableLock] = {}
    for table, mode in locks:
        if table in existing and mode in STOPS_EVERYBODY:
            found[table] = TableLock.EVERYBODY
        elif table in existing and mode in STOPS_WRITERS:
            found.setdefault(table, TableLock.WRITERS)
    return found


def test_postgresql_reads_rows_before_it_locks(old_postgresql: SqlStore) -> None:
    """No table stays locked while rows of another are read: every wait of the plan is a moment."""
    waits = [one for migration in old_postgresql.upgrade_plan().migrations for one in migration.changes]
    assert {one.lasts for one in waits} == {LockTime.MOMENT}
    script = next(one.text for one in migrations_of("postgresql") if one.name == "V002__checks")
    assert script.index("SELECT EXISTS") < script.index("ALTER TABLE %I") < script.index("CREATE TRIGGER")


def test_mysql_changes_tables_in_the_way_that_the_plan_says(mysql_url: str) -> None:
    """The server accepts ALGORITHM=INSTANT where the plan says a moment, and refuses anything but a copy where it says copying."""
    restore("mysql", mysql_url)
    store = open_store(mysql_url, Options())
    planned = {
        (migration.name, change.table, change.does): change
        for migration in store.upgrade_plan().migrations
        for change in migration.changes
    }
    store.close()
    checked = 0
    with mysql(mysql_url) as connection, connection.cursor() as cursor:
        for migration in migrations_of("mysql")[1:]:
            for statement in statements_of(migration.text):
                if statement.startswith("ALTER TABLE"):
                    ((action, table, name),) = actions_of(statement + ";")
                    change = planned[migration.name, table, f"{action.value} {name}"]
                    checked += 1
                    is_instant = _accepts(cursor, f"{statement}, ALGORITHM=INSTANT")
                    is_online = is_instant or _accepts(cursor, f"{statement}, ALGORITHM=NOCOPY, LOCK=NONE")
                    assert (change.lasts is LockTime.MOMENT) == is_online, statement
                    if is_online:
                        continue
                cursor.execute(statement)
    assert checked > 10


def _accepts(cursor: Any, statement: str) -> bool:
    try:
        cursor.execute(statement)
    except (pymysql.err.OperationalError, pymysql.err.NotSupportedError) as error:
        if error.args[0] not in (1845, 1846):  # ALGORITHM or LOCK is not supported for this
            raise
        return False
    return True


def test_a_transaction_that_takes_long_holds_all_of_its_locks() -> None:
    """What a script has locked for a moment stays locked while a later statement of it reads a table."""
    from ratchet.stores.sql.dialects.postgresql.locks import LOCKS
    from ratchet.stores.sql.upgrade_plan import planned

    script = Migration(
        "V002__slow",
        "-- serves: V001\nALTER TABLE scheduler_node ADD COLUMN a text;\nCREATE INDEX i ON scheduler_job (a);\n"
        "ALTER TABLE scheduler_batch ADD COLUMN a text;\n",
    )  # fmt: skip
    plan = planned(
        [script], LOCKS, newest=1, knows_serving=False, transactional=True,
        rows={"scheduler_job": 5_000_000, "scheduler_node": 2, "scheduler_batch": 3},
    )  # fmt: skip
    lasts = {change.table: change.lasts for change in plan.migrations[0].changes}
    assert lasts == {
        "scheduler_node": LockTime.READING,
        "scheduler_job": LockTime.READING,
        "scheduler_batch": LockTime.MOMENT,
    }
    assert plan.migrations[0].changes[0].seconds == plan.migrations[0].changes[1].seconds == 5.0


def test_a_migrator_plans_what_it_applies(postgresql_url: str) -> None:
    """The plan names exactly the scripts that an upgrade then applies, also from the middle."""
    store = open_store(postgresql_url, Options())
    assert isinstance(store, SqlStore)
    SchemaMigrator(store.database, migrations_of("postgresql")[:3]).migrate()
    plan = store.upgrade_plan()
    assert plan.stays
    assert plan.restarts  # code since V002 reads what serves it
    assert [one.name for one in plan.migrations] == store.migrate()
    store.close()
