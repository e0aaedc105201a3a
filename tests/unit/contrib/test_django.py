"""Ratchet in a Django project on SQLite: transactions, tables, command line, connections, checks, test runner."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ratchet.contrib.django.database_url import is_in_memory, url_of
from ratchet.model.errors import ConfigurationError
from ratchet.model.store_url import StoreUrl
from tests.support.django_project import DjangoProject, sqlite_project
from tests.support.waiting import until


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> DjangoProject:
    """A project with its tables; tests share it, and look only at jobs of their own."""
    return sqlite_project(tmp_path_factory.mktemp("project")).migrated()


NOTES = "print([job.args[0] for job in reversed(scheduler.jobs.find(limit=100).items)])"


def targets(file: Path) -> list[str]:
    """The targets of all jobs in a database."""
    with sqlite3.connect(file) as connection:
        found = [row[0] for row in connection.execute("SELECT target FROM scheduler_job")]
    connection.close()
    return found


class TestTransactions:
    def test_a_job_is_stored_when_and_only_when_the_block_commits(self, tmp_path: Path) -> None:
        """Rolled back blocks and savepoints leave no job; what surrounds them, and what is outside, is stored."""
        project = sqlite_project(tmp_path).migrated()
        shown = project.run(
            """
            class Stop(Exception): pass

            with transaction.atomic():
                scheduler.enqueue_now(jobs.note, "committed")
            try:
                with transaction.atomic():
                    Order.objects.create(note="gone")
                    scheduler.enqueue_now(jobs.note, "rolled back")
                    scheduler.enqueue_many(jobs.note, [("many, rolled back",)] * 5000)
                    scheduler.enqueue_batch("b").for_each(["batch, rolled back"], jobs.note).submit()
                    raise Stop
            except Stop:
                pass
            with transaction.atomic():
                try:
                    with transaction.atomic():
                        scheduler.enqueue_now(jobs.note, "savepoint, rolled back")
                        raise Stop
                except Stop:
                    pass
                with transaction.atomic():
                    scheduler.enqueue(jobs.note, "savepoint, kept").submit()
            scheduler.enqueue_now(jobs.note, "outside")
            """,
            NOTES,
        )
        assert shown.strip() == "['committed', 'savepoint, kept', 'outside']"

    def test_within_takes_djangos_connection(self, tmp_path: Path) -> None:
        """The wrapper and django.db.connection are accepted; in autocommit mode, and for another database, they are refused."""
        project = sqlite_project(tmp_path).migrated()
        shown = project.run(
            """
            from ratchet.model.errors import ConfigurationError
            with transaction.atomic():
                scheduler.enqueue(jobs.note, "proxy").submit(within=connection)
                scheduler.enqueue(jobs.note, "wrapper").submit(within=connections["default"])
                transaction.set_rollback(True)
            for one in (connection, connections["other"]):
                try:
                    scheduler.enqueue(jobs.note, "x").submit(within=one)
                except ConfigurationError as error:
                    print(error)
            """,
            NOTES,
        )
        assert "autocommit mode" in shown
        assert "other.sqlite3, but this store is in" in shown
        assert shown.strip().endswith("[]")

    def test_a_block_of_another_database_is_not_joined(self, tmp_path: Path) -> None:
        """A rollback in the database other does not take away a job of the database default."""
        project = sqlite_project(tmp_path).migrated()
        shown = project.run(
            """
            with transaction.atomic(using="other"):
                scheduler.enqueue_now(jobs.note, "kept")
                transaction.set_rollback(True, using="other")
            """,
            NOTES,
        )
        assert shown.strip() == "['kept']"

    def test_jobs_of_another_alias_join_its_blocks_alone(self, tmp_path: Path) -> None:
        """With RATCHET["database"] = "other" it is that alias whose rollback takes the job; the tables are there alone."""
        project = sqlite_project(tmp_path, database="other").migrated()
        project.manage("migrate", "--database", "other", "--verbosity", "0")
        shown = project.run(
            """
            with transaction.atomic(using="other"), transaction.atomic():
                scheduler.enqueue_now(jobs.note, "gone")
                transaction.set_rollback(True, using="other")
            with transaction.atomic():
                scheduler.enqueue_now(jobs.note, "kept")
                transaction.set_rollback(True)
            """,
            NOTES,
        )
        assert shown.strip() == "['kept']"
        assert "scheduler_job" not in _tables(tmp_path / "shop.sqlite3")

    def test_listeners_hear_of_a_job_after_the_commit(self, project: DjangoProject) -> None:
        """JobSubmitted comes after the outermost block, and never for what a savepoint rolled back."""
        shown = project.run(
            """
            from ratchet import JobSubmitted
            heard = []
            scheduler.on(JobSubmitted)(lambda event: heard.append(event.job_id))
            with transaction.atomic():
                kept = scheduler.enqueue_now(jobs.note, "kept")
                try:
                    with transaction.atomic():
                        scheduler.enqueue_now(jobs.note, "gone")
                        raise KeyError
                except KeyError:
                    pass
                assert not heard
            scheduler.close()
            print(heard == [kept.id])
            """
        )
        assert shown.strip() == "True"

    def test_verbs_join_the_block_too(self, tmp_path: Path) -> None:
        """A job canceled in a block that is rolled back still waits; on SQLite this must not wait for itself either."""
        project = sqlite_project(tmp_path).migrated()
        shown = project.run(
            """
            job = scheduler.enqueue_now(jobs.note, "still there")
            with transaction.atomic():
                Order.objects.create(note="takes the write lock")
                assert job.cancel()
                transaction.set_rollback(True)
            print(job.status())
            """
        )
        assert shown.strip() == "PENDING"


class TestConnections:
    def test_a_block_that_a_run_left_open_does_not_swallow_the_next_one(self, tmp_path: Path) -> None:
        """What the next run on the same thread writes is committed; what the first wrote in its open block is not."""
        project = sqlite_project(tmp_path, options={"concurrency": 1}).migrated()
        project.run(
            """
            from ratchet.contrib.django.connections import fresh_connections
            from contextlib import contextmanager
            run = contextmanager(fresh_connections)
            with run(None):
                transaction.atomic().__enter__()
                Order.objects.create(note="in the open block")
            with run(None):
                Order.objects.create(note="afterwards")
            """
        )
        assert _notes(tmp_path) == ["afterwards"]

    def test_connections_live_as_long_as_django_says(self, project: DjangoProject) -> None:
        """With CONN_MAX_AGE 0 a run closes what it opened, with None it keeps it; a block around the run stays open."""
        shown = project.run(
            """
            from ratchet.contrib.django.connections import fresh_connections
            from contextlib import contextmanager
            run = contextmanager(fresh_connections)
            with run(None):
                Order.objects.count()
            print(connection.connection)
            connection.settings_dict["CONN_MAX_AGE"] = None
            with run(None):
                Order.objects.count()
            print(connection.connection is not None)
            with transaction.atomic():
                before = connection.connection
                with run(None):
                    Order.objects.count()
                print(connection.connection is before, Order.objects.count() >= 0)
            """
        )
        assert shown.split() == ["None", "True", "True", "True"]


COUNTED = """
from django.db.backends.base.base import BaseDatabaseWrapper

