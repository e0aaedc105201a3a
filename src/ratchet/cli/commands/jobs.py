"""``ratchet jobs``: look at jobs and change them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import bulk_cancel, bulk_retry, confirmed, each, no_filter
from ratchet.cli.commands.job_submission import submit
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output, ago
from ratchet.model.job import Execution, Job, JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler

commands = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True, epilog=EPILOG)

commands.command("submit", epilog=EPILOG)(submit)

_COLUMNS = ("id", "status", "target", "priority", "queue", "attempts", "created", "due", "error")
_SPARE = ("due", "queue", "priority", "created", "attempts", "error")


@commands.command("list", epilog=EPILOG)
@given.filtered(
    "status tag target queue type priority key batch parent schedule node since until error archived"
)
def list_(
    where: JobFilter,
    limit: given.Limit = 50,
    cursor: given.Cursor = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only how many jobs are in each state.")] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List jobs, newest first."""
    out = Output(as_json=json)
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
    """Show everything about one job: what it is, how its runs went, and why it waits."""
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
    """What the job is."""
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
    """How its runs went."""
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
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most this many lines, the newest.")
    ] = 1000,
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
@given.filtered("status tag target queue key batch schedule since until")
def cancel(
    job_ids: given.JobIds = None,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Cancel at most this many jobs.", show_default=False)
    ] = None,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Cancel jobs and what depends on them: those named, or all that match the filter."""
    with given.opened(url) as scheduler:
        if job_ids:
            no_filter(where, "cancel")
            each(scheduler, job_ids, scheduler.cancel_job, "canceled", "has ended", Output(as_json=json))
        else:
            bulk_cancel(scheduler, where, limit, yes=yes, out=Output(as_json=json))


@commands.command(epilog=EPILOG)
def pause(job_ids: given.JobIds = None, url: given.Url = None, json: given.Json = False) -> None:
    """Take pending or failed jobs out of the queue until they are resumed."""
    with given.opened(url) as scheduler:
        each(scheduler, job_ids, scheduler.pause_job, "paused", "cannot be paused now", Output(as_json=json))


@commands.command(epilog=EPILOG)
def resume(job_ids: given.JobIds = None, url: given.Url = None, json: given.Json = False) -> None:
    """Put paused jobs back to where they were."""
    with given.opened(url) as scheduler:
        each(scheduler, job_ids, scheduler.resume_job, "resumed", "is not paused", Output(as_json=json))


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue batch schedule since until error")
def retry(
    job_ids: given.JobIds = None,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Retry at most this many jobs.", show_default=False)
    ] = None,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Run failed jobs again, with all their attempts: those named, or all that match the filter."""
    with given.opened(url) as scheduler:
        if job_ids:
            no_filter(where, "retry")
            each(scheduler, job_ids, scheduler.retry_job, "retried", "is not FAILED", Output(as_json=json))
        else:
            where.require_criterion("ratchet jobs retry")
            bulk_retry(scheduler, where, limit, yes=yes, out=Output(as_json=json))


@commands.command(epilog=EPILOG)
def delete(
    job_ids: given.JobIds = None, yes: given.Yes = False, url: given.Url = None, json: given.Json = False
) -> None:
    """Remove jobs for good, with their history and logs; a running job is not removed."""
    with given.opened(url) as scheduler:
        out = Output(as_json=json)
        if job_ids and not confirmed(f"delete {len(job_ids)} jobs with their history", yes=yes, out=out):
            return
        each(scheduler, job_ids, scheduler.jobs.delete, "deleted", "is RUNNING; cancel it first", out)
