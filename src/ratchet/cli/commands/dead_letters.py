"""``ratchet dlq``: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import bulk_retry, each
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output, ago
from ratchet.model.job import JobFilter

commands = typer.Typer(
    help="Dead letters: jobs that failed for good, and the alerts about them.",
    no_args_is_help=True,
    epilog=EPILOG,
)


@commands.command("list", epilog=EPILOG)
@given.filtered("tag target queue since until error")
def list_(
    where: JobFilter,
    limit: given.Limit = 50,
    cursor: given.Cursor = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """List dead letters, latest failure first."""
    with given.opened(url) as scheduler:
        page = scheduler.dead_letters.find(where, limit=limit, cursor=cursor)
        out = Output(as_json=json)
        if json:
            out.document({"dead_letters": page.items, "next_cursor": page.next_cursor})
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
                for letter in page
            ],
            empty="no dead letters",
            spare=("alerts", "crashes", "attempts", "reason", "failed"),
        )
        if page.next_cursor is not None:
            out.text(f"more: --cursor {page.next_cursor}", style="dim")


@commands.command(epilog=EPILOG)
@given.filtered("tag target queue since until error")
def retry(
    job_ids: given.JobIds = None,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    where: JobFilter = given.NO_FILTER,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Retry at most this many jobs.", show_default=False)
    ] = None,
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
            bulk_retry(scheduler, where, limit, yes=yes, out=out)


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
    """List alerts, newest first: one per job and error, at most one an hour."""
    with given.opened(url) as scheduler:
        found = scheduler.dead_letters.alerts(since=given.moment(since, "--since"), limit=limit)
        out = Output(as_json=json)
        if json:
            out.document({"alerts": found})
            return
        now = scheduler.backend.now()
        out.table(
            ("job", "raised", "error"),
            [(alert.job_id, ago(alert.created_at, now), alert.error) for alert in found],
            empty="no alerts",
        )