counts = {"opened": 0, "closed": 0}
connect, close = BaseDatabaseWrapper.connect, BaseDatabaseWrapper._close

def counted_connect(self):
    counts["opened"] += 1
    return connect(self)

def counted_close(self):
    counts["closed"] += self.connection is not None
    return close(self)

BaseDatabaseWrapper.connect, BaseDatabaseWrapper._close = counted_connect, counted_close

@scheduler.job
def in_a_thread():
    Order.objects.count()
    return [counts["opened"], counts["opened"] - counts["closed"]]

@scheduler.job
async def on_the_loop():
    await Order.objects.acount()
    return [counts["opened"], counts["opened"] - counts["closed"]]

@scheduler.job(lane="process")
def in_a_process():
    Order.objects.count()
    return [counts["opened"], counts["opened"] - counts["closed"]]
"""


class TestLanes:
    def test_each_run_has_a_connection_of_its_own_and_leaves_none(self, tmp_path: Path) -> None:
        """As each request of Django has with CONN_MAX_AGE 0: opened in the run, closed after it, in every lane."""
        project = sqlite_project(tmp_path, options={"concurrency": 1, "process_concurrency": 1}).migrated()
        module = tmp_path / "shop/jobs.py"
        module.write_text(module.read_text() + COUNTED)
        shown = project.run(
            """
            if __name__ == "__main__":
                scheduler.start()
                for job in (jobs.in_a_thread, jobs.on_the_loop, jobs.in_a_process):
                    seen = [scheduler.enqueue_now(job).result(timeout=90) for _ in range(3)]
                    print([opened - seen[0][0] for opened, _ in seen], {held for _, held in seen})
                scheduler.stop()
            """
        )
        assert [line for line in shown.split("\n") if line.startswith("[")] == ["[0, 1, 2] {1}"] * 3


class TestTables:
    def test_migrate_makes_and_upgrades_the_tables_of_one_database(self, tmp_path: Path) -> None:
        """Only the named alias gets them; where Django has recorded its migration, a schema that lacks a script is upgraded."""
        project = sqlite_project(tmp_path)
        project.manage("migrate", "--database", "other", "--verbosity", "0")
        project.manage("migrate", "--verbosity", "0")
        assert _tables(tmp_path / "other.sqlite3") == []
        assert "scheduler_job" in _tables(tmp_path / "shop.sqlite3")
        with sqlite3.connect(tmp_path / "shop.sqlite3") as connection:
            for table in _tables(tmp_path / "shop.sqlite3"):
                connection.execute(f"DROP TABLE {table}")
        connection.close()
        project.manage("migrate", "--verbosity", "0")
        assert "scheduler_job" in _tables(tmp_path / "shop.sqlite3")
        assert "up to date" in project.manage("ratchet", "db", "status")


def _tables(file: Path) -> list[str]:
    with sqlite3.connect(file) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND (name LIKE 'scheduler%' OR name LIKE 'ratchet%')"
        ).fetchall()
    connection.close()
    return [name for (name,) in found]


class TestCommandLine:
    def test_the_worker_runs_jobs_that_use_the_orm_in_every_lane(self, tmp_path: Path) -> None:
        """Threads, event loop and processes: Django is set up in each, and jobs of apps are found without being named."""
        project = sqlite_project(tmp_path).migrated()
        project.run(
            "for job in (jobs.note, jobs.anote, jobs.pnote): scheduler.enqueue_now(job, job.__name__)"
        )
        with project.worker():
            until(lambda: _notes(tmp_path) == ["anote", "note", "pnote"], 90)
        listed = json.loads(project.manage("ratchet", "jobs", "list", "--json"))
        assert {job["status"] for job in listed["jobs"]} == {"SUCCEEDED"}

    def test_a_command_fails_with_its_own_exit_code_and_help(self, project: DjangoProject) -> None:
        """--help is the help of Ratchet, and an error is a line instead of a traceback."""
        assert "check-deploy" in project.manage("ratchet", "--help")
        assert "Traceback" not in project.manage("ratchet", "jobs", "show", "00000000", fails=True)


def _notes(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "shop.sqlite3") as connection:
        found = sorted(row[0] for row in connection.execute("SELECT note FROM shop_order"))
    connection.close()
    return found


class TestUrls:
    @pytest.mark.parametrize(
        ("engine", "entry", "expected"),
        [
            ("postgresql", {"HOST": "db", "PORT": 5433}, ("postgresql", "db:5433")),
            ("postgresql", {"HOST": "/run/pg", "PORT": "5433"}, ("postgresql", "")),
            ("postgresql", {"HOST": "::1"}, ("postgresql", "[::1]")),
            ("mysql", {"HOST": "db"}, ("mysql", "db")),
            ("mysql", {}, ("mysql", "localhost")),
        ],
    )
    def test_names_and_passwords_are_escaped(
        self, engine: str, entry: dict[str, Any], expected: tuple[str, str]
    ) -> None:
        """Whatever characters they have, the URL is read back with the same user, password and database."""
        secret = {"USER": "ann@shop", "PASSWORD": "p:/?#[]@ %20ü", "NAME": "sh-op db"}
        found = StoreUrl.of(url_of("default", {"ENGINE": f"django.db.backends.{engine}", **secret, **entry}))
        assert (found.scheme, found.hosts) == expected
        assert (found.user, found.password, found.path) == (
            secret["USER"],
            secret["PASSWORD"],
            secret["NAME"],
        )

    def test_options_of_the_database_go_along(self) -> None:
        """TLS, search path and sockets are the connection's; Django's own options are left out."""
        entry = {
            "ENGINE": "django.contrib.gis.db.backends.postgis",
            "NAME": "shop",
            "HOST": "/run/pg",
            "PORT": 5433,
            "OPTIONS": {
                "sslmode": "require",
                "options": "-c search_path=a,b",
                "pool": True,
                "assume_role": "x",
            },
        }
        assert dict(StoreUrl.of(url_of("default", entry)).parameters) == {
            "sslmode": "require",
            "options": "-c search_path=a,b",
            "host": "/run/pg",
            "port": "5433",
        }
        mysql = {
            "ENGINE": "django.db.backends.mysql",
            "NAME": "shop",
            "HOST": "/run/my.sock",
            "OPTIONS": {"ssl": {"ca": "/ca.pem"}},
        }
        assert dict(StoreUrl.of(url_of("default", mysql)).parameters) == {
            "ssl_ca": "/ca.pem",
            "unix_socket": "/run/my.sock",
        }

    def test_what_cannot_keep_jobs_is_refused(self) -> None:
        """Oracle, a login in a file, no file: each error names the setting."""
        with pytest.raises(ConfigurationError, match="oracle"):
            url_of("default", {"ENGINE": "django.db.backends.oracle", "NAME": "x"})
        with pytest.raises(ConfigurationError, match="read_default_file"):
            url_of(
                "default", {"ENGINE": "django.db.backends.mysql", "OPTIONS": {"read_default_file": "/my.cnf"}}
            )
        with pytest.raises(ConfigurationError, match="NAME"):
            url_of("default", {"ENGINE": "django.db.backends.sqlite3"})
        assert is_in_memory(
            {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:m?mode=memory&cache=shared"}
        )


class TestChecks:
    @pytest.mark.parametrize(
        ("ratchet", "told"),
        [
            ({"database": "nowhere"}, "names the database 'nowhere'"),
            ({"databse": "default"}, "known are database, options"),
            ({"options": {"no_such": 1}}, "no_such"),
            ({"allow": "shop"}, "list of module names"),
        ],
    )
    def test_wrong_settings_are_named(self, tmp_path: Path, ratchet: dict[str, Any], told: str) -> None:
        """``manage.py check`` says which setting is wrong, instead of a traceback later."""
        project = sqlite_project(tmp_path, **ratchet)
        (tmp_path / "shop/jobs.py").write_text("")
        (tmp_path / "shop/tasks.py").write_text("")
        shown = project.manage("check", fails=True)
        assert told in shown

    def test_sqlite_without_the_write_lock_is_a_warning(self, tmp_path: Path) -> None:
        """The database other has no transaction_mode."""
        assert "ratchet.W001" in sqlite_project(tmp_path, database="other").manage("check")


TESTS = """
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from ratchet.contrib.django import scheduler
from ratchet.testing import IsolatedTestCase, isolated
from shop.jobs import note, anote
from shop.models import Order

