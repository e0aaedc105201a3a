"""
Changes of several jobs: of those that were named, or of all that match a filter.

``ratchet jobs`` and ``ratchet dlq`` share them. Many jobs are changed in pieces, with a progress bar on
stderr for people.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from uuid import UUID

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import Refused
from ratchet.cli.output import Output, console
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler

#: Jobs that one call changes.
CHUNK = 250


def each(
    scheduler: Scheduler,
    job_ids: list[str] | None,
    verb: Callable[[UUID], bool],
    done: str,
    refused: str,
    out: Output,
) -> None:
    """Apply *verb* to each job. All are tried; those that could not be changed are one error at the end."""
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
    """Cancel everything that matches."""
    where.require_criterion("ratchet jobs cancel")
    total = _total(scheduler, where, limit)
    if total and not confirmed(f"cancel up to {total} jobs", yes=yes, out=out):
        return

    def step(some: int) -> int:
        return scheduler.cancel_jobs(where, limit=some)

    count = in_chunks("canceling", total, step, quiet=out.as_json)
    out.say(f"canceled {count} jobs", canceled=count)


def bulk_retry(scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, out: Output) -> None:
    """Retry every FAILED job that matches."""
    failed = dataclasses.replace(where, statuses=[JobStatus.FAILED])
    total = _total(scheduler, failed, limit)
    if total and not confirmed(f"retry {total} failed jobs", yes=yes, out=out):
        return

    def step(some: int) -> int:
        return scheduler.retry_jobs(failed, limit=some)

    count = in_chunks("retrying", total, step, quiet=out.as_json)
    out.say(f"retried {count} jobs", retried=count)


def in_chunks(what: str, total: int, step: Callable[[int], int], *, quiet: bool = False) -> int:
    """
    Call *step* with a number of jobs until it has changed *total* or finds no more; how many were changed.

    Never more than *total*: a job that was retried may fail again at once, and would match forever.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    with Progress(
        *columns, console=console(stderr=True), transient=True, disable=quiet or total <= CHUNK
    ) as bar:
        task = bar.add_task(what, total=total)
        while done < total:
            some = step(min(CHUNK, total - done))
            if some <= 0:
                break
            done += some
            bar.update(task, completed=done)
    return done


def _total(scheduler: Scheduler, where: JobFilter, limit: int | None) -> int:
    matching = scheduler.jobs.count(where)
    return matching if limit is None else min(limit, matching)


def no_filter(where: JobFilter, verb: str) -> None:
    """Refuse a filter together with ids: it is not clear which of the two was meant."""
    if not where.is_empty:
        raise typer.BadParameter(f"{verb} takes either ids or a filter, not both", param_hint="JOB_ID")


def confirmed(what: str, *, yes: bool, out: Output) -> bool:
    """Ask, if a person is there to answer; a script is never asked."""
    if yes or out.as_json or not sys.stdin.isatty():
        return True
    return typer.confirm(f"{what}?", err=True)
