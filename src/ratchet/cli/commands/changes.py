"""Changes of many jobs: of those that were named, or of all that match."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from uuid import UUID

import typer

from ratchet.cli import parameters as given
from ratchet.cli.bulk import in_chunks
from ratchet.cli.exits import Refused
from ratchet.cli.output import Output
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler


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
    if total and not confirmed(f"cancel up to {total} jobs", yes=yes, out=out):
        return
    count = in_chunks(
        "canceling", total, lambda some: scheduler.cancel_jobs(where, limit=some), quiet=out.as_json
    )
    out.say(f"canceled {count} jobs", canceled=count)


def bulk_retry(scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, out: Output) -> None:
    """Retry every FAILED job that matches, in pieces, with a bar for people."""
    failed = dataclasses.replace(where, statuses=[JobStatus.FAILED])
    total = _total(scheduler, failed, limit)
    if total and not confirmed(f"retry {total} failed jobs", yes=yes, out=out):
        return
    count = in_chunks(
        "retrying", total, lambda some: scheduler.retry_jobs(failed, limit=some), quiet=out.as_json
    )
    out.say(f"retried {count} jobs", retried=count)


def _total(scheduler: Scheduler, where: JobFilter, limit: int | None) -> int:
    matching = scheduler.jobs.count(where)
    return matching if limit is None else min(limit, matching)


def no_filter(where: JobFilter, verb: str) -> None:
    """Refuse a filter beside ids: which of the two was meant?"""
    if not where.is_empty:
        raise typer.BadParameter(f"{verb} takes either ids or a filter, not both", param_hint="JOB_ID")


def confirmed(what: str, *, yes: bool, out: Output) -> bool:
    """Ask a person; a script is taken at its word."""
    if yes or out.as_json or not sys.stdin.isatty():
        return True
    return typer.confirm(f"{what}?", err=True)