scheduler.health()  # opens the store, before there is a test database

class Joined(TestCase):
    def test_one(self):
        scheduler.enqueue_now(note, "one")
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM scheduler_job")
            self.assertEqual(cursor.fetchone(), (1,))

    test_two = test_one  # what the other stored was rolled back

class Committed(TransactionTestCase):
    def test_rollback(self):
        with transaction.atomic():
            scheduler.enqueue_now(note, "gone")
            transaction.set_rollback(True)
        kept = scheduler.enqueue_now(note, "kept")
        self.assertEqual([job.id for job in scheduler.jobs.find().items], [kept.id])

class Isolated(IsolatedTestCase, TestCase):
    ratchet_schedulers = [scheduler]

    def test_runs_here(self):
        self.assertIsNone(scheduler.backend.surrounding)
        with transaction.atomic():
            scheduler.enqueue_now(note, "drained")
        self.ratchet.assert_enqueued(note, "drained")
        self.ratchet.drain()
        self.assertEqual(Order.objects.get().note, "drained")
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM scheduler_job")
            self.assertEqual(cursor.fetchone(), (0,))
"""


FORBIDDEN = """
from django.test import SimpleTestCase
from ratchet.contrib.django import scheduler
from shop.jobs import note

class Forbidden(SimpleTestCase):
    def test_submit(self):
        with self.assertRaisesRegex(Exception, "not allowed in SimpleTestCase"):
            scheduler.enqueue_now(note, "forbidden")
        with self.assertRaisesRegex(Exception, "not allowed in SimpleTestCase"):
            scheduler.jobs.count()
