"""``ratchet jobs``: look at jobs and change them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from ratchet.api.observe.reasons import Blocker, Reason
from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import (
    bulk_cancel,
    bulk_delete,
    bulk_retry,
    bulk_set_priority,
    confirmed,
    each,
    jobs_of,
    no_filter,
    require_filter,
)
from ratchet.cli.commands.job_submission import submit
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output, ago
from ratchet.model.job import Execution, Job, JobFilter, SortBy
from ratchet.model.status import JobStatus, Priority
from ratchet.scheduler import Scheduler

commands = typer.Typer(help="Look at jobs and change them.", no_args_is_help=True, epilog=EPILOG)

commands.command("submit", epilog=EPILOG)(submit)

_COLUMNS = ("id", "status", "target", "priority", "queue", "attempts", "created", "due", "error")
_SPARE = ("due", "queue", "priority", "created", "attempts", "error")


@commands.command("list", epilog=EPILOG)
@given.filtered(
    "status tag target queue type priority key batch parent schedule node since until error caller superseded_by arg "
    "trace parked truncated archived"
)
def list_(
    where: JobFilter,
    limit: given.Rows = 50,
    cursor: given.Cursor = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="WORD", help="created, scheduled, finished or priority.")
    ] = "created",
    ascending: Annotated[bool, typer.Option("--ascending", help="Oldest, soonest or lowest first.")] = False,
    counts: Annotated[
        bool, typer.Option("--counts", help="Only how many of them are in each state.")
    ] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List jobs, newest first unless --sort or --ascending say otherwise."""
    out = Output(as_json=json)
    with given.opened(url) as scheduler:
        where = given.with_full_names(scheduler, where)
        if counts:
            show_counts(scheduler, where, out)
            return
        order = (given.members(SortBy, [sort], "--sort") or [SortBy.CREATED])[0]
        search = functools.partial(scheduler.jobs.find, sort=order, descending=not ascending)
        found, following = given.pages(search, where, limit, cursor)
        if json:
            out.document({"jobs": found, "next_cursor": following})
            return
        out.table(_COLUMNS, [_row(job, scheduler) for job in found], empty="no jobs match", spare=_SPARE)
        out.more(following)


def show_counts(scheduler: Scheduler, where: JobFilter, out: Output) -> None:
    """How many of the matching jobs are in each state."""
    if where.is_empty and not where.include_archived:
        found = scheduler.jobs.counts()
    else:
        found = {
            status: scheduler.jobs.count(dataclasses.replace(where, statuses=[status]))
            for status in where.statuses or JobStatus
        }
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
    with given.opened(url) as scheduler:
        identity = given.job_id(scheduler, job_id)
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
            _show_reasons(out, reasons)


def _show_job(out: Output, job: Job) -> None:
    """What the job is."""
    job = job.for_people()
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
            "trace": job.trace_id,
            "error": job.error,
            "result": repr(job.result) if job.status is JobStatus.SUCCEEDED else None,
            "archived": job.archived or None,
            "cannot be read": [f"{name} is {value}" for name, value in job.unreadable.items()] or None,
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
    with given.opened(url) as scheduler:
        identity = given.job_id(scheduler, job_id)
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
            _show_reasons(out, reasons)


def _show_reasons(out: Output, reasons: Sequence[Reason]) -> None:
    """Why a job is not running, and who or what is behind it."""
    out.table(("code", "text", "until"), [(reason.code, reason.text, reason.until) for reason in reasons])
    blockers = [(reason.code, blocker) for reason in reasons for blocker in reason.blockers]
    if blockers:
        out.heading("Held back by")
        out.table(
            ("reason", "kind", "name", "node", "process", "since"),
            [(code, one.kind, one.name, one.node_id, _process(one), one.since) for code, one in blockers],
            spare=("process", "since", "node"),
        )


def _process(blocker: Blocker) -> str | None:
    return None if blocker.pid is None else f"{blocker.host}:{blocker.pid}"


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
    with given.opened(url) as scheduler:
        identity = given.job_id(scheduler, job_id)
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
    dry_run: given.DryRun = False,
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
            where = given.with_full_names(scheduler, where)
            bulk_cancel(scheduler, where, limit, yes=yes, dry_run=dry_run, out=Output(as_json=json))


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


@commands.command("run-now", epilog=EPILOG)
def run_now(job_ids: given.JobIds = None, url: given.Url = None, json: given.Json = False) -> None:
    """Make pending jobs due now, instead of at their time or after the delay of a retry; gates and limits still hold."""
    with given.opened(url) as scheduler:

        def hurry(job_id: UUID) -> bool:
            # A paused or waiting job would keep the new time and not run.
            pending = scheduler.jobs.get(job_id).status is JobStatus.PENDING
            return pending and scheduler.reschedule_job(job_id, scheduler.backend.now())

        each(scheduler, job_ids, hurry, "due now", "is not PENDING; resume or retry it", Output(as_json=json))


@commands.command("set-priority", epilog=EPILOG)
@given.filtered("status tag target queue type priority key batch schedule since until")
def set_priority(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB_ID]... PRIORITY",
            help=f"Ids of jobs, or their beginnings, and last {', '.join(Priority.__members__)}.",
            show_default=False,
        ),
    ],
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Change at most this many jobs.", show_default=False)
    ] = None,
    dry_run: given.DryRun = False,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Give jobs that have not started another priority: those named, or all that match the filter."""
    *job_ids, word = words
    chosen = given.member(Priority, word, "PRIORITY")
    with given.opened(url) as scheduler:
        out = Output(as_json=json)
        if job_ids:
            no_filter(where, "set-priority")

            def change(job_id: UUID) -> bool:
                return scheduler.set_priority(job_id, chosen)

            each(scheduler, job_ids, change, f"now {chosen.name}", "is not PENDING, PAUSED or WAITING", out)
        else:
            where = given.with_full_names(scheduler, where)
            bulk_set_priority(scheduler, where, chosen, limit, yes=yes, dry_run=dry_run, out=out)


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue batch schedule since until error")
def retry(
    job_ids: given.JobIds = None,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Retry at most this many jobs.", show_default=False)
    ] = None,
    dry_run: given.DryRun = False,
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
            require_filter(where, "retry")
            where = given.with_full_names(scheduler, where)
            bulk_retry(scheduler, where, limit, yes=yes, dry_run=dry_run, out=Output(as_json=json))


@commands.command(epilog=EPILOG)
@given.filtered("status tag target queue type key batch schedule since until error archived")
def delete(
    job_ids: given.JobIds = None,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Delete at most this many jobs.", show_default=False)
    ] = None,
    dry_run: given.DryRun = False,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Remove jobs for good, with their history and logs: those named, or all that match; a running job is not removed."""
    with given.opened(url) as scheduler:
        out = Output(as_json=json)
        if job_ids:
            no_filter(where, "delete")
            named = [str(scheduler.jobs.get(given.job_id(scheduler, text)).id) for text in job_ids]
            if not confirmed(f"delete {jobs_of(len(named))} with their history", yes=yes, out=out):
                return
            each(scheduler, named, scheduler.jobs.delete, "deleted", "is RUNNING; cancel it first", out)
        else:
            where = given.with_full_names(scheduler, where)
            bulk_delete(scheduler, where, limit, yes=yes, dry_run=dry_run, out=out)
