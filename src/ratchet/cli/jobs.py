"""``ratchet jobs``: look at jobs and change them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

import typer

from ratchet.cli import parameters as given
from ratchet.cli.bulk import in_chunks
from ratchet.cli.exits import EPILOG, Refused
from ratchet.cli.output import Output, ago
from ratchet.model.job import Execution, Job, JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler

commands = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True, epilog=EPILOG)

_COLUMNS = ("id", "status", "target", "priority", "queue", "attempts", "created", "due", "error")
_SPARE = ("due", "queue", "priority", "created", "attempts", "error")


@commands.command("list", epilog=EPILOG)
def list_(
    status: given.Statuses = None,
    tag: given.Tags = None,
    target: given.Targets = None,
    queue: given.Queue = None,
    type_: given.Types = None,
    priority: given.Priorities = None,
    key: given.Key = None,
    batch: given.Batch = None,
    parent: given.Parent = None,
    schedule: given.ScheduleName = None,
    node: given.Node = None,
    since: given.Since = None,
    until: given.Until = None,
    error: given.ErrorText = None,
    archived: given.Archived = False,
    limit: given.Limit = 50,
    cursor: given.Cursor = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only how many jobs are in each state.")] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List jobs, newest first."""
    out = Output(as_json=json)
    where = given.job_filter(
        statuses=status,
        tags=tag,
        targets=target,
        queue=queue,
        types=type_,
        priorities=priority,
        key=key,
        batch=batch,
        parent=parent,
        schedule=schedule,
        node=node,
        since=since,
        until=until,
        error=error,
        archived=archived,
    )
    with given.opened(url) as scheduler:
        if counts:
            show_counts(scheduler, out)
            return
        page = scheduler.jobs.find(where, limit=limit, cursor=cursor)
        if json:
            out.document({"jobs": page.items, "next_cursor": page.next_cursor})
            return
        out.table(_COLUMNS, [_row(job, scheduler) for job in page], empty="no jobs match", spare=_SPARE)
        if page.next_cursor is not None:
            out.text(f"more: --cursor {page.next_cursor}", style="dim")


def show_counts(scheduler: Scheduler, out: Output) -> None:
    """How many jobs are in each state."""
    found = scheduler.jobs.counts()
    if out.as_json:
        out.document(found)
    else:
        out.table(("status", "jobs"), [(status, found.get(status, 0)) for status in JobStatus])


def _row(job: Job, scheduler: Scheduler) -> tuple[Any, ...]:
    now = scheduler.backend.now()
    return (
        job.id,
        job.status,
        job.target,
        job.priority,
        job.queue,
        f"{job.attempts}/{job.max_retries + 1}",
        ago(job.created_at, now),
        ago(job.scheduled_at, now) if job.status is JobStatus.PENDING else None,
        job.error or job.canceled_reason,
    )