"""

WITH_PYTEST = """
import pytest
from django.db import connection, transaction
from ratchet import JobSubmitted
from ratchet.contrib.django import scheduler
from shop.jobs import note
from shop.models import Order

def stored():
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM scheduler_job")
        return cursor.fetchone()[0]

def test_a_test_without_a_database():
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        scheduler.enqueue_now(note, "forbidden")

@pytest.mark.django_db
@pytest.mark.parametrize("again", [1, 2])
def test_what_is_submitted_is_rolled_back_with_the_test(again):
    scheduler.enqueue_now(note, "joined")
    assert stored() == 1

@pytest.mark.django_db(transaction=True)
def test_committed():
    before = stored()
    with transaction.atomic():
        scheduler.enqueue_now(note, "gone")
        transaction.set_rollback(True)
    kept = scheduler.enqueue_now(note, "kept")
    assert stored() == before + 1
    assert scheduler.jobs.get(kept.id).args == ("kept",)

def test_on_commit(db, django_capture_on_commit_callbacks):
    heard = []
    scheduler.on(JobSubmitted)(heard.append)
    with django_capture_on_commit_callbacks(execute=True):
        with transaction.atomic():
            scheduler.enqueue_now(note, "told")
            assert not heard
    scheduler.backend.bus.flush()
    assert len(heard) == 1
    scheduler.off(heard.append)

