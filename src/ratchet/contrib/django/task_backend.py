"""
`RatchetBackend`: Django's tasks, kept and run by Ratchet.

For ``django.tasks`` of Django 6, or for the package ``django-tasks`` before that. A task is stored as a job of one of the two
functions at the end, which find it by its path: it must be in a module of an installed app, or in one that ``RATCHET["allow"]`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from inspect import iscoroutinefunction
from typing import Any

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import import_string

from ratchet.api.context import JobContext
from ratchet.contrib.django import scheduler
from ratchet.model.errors import ConfigurationError, InvalidJob, JobNotFound
from ratchet.model.job import Execution, ExecutionStatus, Job
from ratchet.model.status import JobStatus, Priority

if find_spec("django.tasks") is not None:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
elif find_spec("django_tasks") is not None:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json
else:
    raise ConfigurationError(
        "RatchetBackend needs Django 6, which has django.tasks, or the package django-tasks: pip install django-tasks"
    )

_STATUS = {
    JobStatus.RUNNING: TaskResultStatus.RUNNING,
    JobStatus.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
    JobStatus.CANCELED: TaskResultStatus.FAILED,
}
_FAILED_RUNS = (ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.CRASHED)
_TAG_LIMIT = 255
_TARGETS = ("django.task", "django.async_task")


def priority_of(number: int) -> Priority:
    """Django's -100 to 100 on our five levels: 0 is NORMAL, the ends are LOWEST and CRITICAL, each takes its fifth."""
    for limit, priority in (
        (-60, Priority.LOWEST),
        (-20, Priority.LOW),
        (20, Priority.NORMAL),
        (60, Priority.HIGH),
    ):
        if number < limit or (number == limit and number > 0):
            return priority
    return Priority.CRITICAL


class RatchetBackend(BaseTaskBackend):
    """Stores tasks as jobs in the project's database, inside the transaction that is open there."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store the task; its result, which is READY."""
        self.validate_task(task)
        _require_allowed(task.module_path)
        result = _result(task, "", TaskResultStatus.READY, list(args), dict(kwargs), self.alias)
        function = run_async_task if iscoroutinefunction(task.func) else run_task
        builder = scheduler.enqueue(function, task.module_path, self.alias, result.args, result.kwargs)
        builder.with_priority(priority_of(task.priority)).with_queue(task.queue_name)
        builder.with_param("django", {"priority": task.priority, "queue": task.queue_name})
        if len(task.module_path) <= _TAG_LIMIT:
            builder.with_tags(task.module_path)
        if task.run_after is not None:
            builder.at(_aware(task.run_after))
        handle = builder.submit()
        _set(result, id=str(handle.id), enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result as the store knows it now."""
        try:
            job = scheduler.jobs.get(result_id)
        except (JobNotFound, InvalidJob):
            raise TaskResultDoesNotExist(result_id) from None
        if job.target not in _TARGETS or job.args[1] != self.alias:
            raise TaskResultDoesNotExist(result_id)
        return _result_of(job, scheduler.jobs.executions(result_id))


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


# --- results --------------------------------------------------------------------------------------


def _result(
    task: Any, result_id: str, status: Any, args: list[Any], kwargs: dict[str, Any], alias: str
) -> Any:
    return TaskResult(
        task=task,
        id=result_id,
        status=status,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _set(result: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # it is frozen; Django's own backends do the same


def _result_of(job: Job, runs: list[Execution]) -> Any:
    path, alias, args, kwargs = job.args
    told = job.params["django"]
    changes: dict[str, Any] = {"priority": told["priority"], "queue_name": told["queue"], "backend": alias}
    if job.scheduled_at > job.created_at and not runs:
        changes["run_after"] = job.scheduled_at
    result = _result(
        _task(path).using(**changes),
        str(job.id),
        _STATUS.get(job.status, TaskResultStatus.READY),
        args,
        kwargs,
        alias,
    )
    starts = [run.started_at for run in runs if run.started_at is not None]
    _set(
        result,
        enqueued_at=job.created_at,
        started_at=min(starts, default=job.started_at),
        last_attempted_at=max(starts, default=job.started_at),
        finished_at=job.finished_at,
        worker_ids=[run.node_id or "" for run in runs],
        errors=[_error(run) for run in runs if run.status in _FAILED_RUNS],
        _return_value=job.result if job.status is JobStatus.SUCCEEDED else None,
    )
    return result


def _error(run: Execution) -> Any:
    kind = (run.error_type or "Exception").replace(":", ".")
    path = kind if "." in kind else f"builtins.{kind}"
    return TaskError(exception_class_path=path, traceback=run.traceback or run.error or "")


# --- running --------------------------------------------------------------------------------------


def _require_allowed(path: str) -> None:
    """Refuse what is in no installed app and not allowed: what is stored must not decide which module is imported."""
    module, _, name = path.rpartition(".")
    if apps.get_containing_app_config(module) is None and not scheduler.backend.allow_type(module, name):
        raise InvalidJob(
            f"the task {path} is in no installed app; add its app to INSTALLED_APPS, or {module!r} to settings.RATCHET['allow']"
        )


def _task(path: str) -> Any:
    _require_allowed(path)
    found = import_string(path)
    if not hasattr(found, "func") or not hasattr(found, "get_backend"):
        raise InvalidJob(f"{path} is no task; declare it with @task()")
    return found


@contextmanager
def _attempt(
    path: str, alias: str, args: list[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, list[Any]]]:
    """The task's result while it runs, and the arguments to call it with; tells Django's signals."""
    ctx = JobContext.current()
    task = _task(path)
    now = timezone.now()
    result = _result(task, str(ctx.job_id), TaskResultStatus.RUNNING, args, kwargs, alias)
    _set(result, started_at=now, last_attempted_at=now, worker_ids=[ctx.node_id] * ctx.attempt)
    backend = type(task.get_backend())
    task_started.send(sender=backend, task_result=result)
    try:
        yield result, [TaskContext(task_result=result), *args] if task.takes_context else args
    except Exception as error:
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        kind = type(error)
        result.errors.append(
            TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=str(error))
        )
        task_finished.send(sender=backend, task_result=result)
        raise
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
    task_finished.send(sender=backend, task_result=result)


@scheduler.job(name="django.task")
def run_task(path: str, alias: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a task that is a plain function."""
    with _attempt(path, alias, args, kwargs) as (result, given):
        value = normalize_json(result.task.func(*given, **kwargs))
        _set(result, _return_value=value)
    return value


@scheduler.job(name="django.async_task")
async def run_async_task(path: str, alias: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a task that is a coroutine function."""
    with _attempt(path, alias, args, kwargs) as (result, given):
        value = normalize_json(await result.task.func(*given, **kwargs))
        _set(result, _return_value=value)
    return value
