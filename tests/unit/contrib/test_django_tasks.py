"""Django's tasks on Ratchet: what a backend promises, and what Django's own backends assert about themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.django_project import DjangoProject, sqlite_project


@pytest.fixture
def project(tmp_path: Path) -> DjangoProject:
    """A project with its tables and with tasks."""
    return sqlite_project(tmp_path).migrated()


#: Runs what is due, here, against the real store.
DRAIN = """
from ratchet.testing import run_worker_until_idle
def drain():
    run_worker_until_idle(scheduler)
"""


class TestEnqueue:
    def test_a_result_says_what_was_enqueued(self, project: DjangoProject) -> None:
        """READY, with its arguments, id and time; found again by its id, by sync and async code."""
        shown = project.run(
            """
            import asyncio
            result = tasks.add.enqueue(1, b=2)
            print(result.status, result.args, result.kwargs, result.backend, result.attempts)
            again = tasks.add.get_result(result.id)
            print(again == result or (again.id, again.args, again.kwargs) == (result.id, [1], {"b": 2}))
            print(result.enqueued_at is not None, result.started_at, result.finished_at, result.is_finished)
            other = asyncio.run(tasks.add.aenqueue(3, 4))
            print(asyncio.run(tasks.add.aget_result(other.id)).args)
            """
        )
        assert shown.split("\n")[:4] == [
            "READY [1] {'b': 2} default 0",
            "True",
            "True None None False",
            "[3, 4]",
        ]

    def test_queue_priority_and_time_are_the_jobs_own(self, project: DjangoProject) -> None:
        """queue_name, -100 to 100 on five levels, and run_after; each comes back with the result."""
        shown = project.run(
            """
            from datetime import timedelta
            from django.utils import timezone
            from ratchet.contrib.django.task_backend import priority_of
            at = timezone.now() + timedelta(hours=1)
            result = tasks.mail.using(run_after=at).enqueue("ann")
            job = scheduler.jobs.get(result.id)
            print(job.queue, job.priority.name, job.scheduled_at == at, job.tags)
            task = tasks.mail.get_result(result.id).task
            print(task.queue_name, task.priority, task.run_after == at)
            print([priority_of(n).name for n in (-100, -61, -60, -21, -20, 0, 20, 21, 60, 61, 100)])
            """
        )
        first, second, third = shown.strip().split("\n")
        assert first == "mails HIGH True ('shop.tasks.mail',)"
        assert second == "mails 50 True"
        assert third == str(["LOWEST"] * 2 + ["LOW"] * 2 + ["NORMAL"] * 3 + ["HIGH"] * 2 + ["CRITICAL"] * 2)

    def test_a_task_joins_the_transaction(self, project: DjangoProject) -> None:
        """Rolled back: there is no result, as Django defines it."""
        shown = project.run(
            """
            from TASKS_MODULE.exceptions import TaskResultDoesNotExist
            with transaction.atomic():
                result = tasks.add.enqueue(1, 2)
                transaction.set_rollback(True)
            for unknown in (result.id, "no id", str(scheduler.enqueue_now(jobs.note, "no task").id)):
                try:
                    tasks.add.get_result(unknown)
                except TaskResultDoesNotExist:
                    print("none")
            """
        )
        assert shown.split() == ["none"] * 3

    def test_what_django_refuses_is_refused(self, project: DjangoProject) -> None:
        """Priorities out of range, times without a zone, arguments that are no JSON, tasks of another kind."""
        shown = project.run(
            """
            from datetime import datetime
            from TASKS_MODULE import exceptions
            from TASKS_MODULE.exceptions import TaskResultMismatch
            InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
            for wrong in ({"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"run_after": datetime(2030, 1, 1)}):
                try:
                    tasks.add.using(**wrong)
                except InvalidTask as error:
                    print("refused")
            try:
                tasks.add.enqueue(object(), 1)
            except TypeError:
                print("refused")
            result = tasks.add.enqueue(1, 2)
            try:
                tasks.broken.get_result(result.id)
            except TaskResultMismatch:
                print("refused")
            """
        )
        assert shown.split() == ["refused"] * 6

    def test_only_tasks_of_installed_apps_are_found(self, project: DjangoProject) -> None:
        """What is stored does not decide which module is imported."""
        shown = project.run(
            """
            from ratchet.contrib.django.task_backend import run_task
            import sys
            """,
            DRAIN,
            """
            jobs_ = [scheduler.enqueue_now(run_task, path, "default", [], {}) for path in ("antigravity.fly", "shop.jobs.note")]
            drain()
            print([job.status() for job in jobs_], "antigravity" in sys.modules)
            """,
        )
        assert shown.strip().endswith("[<JobStatus.FAILED: 'FAILED'>, <JobStatus.FAILED: 'FAILED'>] False")


class TestRun:
    def test_results_errors_and_attempts(self, project: DjangoProject) -> None:
        """A value, a context, a coroutine, an exception and a value that is no JSON, run by a node and read back."""
        shown = project.run(
            DRAIN,
            """
            results = [tasks.add.enqueue(1, 2), tasks.mail.enqueue("ann"), tasks.later.enqueue("x"),
                       tasks.broken.enqueue(), tasks.unkept.enqueue()]
            drain()
            for result in results:
                result.refresh()
                kinds = [error.exception_class.__name__ for error in result.errors]
                value = result.return_value if result.status == "SUCCESSFUL" else None
                print(result.status, value, kinds, result.attempts, result.is_finished,
                      result.enqueued_at <= result.started_at <= result.finished_at)
            print("no such thing" in results[3].errors[0].traceback)
            print(sorted(order.note for order in Order.objects.all()))
            """,
        )
        assert shown.strip().split("\n")[-7:] == [
            "SUCCESSFUL 3 [] 1 True True",
            "SUCCESSFUL None [] 1 True True",
            "SUCCESSFUL x [] 1 True True",
            "FAILED None ['KeyError'] 1 True True",
            "FAILED None ['TypeError'] 1 True True",
            "True",
            "['ann in attempt 1', 'x']",
        ]

    def test_signals(self, project: DjangoProject) -> None:
        """task_enqueued, task_started and task_finished, with the status of the moment; also for a task that fails."""
        shown = project.run(
            DRAIN,
            """
            from TASKS_MODULE.signals import task_enqueued, task_finished, task_started
            heard = []
            def hear(name):
                def listen(sender, task_result, **_):
                    heard.append((name, sender.__name__, task_result.task.name, str(task_result.status)))
                return listen
            kept = [hear("enqueued"), hear("started"), hear("finished")]
            for signal, listener in zip((task_enqueued, task_started, task_finished), kept):
                signal.connect(listener)
            tasks.add.enqueue(1, 2)
            drain()
            tasks.broken.enqueue()
            drain()
            for one in heard: print(*one)
            """,
        )
        assert shown.strip().split("\n")[-6:] == [
            "enqueued RatchetBackend add READY",
            "started RatchetBackend add RUNNING",
            "finished RatchetBackend add SUCCESSFUL",
            "enqueued RatchetBackend broken READY",
            "started RatchetBackend broken RUNNING",
            "finished RatchetBackend broken FAILED",
        ]
