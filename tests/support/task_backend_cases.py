"""
What Django's own tests of its task backends assert, written anew for a backend that stores tasks and runs them later.

Run inside of a project's process (see `tests.integration.test_django_backend`). Each function is one case: it gets what it needs by name,
and prints nothing. ``enqueue`` and the rest are Django's; ``drain`` runs what is due.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any


def raises(kind: Any, action: Any, told: str = "") -> None:
    """*action* raises this, and says so."""
    said = None
    try:
        action()
    except kind as error:
        said = str(error)
    assert said is not None, f"{kind} was not raised"
    assert told in said, (told, said)


# --- enqueue --------------------------------------------------------------------------------------


def the_backend_of_the_settings_is_used(tasks: Any, api: Any) -> None:
    assert type(api.task_backends["default"]).__name__ == "RatchetBackend"
    assert tasks.add.get_backend() is api.task_backends["default"]
    assert api.default_task_backend.alias == "default"


def an_enqueued_task_is_ready(tasks: Any, api: Any) -> None:
    for task, args in ((tasks.add, (1, 2)), (tasks.later, ("x",))):
        result = task.enqueue(*args)
        assert result.status == api.TaskResultStatus.READY
        assert not result.is_finished
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert result.enqueued_at is not None
        assert result.task.func is task.func
        assert (result.args, result.kwargs) == (list(args), {})
        assert result.attempts == 0
        assert result.errors == []
        raises(ValueError, lambda found=result: found.return_value, "not finished yet")


def an_async_enqueue_does_the_same(tasks: Any, api: Any) -> None:
    result = asyncio.run(tasks.add.aenqueue(1, b=2))
    assert (result.status, result.args, result.kwargs) == (api.TaskResultStatus.READY, [1], {"b": 2})
    assert asyncio.run(tasks.later.aenqueue("x")).status == api.TaskResultStatus.READY


def a_result_is_found_by_its_id(tasks: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    assert tasks.add.get_result(result.id).id == result.id
    assert asyncio.run(tasks.add.aget_result(result.id)).id == result.id
    assert tasks.add.get_backend().get_result(result.id).task.func is tasks.add.func


def a_result_is_refreshed(tasks: Any, drain: Any, api: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    other = tasks.add.enqueue(3, 4)
    drain()
    assert result.status == api.TaskResultStatus.READY
    result.refresh()
    asyncio.run(other.arefresh())
    assert (result.return_value, other.return_value) == (3, 7)


def a_missing_result_is_told(tasks: Any, api: Any) -> None:
    backend = tasks.add.get_backend()
    for unknown in ("123", "00000000-0000-7000-8000-000000000000"):
        raises(api.TaskResultDoesNotExist, lambda one=unknown: backend.get_result(one))
        raises(api.TaskResultDoesNotExist, lambda one=unknown: asyncio.run(backend.aget_result(one)))


def a_result_of_another_task_is_told(tasks: Any, api: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    raises(api.TaskResultMismatch, lambda: tasks.broken.get_result(result.id))
    raises(api.TaskResultMismatch, lambda: asyncio.run(tasks.broken.aget_result(result.id)))


def results_cannot_be_changed(tasks: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    raises(AttributeError, lambda: setattr(result, "status", "SUCCESSFUL"))
    raises(AttributeError, lambda: setattr(tasks.add, "priority", 5))


def enqueuing_is_logged(tasks: Any) -> None:
    result, lines = logged(lambda: tasks.add.enqueue(1, 2))
    assert any("enqueued" in line and result.id in line for line in lines), lines


def arguments_are_json(tasks: Any, drain: Any) -> None:
    result = tasks.add.enqueue([1, {"a": None}], [True, "ü", 1.5])
    drain()
    result.refresh()
    assert result.return_value == [1, {"a": None}, True, "ü", 1.5]
    raises(TypeError, lambda: tasks.add.enqueue(object(), 1))
    raises(TypeError, lambda: tasks.add.enqueue(1, b={1, 2}))


# --- what a task is -------------------------------------------------------------------------------


def using_makes_another_task(tasks: Any, timezone: Any) -> None:
    at = timezone.now() + timedelta(hours=1)
    changed = tasks.mail.using(priority=1, queue_name="other", run_after=at)
    assert (changed.priority, changed.queue_name, changed.run_after) == (1, "other", at)
    assert (tasks.mail.priority, tasks.mail.queue_name, tasks.mail.run_after) == (50, "mails", None)
    assert tasks.mail.using().priority == 50
    raises(TypeError, lambda: tasks.mail.using(colour="red"))


def a_task_knows_its_name(tasks: Any) -> None:
    assert tasks.add.name == "add"
    assert tasks.add.module_path == "shop.tasks.add"


def a_task_can_be_called(tasks: Any) -> None:
    assert tasks.add.call(1, 2) == 3
    assert asyncio.run(tasks.add.acall(1, 2)) == 3
    assert tasks.later.func is not None


def what_is_wrong_is_refused(tasks: Any, api: Any) -> None:
    for wrong, told in (
        ({"priority": 101}, "between -100 and 100"),
        ({"priority": -101}, "between -100 and 100"),
        ({"priority": 3.5}, "whole number"),
        ({"run_after": datetime(2030, 1, 1)}, "aware"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout": "soon"}, "timeout"),
    ):
        raises(api.InvalidTask, lambda given=wrong: tasks.add.using(**given), told)


def an_unknown_queue_is_refused(api: Any, tasks: Any) -> None:
    backend = type(tasks.add.get_backend())("strict", {"QUEUES": ["only"], "OPTIONS": {}})
    raises(api.InvalidTask, lambda: backend.validate_task(tasks.add), "is not valid for backend")
    raises(api.InvalidTask, lambda: backend.enqueue(tasks.add, [1, 2], {}), "is not valid for backend")


def only_module_level_functions_are_tasks(api: Any) -> None:
    def nested() -> None: ...

    raises(api.InvalidTask, lambda: api.task()(nested))
    raises(api.InvalidTask, lambda: api.task()(lambda: None))


def a_context_is_named_first(api: Any, tasks: Any) -> None:
    raises(api.InvalidTask, lambda: api.task(takes_context=True)(tasks.add.func), "context")


def what_the_backend_can_do(tasks: Any) -> None:
    backend = tasks.add.get_backend()
    for ability in ("defer", "async_task", "get_result", "priority"):
        assert getattr(backend, f"supports_{ability}"), ability


# --- running --------------------------------------------------------------------------------------


def a_task_that_ran_is_successful(tasks: Any, drain: Any, api: Any) -> None:
    for task, args, value in ((tasks.add, (40, 2), 42), (tasks.later, ("x",), "x")):
        result = task.enqueue(*args)
        drain()
        result.refresh()
        assert result.status == api.TaskResultStatus.SUCCESSFUL
        assert result.is_finished
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at
        assert (result.return_value, result.errors, result.attempts) == (value, [], 1)


def a_failure_is_kept(tasks: Any, drain: Any, api: Any) -> None:
    for task, kind, told in (
        (tasks.broken, KeyError, "no such thing"),
        (tasks.leaves, SystemExit, "This Task leaves"),
        (tasks.nested_error, ValueError, "the inner one"),
        (tasks.unkept, TypeError, "object"),
    ):
        result = task.enqueue()
        drain()
        result.refresh()
        assert result.status == api.TaskResultStatus.FAILED, (task.name, result.status)
        assert result.is_finished
        raises(ValueError, lambda found=result: found.return_value, "failed")
        (error,) = result.errors
        assert error.exception_class is kind, (task.name, error)
        assert told in error.traceback, error.traceback
        assert result.started_at <= result.finished_at
        assert result.task.func is task.func
        assert result.attempts == 1


def success_and_failure_are_logged(tasks: Any, drain: Any) -> None:
    def both() -> None:
        tasks.add.enqueue(1, 2)
        tasks.broken.enqueue()
        drain()

    _, lines = logged(both)
    text = "\n".join(lines)
    for word in ("state=RUNNING", "state=SUCCESSFUL", "state=FAILED"):
        assert word in text, text


def a_context_knows_the_task(tasks: Any, drain: Any, orders: Any) -> None:
    result = tasks.who.enqueue()
    drain()
    result.refresh()
    assert result.return_value == [result.id, 1]


def a_later_task_waits(tasks: Any, drain: Any, timezone: Any, api: Any) -> None:
    at = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(run_after=at).enqueue(1, 2)
    drain()
    result.refresh()
    assert result.status == api.TaskResultStatus.READY
    assert result.task.run_after == at


# --- ours -----------------------------------------------------------------------------------------


def a_task_is_retried_as_it_says(tasks: Any, drain: Any, api: Any, signals: Any) -> None:
    heard: list[str] = []

    def listen(sender: Any, task_result: Any, **_: Any) -> None:
        heard.append(str(task_result.status))

    signals.task_finished.connect(listen)
    result = tasks.flaky.enqueue()
    drain()
    signals.task_finished.disconnect(listen)
    result.refresh()
    assert (result.status, result.return_value) == (api.TaskResultStatus.SUCCESSFUL, "third time")
    assert (result.attempts, [error.exception_class for error in result.errors]) == (3, [KeyError, KeyError])
    assert heard == ["SUCCESSFUL"]  # it has finished once


def keys_are_those_of_a_job(tasks: Any, scheduler: Any, busy: Any) -> None:
    first = tasks.add.using(idempotency_key="once").enqueue(1, 2)
    again = tasks.add.using(idempotency_key="once").enqueue(1, 2)
    assert again.id == first.id
    held = tasks.add.using(business_key="invoice", tags=("red",), expiry=3600, timeout=60).enqueue(1, 2)
    raises(busy, lambda: tasks.add.using(business_key="invoice").enqueue(1, 2))
    job = scheduler.jobs.get(held.id)
    assert (job.business_key, "red" in job.tags, job.expires_at is not None) == ("invoice", True, True)


CASES = [
    the_backend_of_the_settings_is_used,
    an_enqueued_task_is_ready,
    an_async_enqueue_does_the_same,
    a_result_is_found_by_its_id,
    a_result_is_refreshed,
    a_missing_result_is_told,
    a_result_of_another_task_is_told,
    results_cannot_be_changed,
    enqueuing_is_logged,
    arguments_are_json,
    using_makes_another_task,
    a_task_knows_its_name,
    a_task_can_be_called,
    what_is_wrong_is_refused,
    an_unknown_queue_is_refused,
    only_module_level_functions_are_tasks,
    a_context_is_named_first,
    what_the_backend_can_do,
    a_task_that_ran_is_successful,
    a_failure_is_kept,
    success_and_failure_are_logged,
    a_context_knows_the_task,
    a_later_task_waits,
    a_task_is_retried_as_it_says,
    keys_are_those_of_a_job,
]


def logged(action: Any) -> tuple[Any, list[str]]:
    """What *action* returned, and what Django's tasks logged meanwhile."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep()
    loggers = [logging.getLogger(name) for name in ("django.tasks", "django_tasks")]
    for one in loggers:
        one.addHandler(handler)
        one.setLevel(logging.DEBUG)
    try:
        return action(), lines
    finally:
        for one in loggers:
            one.removeHandler(handler)


def run_all(**lent: Any) -> None:
    """Run every case, and print how many passed; the rest with what went wrong."""
    import inspect
    import traceback

    passed = 0
    for case in CASES:
        wanted = inspect.signature(case).parameters
        try:
            case(**{name: lent[name] for name in wanted})
            passed += 1
        except BaseException:
            print(case.__name__, traceback.format_exc())  # noqa: T201 - the test reads it
    print(f"{passed} of {len(CASES)}")  # noqa: T201 - the test reads it