@commands.command(epilog=EPILOG)
def show(
    job_id: given.JobId,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="With the tracebacks of failed runs.")
    ] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Everything about one job: what it is, how its runs went, and why it waits."""
    identity = given.identity(job_id)
    with given.opened(url) as scheduler:
        job = scheduler.jobs.get(identity)
        runs = scheduler.jobs.executions(identity, all=True)
        reasons = [] if job.status.is_terminal else scheduler.explain(identity)
        graph = scheduler.handle(identity).graph()
        out = Output(as_json=json)
        if json:
            steps = {"nodes": graph.nodes, "edges": graph.edges} if len(graph) > 1 else None
            out.document({"job": job, "executions": runs, "waiting_for": reasons, "graph": steps})
            return
        _show_job(out, job)
        if runs:
            _show_runs(out, runs, traceback=traceback)
        if len(graph) > 1:
            out.heading("Graph")
            out.text(str(graph))
        if reasons and job.status is not JobStatus.RUNNING:
            out.heading("Why it is not running")
            out.table(("code", "text", "until"), reasons)


def _show_job(out: Output, job: Job) -> None:
    progress = job.progress
    arguments = [*(repr(value) for value in job.args), *(f"{k}={v!r}" for k, v in job.kwargs.items())]
    out.details(
        {
            "id": job.id,
            "status": job.status,
            "call": f"{job.target}({', '.join(arguments)})",
            "type": job.type,
            "priority": job.priority,
            "queue": job.queue,
            "lane": job.lane.value,
            "tags": job.tags,
            "params": job.params,
            "created": job.created_at,
            "due": job.scheduled_at,
            "started": job.started_at,
            "finished": job.finished_at,
            "expires": job.expires_at,
            "attempts": f"{job.attempts} of {job.max_retries + 1}",
            "crashes": job.crashes or None,
            "progress": None if progress is None else f"{progress.fraction:.0%} {progress.message or ''}",
            "node": job.node_id,
            "business key": job.business_key,
            "idempotency key": job.idempotency_key,
            "parent": job.parent_id,
            "batch": job.batch_id,
            "schedule": job.schedule,
            "superseded by": job.superseded_by,
            "canceled": job.canceled_reason,
            "caller": job.caller,
            "error": job.error,
            "result": repr(job.result) if job.status is JobStatus.SUCCEEDED else None,
            "archived": job.archived or None,
        }
    )


def _show_runs(out: Output, runs: list[Execution], *, traceback: bool) -> None:
    out.heading("Runs")
    out.table(
        ("attempt", "status", "started", "duration", "waited", "node", "error"),
        [
            (
                run.attempt if run.counted else "-",
                run.status,
                run.started_at,
                run.duration,
                run.queue_wait,
                run.node_id,
                run.error,
            )
            for run in runs
        ],
        spare=("waited", "node", "started"),
    )
    for run in runs:
        if traceback and run.traceback:
            out.heading(f"Traceback of attempt {run.attempt}")
            out.text(run.traceback)


@commands.command(epilog=EPILOG)
def explain(job_id: given.JobId, url: given.Url = None, json: given.Json = False) -> None:
    """Say why a job is not running."""
    identity = given.identity(job_id)
    with given.opened(url) as scheduler:
        job = scheduler.jobs.get(identity)
        reasons = [] if job.status.is_terminal else scheduler.explain(identity)
        out = Output(as_json=json)
        if json:
            out.document({"job_id": identity, "status": job.status, "reasons": reasons})
        elif job.status.is_terminal:
            out.text(f"{identity} has ended: {job.status}")
        elif not reasons:
            out.text(f"nothing keeps {identity} from running: the next free node takes it")
        else:
            out.table(("code", "text", "until"), reasons)


@commands.command(epilog=EPILOG)
def logs(
    job_id: given.JobId,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Lines to show, at most; the newest.")] = 1000,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Show what a job logged while it ran."""
    identity = given.identity(job_id)
    with given.opened(url) as scheduler:
        scheduler.jobs.get(identity)
        lines = scheduler.jobs.logs(identity, limit=limit)
        out = Output(as_json=json)
        if json:
            out.document({"job_id": identity, "lines": lines})
            return
        out.table(
            ("at", "attempt", "level", "logger", "message"),
            [
                (
                    line.at,
                    f"{line.attempt}{' (lost)' if line.lost else ''}",
                    line.level,
                    line.logger,
                    line.message,
                )
                for line in lines
            ],
            empty="it logged nothing",
        )


# --- changing


@commands.command(epilog=EPILOG)
def cancel(
    job_ids: given.JobIds = None,
    status: given.Statuses = None,
    tag: given.Tags = None,
    target: given.Targets = None,
    queue: given.Queue = None,
    key: given.Key = None,
    batch: given.Batch = None,
    schedule: given.ScheduleName = None,
    since: given.Since = None,
    until: given.Until = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Cancel so many, at most.", show_default=False)
    ] = None,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Cancel jobs and what depends on them: those named, or all that match the filter."""
    where = given.job_filter(
        statuses=status,
        tags=tag,
        targets=target,
        queue=queue,
        key=key,
        batch=batch,
        schedule=schedule,
        since=since,
        until=until,
    )
    with given.opened(url) as scheduler:
        if job_ids:
            _no_filter(where, "cancel")
            each(scheduler, job_ids, scheduler.cancel_job, "canceled", "has ended", Output(as_json=json))
        else:
            bulk_cancel(scheduler, where, limit, yes=yes, out=Output(as_json=json))


@commands.command(epilog=EPILOG)
def pause(job_ids: given.JobIds = None, url: given.Url = None, json: given.Json = False) -> None:
    """Take jobs out of the queue until they are resumed; pending and failed ones."""
    with given.opened(url) as scheduler:
        each(scheduler, job_ids, scheduler.pause_job, "paused", "cannot be paused now", Output(as_json=json))


@commands.command(epilog=EPILOG)
def resume(job_ids: given.JobIds = None, url: given.Url = None, json: given.Json = False) -> None:
    """Put paused jobs back to where they were."""
    with given.opened(url) as scheduler:
        each(scheduler, job_ids, scheduler.resume_job, "resumed", "is not paused", Output(as_json=json))


@commands.command(epilog=EPILOG)
def retry(
    job_ids: given.JobIds = None,
    tag: given.Tags = None,
    target: given.Targets = None,
    queue: given.Queue = None,
    batch: given.Batch = None,
    schedule: given.ScheduleName = None,
    since: given.Since = None,
    until: given.Until = None,
    error: given.ErrorText = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Retry so many, at most.", show_default=False)
    ] = None,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Run failed jobs again, with all their attempts: those named, or all that match the filter."""
    where = given.job_filter(
        tags=tag,
        targets=target,
        queue=queue,
        batch=batch,
        schedule=schedule,
        since=since,
        until=until,
        error=error,
    )
    with given.opened(url) as scheduler:
        if job_ids:
            _no_filter(where, "retry")
            each(scheduler, job_ids, scheduler.retry_job, "retried", "is not FAILED", Output(as_json=json))
        else:
            where.require_criterion("ratchet jobs retry")
            bulk_retry(scheduler, where, limit, yes=yes, out=Output(as_json=json))


