"""``ratchet dlq``: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from msgspec import structs

from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import bulk_retry, confirmed, each, jobs_of
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output, ago
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus

commands = typer.Typer(
    help="Dead letters: jobs that failed for good, and the alerts about them.",
    no_args_is_help=True,
    epilog=EPILOG,
)


@commands.command("list", epilog=EPILOG)
@given.filtered("tag target queue since until error")
def list_(
    where: JobFilter,
    limit: given.Rows = 50,
    cursor: given.Cursor = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List dead letters, latest failure first."""
    with given.opened(url) as scheduler:
        where = given.with_full_names(scheduler, where)
        found, following = given.pages(scheduler.dead_letters.find, where, limit, cursor)
        out = Output(as_json=json)
        if json:
            out.document({"dead_letters": found, "next_cursor": following})
            return
        now = scheduler.backend.now()
        out.table(
            ("job", "target", "failed", "attempts", "crashes", "reason", "error", "alerts"),
            [
                (
                    letter.job_id,
                    letter.target,
                    ago(letter.failed_at, now),
                    letter.attempts,
                    letter.crashes,
                    letter.reason,
                    letter.error,
                    len(letter.alerts),
                )
                for letter in found
            ],
            empty="no dead letters",
            spare=("alerts", "crashes", "attempts", "reason", "failed"),
        )
        out.more(following)


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue since until error")
def retry(
    job_ids: given.JobIds = None,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Retry at most this many jobs.", show_default=False)
    ] = None,
    dry_run: given.DryRun = False,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Run dead letters again, with all their attempts: those named, those that match, or --all."""
    out = Output(as_json=json)
    ways = [bool(job_ids), every, not where.is_empty]
    if ways.count(True) != 1:
        raise typer.BadParameter("name jobs, or a filter, or --all; one of the three", param_hint="JOB_ID")
    with given.opened(url) as scheduler:
        if job_ids:
            each(scheduler, job_ids, scheduler.retry_job, "retried", "is not FAILED", out)
        else:
            where = given.with_full_names(scheduler, where)
            bulk_retry(scheduler, where, limit, yes=yes, dry_run=dry_run, out=out)


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue since until error")
def summary(
    where: JobFilter,
    limit: given.Limit = 100,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Dead letters by target and error type, most first."""
    with given.opened(url) as scheduler:
        found = scheduler.dead_letters.summary(given.with_full_names(scheduler, where), limit=limit)
        out = Output(as_json=json)
        if json:
            out.document({"groups": found})
            return
        now = scheduler.backend.now()
        out.table(
            ("jobs", "target", "error type", "first", "last", "latest job", "latest error"),
            [
                (
                    group.count,
                    group.target,
                    group.error_type,
                    ago(group.first_at, now),
                    ago(group.last_at, now),
                    group.sample,
                    group.message,
                )
                for group in found
            ],
            empty="no dead letters",
            spare=("first", "latest error"),
        )


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue since until error")
def purge(
    where: JobFilter,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    dry_run: given.DryRun = False,
    yes: given.Yes = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Delete dead letters for good, with their history: those that match, or --all. What an open batch or join needs stays."""
    if every is not where.is_empty:
        raise typer.BadParameter("name a filter, or --all; one of the two", param_hint="--all")
    out = Output(as_json=json)
    with given.opened(url) as scheduler:
        named = given.with_full_names(scheduler, where)
        failed = dataclasses.replace(named, statuses=[JobStatus.FAILED])
        total = scheduler.dead_letters.purge(failed, dry_run=True)
        if dry_run:
            out.say(f"would delete {jobs_of(total)} with their history", would_delete=total)
            return
        if total and not confirmed(f"delete {jobs_of(total)} with their history", yes=yes, out=out):
            return
        count = scheduler.dead_letters.purge(failed)
        out.say(f"deleted {jobs_of(count)}", deleted=count)


@commands.command(epilog=EPILOG)
def alerts(
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only alerts since this time; 2h means in the last 2 hours.",
            show_default=False,
        ),
    ] = None,
    limit: given.Limit = 100,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List alerts, newest first: one per target and type of error, at most one an hour, with the number of failures."""
    with given.opened(url) as scheduler:
        found = scheduler.dead_letters.alerts(since=given.moment(since, "--since"), limit=limit)
        out = Output(as_json=json)
        if json:
            out.document({"alerts": [{**structs.asdict(alert), "count": alert.count} for alert in found]})
            return
        now = scheduler.backend.now()
        out.table(
            ("count", "target", "raised", "first job", "error"),
            [
                (alert.count, alert.target, ago(alert.created_at, now), alert.job_id, alert.error)
                for alert in found
            ],
            empty="no alerts",
        )
