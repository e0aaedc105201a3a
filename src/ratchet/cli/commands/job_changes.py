"""
Changes of several jobs: of those that were named, or of all that match a filter.

``ratchet jobs`` and ``ratchet dlq`` share them. Many jobs are changed in pieces, with a progress bar on
stderr for people.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection
from uuid import UUID

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import Refused
from ratchet.cli.output import Output, console
from ratchet.model.errors import NotAuthorized
from ratchet.model.job import JobFilter
from ratchet.model.status import AT_REST, LIVE, JobStatus, Priority
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
    identities = [given.job_id(scheduler, text) for text in job_ids]
    changed: list[UUID] = []
    problems: list[str] = []
    for identity in identities:
        job = scheduler.jobs.get(identity)
        if verb(identity):
            changed.append(identity)
        else:
            problems.append(f"{identity} ({job.status}) {refused}")
    if out.as_json:
        out.document({done.replace(" ", "_"): changed, "refused": problems})
    elif changed:
        out.text(f"{done}: {', '.join(str(identity) for identity in changed)}")
    if problems:
        raise Refused("; ".join(problems))


def bulk_cancel(
    scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, dry_run: bool, out: Output
) -> None:
    """Cancel everything that matches."""
    require_filter(where, "cancel")
    live = dataclasses.replace(where, statuses=_only(where, LIVE))
    total = _total(scheduler, live, limit)
    if dry_run:
        return out.say(f"would cancel {jobs_of(total)}", would_cancel=total)
    if total and not confirmed(f"cancel up to {jobs_of(total)}", yes=yes, out=out):
        return None

    def step(some: int) -> int:
        return scheduler.cancel_jobs(where, limit=some)

    count = in_chunks("canceling", total, step, quiet=out.as_json)
    out.say(f"canceled {jobs_of(count)}", canceled=count)
    return None


def bulk_retry(
    scheduler: Scheduler,
    where: JobFilter,
    limit: int | None,
    *,
    yes: bool,
    dry_run: bool = False,
    out: Output,
) -> None:
    """Retry every FAILED job that matches."""
    failed = dataclasses.replace(where, statuses=[JobStatus.FAILED])
    total = _total(scheduler, failed, limit)
    if dry_run:
        out.say(f"would retry {jobs_of(total)}", would_retry=total)
        return
    if total and not confirmed(f"retry {jobs_of(total)}", yes=yes, out=out):
        return

    def step(some: int) -> int:
        return scheduler.retry_jobs(failed, limit=some)

    count = in_chunks("retrying", total, step, quiet=out.as_json)
    out.say(f"retried {jobs_of(count)}", retried=count)


def bulk_delete(
    scheduler: Scheduler, where: JobFilter, limit: int | None, *, yes: bool, dry_run: bool, out: Output
) -> None:
    """Delete everything that matches and is not RUNNING, oldest last."""
    require_filter(where, "delete")
    idle = dataclasses.replace(where, statuses=_only(where, frozenset(JobStatus) - {JobStatus.RUNNING}))
    total = _total(scheduler, idle, limit)
    if dry_run:
        return out.say(f"would delete {jobs_of(total)} with their history", would_delete=total)
    if total and not confirmed(f"delete {jobs_of(total)} with their history", yes=yes, out=out):
        return None
    cursor: str | None = None
    deleted = 0

    def step(some: int) -> int:
        """One page; a job that has begun to run meanwhile stays, and counts as passed."""
        nonlocal cursor, deleted
        page = scheduler.jobs.find(idle, limit=some, cursor=cursor)
        deleted += sum(_if_permitted(scheduler.jobs.delete, job.id) for job in page)
        cursor = page.next_cursor
        return total if cursor is None else len(page.items)

    in_chunks("deleting", total, step, quiet=out.as_json)
    out.say(f"deleted {jobs_of(deleted)}", deleted=deleted)
    return None


def bulk_set_priority(
    scheduler: Scheduler,
    where: JobFilter,
    priority: Priority,
    limit: int | None,
    *,
    yes: bool,
    dry_run: bool,
    out: Output,
) -> None:
    """Give everything that matches, has not started and has another priority this one, newest first."""
    require_filter(where, "set-priority")
    others = [one for one in where.priorities or list(Priority) if one is not priority]
    rest = dataclasses.replace(where, statuses=_only(where, AT_REST), priorities=others)
    total = _total(scheduler, rest, limit) if others else 0
    if dry_run:
        return out.say(f"would make {jobs_of(total)} {priority.name}", would_change=total)
    if total and not confirmed(f"make {jobs_of(total)} {priority.name}", yes=yes, out=out):
        return None
    cursor: str | None = None
    changed = 0

    def step(some: int) -> int:
        """One page; a job that has begun to run meanwhile keeps its priority, and counts as passed."""
        nonlocal cursor, changed
        page = scheduler.jobs.find(rest, limit=some, cursor=cursor)
        changed += sum(_if_permitted(scheduler.set_priority, job.id, priority) for job in page)
        cursor = page.next_cursor
        return total if cursor is None else len(page.items)

    in_chunks("changing", total, step, quiet=out.as_json)
    out.say(f"made {jobs_of(changed)} {priority.name}", changed=changed)
    return None


def _if_permitted(verb: Callable[..., bool], *arguments: object) -> bool:
    """What *verb* answers; False if the authorizer refuses it, which leaves an entry in the audit log."""
    try:
        return verb(*arguments)
    except NotAuthorized:
        return False


def _only(where: JobFilter, statuses: Collection[JobStatus]) -> list[JobStatus]:
    """The statuses of the filter, of those that the verb is for."""
    chosen = where.statuses or list(JobStatus)
    return [status for status in chosen if status in statuses]


def require_filter(where: JobFilter, verb: str) -> None:
    """Refuse to change every job there is because an option was forgotten."""
    if where.is_empty:
        raise Refused(
            f"name jobs, or say which ones with an option such as --tag or --target: without any, "
            f"`ratchet jobs {verb}` would match every job"
        )


def in_chunks(what: str, total: int, step: Callable[[int], int], *, quiet: bool = False) -> int:
    """
    Call *step* with a number of jobs until it has changed *total* or finds no more; how many were changed.

    Never more than *total*: a job that was retried may fail again at once, and would match forever.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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


def jobs_of(count: int) -> str:
    """So many jobs, in words."""
    return "1 job" if count == 1 else f"{count} jobs"


def _total(scheduler: Scheduler, where: JobFilter, limit: int | None) -> int:
    if where.statuses is not None and not where.statuses:
        return 0  # none of the states that were asked for can be changed
    matching = scheduler.jobs.count(where)
    return matching if limit is None else min(limit, matching)


def no_filter(where: JobFilter, verb: str) -> None:
    """Refuse a filter together with ids: it is not clear which of the two was meant."""
    if not where.is_empty:
        raise typer.BadParameter(f"{verb} takes either ids or a filter, not both", param_hint="JOB_ID")


def confirmed(what: str, *, yes: bool, out: Output, can_look: bool = True) -> bool:
    """Ask, if a person is there to answer; a script has to say ``--yes``. *can_look*: the command has ``--dry-run``."""
    if yes:
        return True
    if out.as_json or not sys.stdin.isatty():
        where = "with --json" if out.as_json else "without a terminal"
        look = ", or look with --dry-run" if can_look else ""
        raise Refused(f"{where} nobody can be asked, and this would {what}; repeat with --yes{look}")
    return typer.confirm(f"{what}?", err=True)
