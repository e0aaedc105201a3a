"""Ratchet in a Django project on PostgreSQL and MySQL: transactions, the ORM in every lane, lost connections, tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.store_url import StoreUrl
from tests.services import mysqlclient
from tests.support.django_project import DjangoProject
from tests.support.waiting import until

KINDS = ("postgresql", "pymysql", "mysqlclient")
PYMYSQL = "import pymysql; pymysql.install_as_MySQLdb()"

NOTES = "print([job.args[0] for job in reversed(scheduler.jobs.find(limit=100).items)])"


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> DjangoProject:
    """A project on a server, with its tables, and a second database beside it."""
    return server_project(request.param, request, tmp_path).migrated()


def server_project(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> DjangoProject:
    """A project on PostgreSQL, or on MySQL through one of its two drivers; without its tables."""
    product = "postgresql" if kind == "postgresql" else "mysql"
    url = StoreUrl.of(request.getfixturevalue(f"{product}_url"))
    ((host, port),) = url.hosts_and_ports
    parameters = dict(url.parameters)
    entry: dict[str, Any] = {
        "ENGINE": f"django.db.backends.{product}",
        "NAME": url.path,
        "USER": url.user or "",
        "PASSWORD": url.password or "",
        "HOST": parameters.pop("host", None) or host,
        "PORT": parameters.pop("port", None) or port or "",
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {name: value for name, value in parameters.items() if not name.startswith("ssl_")},
    }
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "other.sqlite3")}
    project = DjangoProject(
        tmp_path, {"default": entry, "other": other}, before=PYMYSQL if kind == "pymysql" else ""
    )
    if kind == "mysqlclient":
        mysqlclient.install()
        project.more_path = [mysqlclient.folder()]
    return project


class TestTransactions:
    def test_a_job_is_stored_when_and_only_when_the_block_commits(self, project: DjangoProject) -> None:
        """Rolled back blocks and savepoints leave no job; a block of another database is not joined; a busy key breaks no block."""
        shown = project.run(
            """
            from ratchet import BusinessKeyBusy
            class Stop(Exception): pass

            with transaction.atomic():
                Order.objects.create(note="kept")
                scheduler.enqueue_now(jobs.note, "committed")
            try:
                with transaction.atomic():
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
            with transaction.atomic(using="other"):
                scheduler.enqueue_now(jobs.note, "other database")
                transaction.set_rollback(True, using="other")
            scheduler.enqueue(jobs.note, "outside").with_business_key("k").submit()
            with transaction.atomic():
                Order.objects.create(note="beside a busy key")
                try:
                    scheduler.enqueue(jobs.note, "busy").with_business_key("k").submit()
                except BusinessKeyBusy:
                    scheduler.enqueue_now(jobs.note, "instead")
            print(sorted(order.note for order in Order.objects.all()))
            """,
            NOTES,
        )
        assert shown.strip().split("\n") == [
            "['beside a busy key', 'kept']",
            "['committed', 'savepoint, kept', 'other database', 'outside', 'instead']",
        ]

    def test_a_block_that_is_broken_takes_no_job(self, project: DjangoProject) -> None:
        """After an error inside of the block, Django lets nothing more be written in it; a submission is told the same."""
        shown = project.run(
            """
            from django.db import DatabaseError
            from django.db.transaction import TransactionManagementError
            try:
                with transaction.atomic():
                    try:
                        with transaction.atomic(savepoint=False):
                            connection.cursor().execute("SELECT nothing FROM nowhere")
                    except DatabaseError:
                        pass
                    scheduler.enqueue_now(jobs.note, "refused")
            except TransactionManagementError as error:
                print("refused")
            """,
            NOTES,
        )
        assert shown.split() == ["refused", "[]"]

    def test_listeners_and_pollers_hear_of_a_job_after_the_commit(self, project: DjangoProject) -> None:
        """on_commit tells them: nothing before, and nothing for what was rolled back."""
        shown = project.run(
            """
            from ratchet import JobSubmitted
            heard, woken = [], []
            scheduler.on(JobSubmitted)(lambda event: heard.append(event.job_id))
            submitted = scheduler.backend.submitted
            scheduler.backend.submitted = lambda specs, **more: (woken.append(specs[0].job_id), submitted(specs, **more))
            with transaction.atomic():
                scheduler.enqueue_now(jobs.note, "gone")
                transaction.set_rollback(True)
            with transaction.atomic():
                kept = scheduler.enqueue_now(jobs.note, "kept")
                assert not woken
            scheduler.close()
            print(woken == [kept.id], heard == [kept.id])
            """
        )
        assert shown.split() == ["True", "True"]


KILL = """
def kill():
    "End every connection to this database except the one that says so."
    import django.db
    killer = django.db.connections.create_connection("default")
    with killer.cursor() as cursor:
        if killer.vendor == "postgresql":
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                           " WHERE datname = current_database() AND pid <> pg_backend_pid()")
        else:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
            for (number,) in cursor.fetchall():
                try:
                    cursor.execute(f"KILL {number}")
                except django.db.Error:
                    pass  # it has ended meanwhile
    killer.close()
