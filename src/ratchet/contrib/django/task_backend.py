"""
`RatchetBackend`: Django's tasks, kept and run by Ratchet.

For ``django.tasks`` of Django 6, or for the package ``django-tasks`` before that. A task is stored as a job of one of the two
functions at the end, which find it by its path: it must be in a module of an installed app, or in one that ``RATCHET["allow"]`` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from importlib.util import find_spec
from inspect import iscoroutinefunction
from typing import Any

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import import_string

from ratchet.api.context import JobContext
from ratchet.api.submit.builders import JobBuilder
from ratchet.contrib.django import scheduler
from ratchet.model.durations import Duration
from ratchet.model.errors import ConfigurationError, InvalidJob, JobNotFound, RetryLater, do_not_retry_reason
from ratchet.model.job import Execution, ExecutionStatus, Job
from ratchet.model.status import BackoffPolicy, JobStatus, Priority

if find_spec("django.tasks") is not None:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks import exceptions as task_exceptions
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
elif find_spec("django_tasks") is not None:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks import exceptions as task_exceptions
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json
else:
    raise ConfigurationError(
        "RatchetBackend needs Django 6, which has django.tasks, or the package django-tasks: pip install django-tasks"
    )

#: Django's name for it, and that of the package before.
InvalidTask: Any = getattr(task_exceptions, "InvalidTask", None) or task_exceptions.InvalidTaskError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatchetTask(Task):
    """
    A task that may say more than Django's: ``@task(max_retries=3, timeout=60)``.

    Each is what the option of that name is for a job. `using` takes them too, and the keys of one submission.
    """

    max_retries: int = 0
    backoff: BackoffPolicy = BackoffPolicy.NONE
    backoff_base: Duration = 0
    timeout: Duration | None = None
    expiry: Duration | None = None
    tags: tuple[str, ...] = ()
    resource: str | None = None
    no_retry_for: tuple[type[BaseException], ...] = ()
    business_key: str | None = None
    idempotency_key: str | None = None

    def using(self, **changes: Any) -> RatchetTask:
        """A task with other settings; what is None stays as it is."""
        known = {field.name for field in fields(self)} - {"func", "takes_context"}
        if unknown := sorted(set(changes) - known):
            raise TypeError(
                f"using() got {', '.join(map(repr, unknown))}; it takes {', '.join(sorted(known))}"
            )
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def describe(self, builder: JobBuilder[Any]) -> None:
        """Tell *builder* what this task says beyond Django's own."""
        builder.with_max_retries(self.max_retries).with_backoff(self.backoff, self.backoff_base)
        builder.with_timeout(self.timeout).with_resource(self.resource).with_no_retry_for(*self.no_retry_for)
        if self.tags:
            builder.with_tags(*self.tags)
        if self.expiry is not None:
            builder.with_expiry(self.expiry)
        if self.business_key is not None:
            builder.with_business_key(self.business_key)
        if self.idempotency_key is not None:
            builder.with_idempotency_key(self.idempotency_key)


class RatchetBackend(BaseTaskBackend):
    """Stores tasks as jobs in the project's database, inside the transaction that is open there."""

    task_class = RatchetTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Refuse what Django refuses, and options that a job would not take."""
        super().validate_task(task)
        if isinstance(task, RatchetTask):
            draft = scheduler.enqueue_by_name(_TARGETS[0])
            draft._disarm()  # it is only tried
            try:
                task.describe(draft)
            except (InvalidJob, TypeError, ValueError) as error:
                raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store the task; its result, which is READY."""
        self.validate_task(task)
        _require_allowed(task.module_path)
        result = _result(task, "", TaskResultStatus.READY, list(args), dict(kwargs), self.alias)
        function = run_async_task if iscoroutinefunction(task.func) else run_task
        builder = scheduler.enqueue(function, task.module_path, self.alias, result.args, result.kwargs)
        builder.with_priority(priority_of(task.priority)).with_queue(task.queue_name)
        builder.with_param(
            "django",
            {"priority": task.priority, "queue": task.queue_name, "retries": getattr(task, "max_retries", 0)},
        )
        if isinstance(task, RatchetTask):
            task.describe(builder)
        if len(task.module_path) <= _TAG_LIMIT:
            builder.with_tags(task.module_path)
        if task.run_after is not None:
            builder.at(_aware(task.run_after))
        handle = builder.submit()
        if handle.duplicate:
            return self.get_result(str(handle.id))  # an idempotency key: that task was enqueued before
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
    except (Exception, SystemExit) as error:
        if _is_retried(task, ctx, error):
            raise
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        kind = type(error)
        result.errors.append(
            TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=str(error))
        )
        task_finished.send(sender=backend, task_result=result)
        raise
    _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
    task_finished.send(sender=backend, task_result=result)


def _is_retried(task: Any, ctx: JobContext, error: BaseException) -> bool:
    """True if this failure is not the end of the task: Django hears of it only once it has finished."""
    if isinstance(error, RetryLater) and not error.count:
        return True
    if ctx.attempt > ctx.param("django", {}).get("retries", 0):
        return False
    final: tuple[type[BaseException], ...] = getattr(task, "no_retry_for", ())
    return not isinstance(error, final) and do_not_retry_reason(type(error)) is None


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