@commands.command(epilog=EPILOG)
def delete(
    job_ids: given.JobIds = None, yes: given.Yes = False, url: given.Url = None, json: given.Json = False
) -> None:
    """Remove jobs for good, with their history and logs; not while they run."""
    with given.opened(url) as scheduler:
        out = Output(as_json=json)
        if job_ids and not _confirmed(f"delete {len(job_ids)} jobs with their history", yes=yes, out=out):
            return
        each(scheduler, job_ids, scheduler.jobs.delete, "deleted", "is RUNNING; cancel it first", out)


def each(
    scheduler: Scheduler,
    job_ids: list[str] | None,
    verb: Callable[[UUID], bool],
    done: str,
    refused: str,
    out: Output,
) -> None:
    """Apply *verb* to each job; all are tried, and one that could not be changed is an error at the end."""
    if not job_ids:
        raise typer.BadParameter("name at least one job", param_hint="JOB_ID")
    identities = [given.identity(text) for text in job_ids]
    changed: list[UUID] = []
    problems: list[str] = []
    for identity in identities:
        job = scheduler.jobs.get(identity)
        if verb(identity):
            changed.append(identity)
        else:
            problems.append(f"{identity} ({job.status}) {refused}")
    if out.as_json:
        out.document({done: changed, "refused": problems})
    elif changed:
        out.text(f"{done}: {', '.join(str(identity) for identity in changed)}")
    if problems:
        raise Refused("; ".join(problems))


def bulk_cancel(scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, out: Output) -> None:
    """Cancel everything that matches, in pieces, with a bar for people."""
    where.require_criterion("ratchet jobs cancel")
    total = _total(scheduler, where, limit)
    if total and not _confirmed(f"cancel up to {total} jobs", yes=yes, out=out):
        return
    count = in_chunks(
        "canceling", total, lambda some: scheduler.cancel_jobs(where, limit=some), quiet=out.as_json
    )
    out.say(f"canceled {count} jobs", canceled=count)


def bulk_retry(scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, out: Output) -> None:
    """Retry every FAILED job that matches, in pieces, with a bar for people."""
    failed = with_statuses(where, [JobStatus.FAILED])
    total = _total(scheduler, failed, limit)
    if total and not _confirmed(f"retry {total} failed jobs", yes=yes, out=out):
        return
    count = in_chunks(
        "retrying", total, lambda some: scheduler.retry_jobs(failed, limit=some), quiet=out.as_json
    )
    out.say(f"retried {count} jobs", retried=count)


def with_statuses(where: JobFilter, statuses: list[JobStatus]) -> JobFilter:
    """*where*, restricted to *statuses*."""
    return dataclasses.replace(where, statuses=statuses)


def _total(scheduler: Scheduler, where: JobFilter, limit: int | None) -> int:
    matching = scheduler.jobs.count(where)
    return matching if limit is None else min(limit, matching)


def _no_filter(where: JobFilter, verb: str) -> None:
    if not where.is_empty:
        raise typer.BadParameter(f"{verb} takes either ids or a filter, not both", param_hint="JOB_ID")


def _confirmed(what: str, *, yes: bool, out: Output) -> bool:
    """Ask a person; a script is taken at its word."""
    if yes or out.as_json or not sys.stdin.isatty():
        return True
    return typer.confirm(f"{what}?", err=True)