"""


class TestJobs:
    def test_the_orm_in_every_lane_also_after_its_connections_were_killed(
        self, project: DjangoProject
    ) -> None:
        """Threads, event loop and processes; connections that live on between runs are checked before each."""
        shown = project.run(
            KILL,
            """
            if __name__ == "__main__":
                scheduler.start()
                for round in (1, 2):
                    handles = [scheduler.enqueue_now(job, f"{job.__name__} {round}") for job in (jobs.note, jobs.anote, jobs.pnote)]
                    print([handle.result(timeout=60) for handle in handles])
                    kill()
                scheduler.stop()
                print(sorted(order.note for order in Order.objects.all()))
            """,
        )
        lines = [line for line in shown.strip().split("\n") if line.startswith("[")]
        assert lines == [
            "['note 1', 'anote 1', 'pnote 1']",
            "['note 2', 'anote 2', 'pnote 2']",
            "['anote 1', 'anote 2', 'note 1', 'note 2', 'pnote 1', 'pnote 2']",
        ]

    def test_a_worker_that_is_killed_in_a_job(self, project: DjangoProject, tmp_path: Path) -> None:
        """What it wrote in its open block is gone with it; the job runs again, and its effect is there once."""
        runs = tmp_path / "runs"
        runs.mkdir()
        project.run(f"scheduler.enqueue_now(jobs.waits, {str(runs)!r})")
        with project.worker():
            until(lambda: len(list(runs.glob("running-*"))) == 1)
            (first,) = runs.glob("running-*")
            os.kill(int(first.name.partition("-")[2]), signal.SIGKILL)
            until(lambda: len(list(runs.glob("running-*"))) == 2)
            (runs / "go").touch()
            until(lambda: '"SUCCEEDED"' in project.manage("ratchet", "jobs", "list", "--json"))
        shown = project.run(
            "print([order.note for order in Order.objects.all()], [job.crashes for job in scheduler.jobs.find()])"
        )
        assert shown.strip() == "['effect'] [1]"

    def test_tasks(self, project: DjangoProject) -> None:
        """Django's tasks: a value, a coroutine and an exception, and none that was rolled back."""
        shown = project.run(
            """
            from ratchet.testing import run_worker_until_idle
            from TASKS_MODULE.exceptions import TaskResultDoesNotExist
            with transaction.atomic():
                gone = tasks.add.enqueue(1, 1)
                transaction.set_rollback(True)
            with transaction.atomic():
                results = [tasks.add.enqueue(1, 2), tasks.later.enqueue("x"), tasks.broken.enqueue()]
            run_worker_until_idle(scheduler)
            for result in results:
                result.refresh()
            print(*[str(result.status) for result in results], results[0].return_value, results[1].return_value)
            try:
                gone.refresh()
            except TaskResultDoesNotExist:
                print("none")
            """
        )
        assert shown.strip().split("\n")[-2:] == ["SUCCESSFUL SUCCESSFUL FAILED 3 x", "none"]


TESTS = """
from django.db import connection
from django.test import TestCase
from ratchet.contrib.django import scheduler
from shop.jobs import note

class Joined(TestCase):
    def test_one(self):
        scheduler.enqueue_now(note, "one")
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM scheduler_job")
            self.assertEqual(cursor.fetchone(), (1,))

    test_two = test_one  # what the other stored was rolled back
"""


class TestTestRunner:
    def test_tests_use_the_test_database(self, project: DjangoProject) -> None:
        """Its tables are made by migrate; nothing is stored in the database of the application."""
        (project.folder / "shop/tests.py").write_text(TESTS)
        assert "Ran 2 tests" in project.manage("test", "--noinput")
        assert project.run(NOTES).strip() == "[]"