def test_run_here(db, ratchet_isolated):
    scheduler.enqueue_now(note, "drained")
    ratchet_isolated.assert_enqueued(note, "drained")
    ratchet_isolated.drain()
    assert Order.objects.get().note == "drained"
    assert stored() == 0

def test_submit_where_no_database_is_allowed(ratchet_isolated):
    scheduler.enqueue_now(note, "in memory")
    ratchet_isolated.assert_enqueued(note, "in memory")
"""


class TestPytestDjango:
    @pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "xdist"])
    def test_tests_need_no_worker(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        """Its marks and fixtures do with jobs what they do with models; nothing reaches the database of the application."""
        project = sqlite_project(tmp_path).migrated()
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nDJANGO_SETTINGS_MODULE = project.settings\nratchet_schedulers = ratchet.contrib.django:scheduler\n"
        )
        (tmp_path / "test_shop.py").write_text(WITH_PYTEST)
        assert "7 passed" in project.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
        assert targets(tmp_path / "shop.sqlite3") == []


class TestTestRunner:
    def test_where_no_database_is_allowed_there_are_no_jobs(self, tmp_path: Path) -> None:
        """In a SimpleTestCase there is no test database, and a job would land in that of the application: it is refused as a query is."""
        project = sqlite_project(tmp_path).migrated()
        (tmp_path / "shop/tests.py").write_text(FORBIDDEN)
        assert "Ran 1 test" in project.manage("test", "--noinput")
        assert targets(tmp_path / "shop.sqlite3") == []

    @pytest.mark.parametrize("where", ["memory", "file"])
    def test_tests_use_the_test_database_without_a_worker(self, tmp_path: Path, where: str) -> None:
        """TestCase, TransactionTestCase and isolated(); nothing reaches the database of the application, also if it was used before."""
        project = sqlite_project(tmp_path)
        if where == "file":
            settings = tmp_path / "project/settings.py"
            settings.write_text(
                settings.read_text()
                + f"\nDATABASES['default']['TEST'] = {{'NAME': {str(tmp_path / 'test.sqlite3')!r}}}\n"
            )
        project.migrated()
        (tmp_path / "shop/tests.py").write_text(TESTS)
        assert "Ran 4 tests" in project.manage("test", "--noinput")
        assert targets(tmp_path / "shop.sqlite3") == []
