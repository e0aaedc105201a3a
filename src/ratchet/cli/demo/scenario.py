"""The demo's course: submit, watch, and compare every job's end with what was expected."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ratchet.api.observe.handles import JobHandle
from ratchet.cli.demo import shop
from ratchet.cli.output import STYLES, cell
from ratchet.model.errors import RatchetError
from ratchet.model.job import Job
from ratchet.model.status import BackoffPolicy, JobStatus, Lane, Priority
from ratchet.scheduler import Scheduler

#: The whole must be over by then; half a minute is promised.
LIMIT = 25.0


@dataclass(slots=True)
class Act:
    """One job of the show, and how it must end."""

    title: str
    handle: JobHandle[Any]
    status: JobStatus
    attempts: int
    error: str | None = None  # what its error must contain
    cancel: bool = False
    job: Job | None = field(default=None)

    def look(self) -> bool:
        """Read the job; True once it has ended."""
        self.job = self.handle.job()
        return self.job.status.is_terminal

    @property
    def problem(self) -> str | None:
        """How its end differs from what was expected; None if it does not."""
        job = self.job
        if job is None:
            return "was never seen"
        if job.status is not self.status:
            return f"ended as {job.status} instead of {self.status}"
        if job.attempts != self.attempts:
            return f"took {job.attempts} attempts instead of {self.attempts}"
        if self.error is not None and self.error not in (job.error or ""):
            return f"its error does not say {self.error!r} but {job.error!r}"
        return None

    @property
    def note(self) -> str:
        """What there is to say about it now."""
        job = self.job
        if job is None:
            return ""
        if job.status is JobStatus.SUCCEEDED:
            return f"result: {job.result}"
        if job.status is JobStatus.RUNNING and job.progress is not None:
            return f"{job.progress.fraction:.0%} {job.progress.message or ''}"
        return job.error or job.canceled_reason or ""


def submit(scheduler: Scheduler) -> list[Act]:
    """Store all jobs of the show; the node that runs in this process begins at once."""

    def act(title: str, builder: Any, status: JobStatus, attempts: int, **more: Any) -> Act:
        return Act(title, builder.submit(), status, attempts, **more)

    sign_invoices = scheduler.job(lane=Lane.PROCESS)(shop.sign_invoices)
    succeeded, failed = JobStatus.SUCCEEDED, JobStatus.FAILED
    orders = [
        act(f"charges order {order}", scheduler.enqueue(shop.charge, order).with_tags("demo"), succeeded, 1)
        for order in (1, 2, 3)
    ]
    retried = (
        scheduler.enqueue(shop.reserve_stock, 1)
        .with_max_retries(3)
        .with_backoff(BackoffPolicy.EXPONENTIAL, timedelta(seconds=2))
    )
    return [
        *orders,
        act("fails once, is retried", retried, succeeded, 2),
        act(
            "fails for good, becomes a dead letter",
            scheduler.enqueue(shop.pay_supplier, 1).with_max_retries(5),
            failed,
            1,
            error="AccountClosed",
        ),
        act(
            "is canceled while it runs",
            scheduler.enqueue(shop.send_newsletter, 250).with_priority(Priority.HIGH),
            JobStatus.CANCELED,
            0,
            cancel=True,
        ),
        act(
            "exceeds its timeout of 3 s",
            scheduler.enqueue(shop.print_catalog, 1200).with_timeout(timedelta(seconds=3)),
            failed,
            1,
            error="timeout",
        ),
        act("is an async def", scheduler.enqueue(shop.fetch_rates, "USD"), succeeded, 1),
        act(
            "is CPU-bound, in a process of its own",
            scheduler.enqueue(sign_invoices, 500_000),
            succeeded,
            1,
        ),
    ]


def perform(scheduler: Scheduler, console: Console) -> list[Act]:
    """Run the show; the acts with their ends."""
    acts = submit(scheduler)
    begun = time.monotonic()
    with _watched(acts, console, begun) as refresh:
        while time.monotonic() - begun < LIMIT:
            ended = [act.look() for act in acts]
            refresh()
            for act in acts:
                if act.cancel and act.job is not None and _is_well_on_its_way(act.job):
                    scheduler.cancel_job(act.handle.id, reason="nobody reads it")
                    act.cancel = False
            if all(ended):
                break
            time.sleep(0.1)
    return acts


def _is_well_on_its_way(job: Job) -> bool:
    return job.progress is not None and job.progress.fraction >= 0.4


def secrets_found(scheduler: Scheduler, acts: list[Act]) -> list[str]:
    """Where a credential has reached the store: it must be nowhere."""
    found: list[str] = []
    for act in acts:
        runs = scheduler.jobs.executions(act.handle.id, all=True)
        lines = scheduler.jobs.logs(act.handle.id)
        texts = [
            act.note,
            *(f"{run.error} {run.traceback}" for run in runs),
            *(line.message for line in lines),
        ]
        if any(secret in text for text in texts for secret in (shop.PASSWORD, shop.API_KEY)):
            found.append(f"a credential of the job that {act.title} was stored")
    return found


def board(acts: list[Act], title: str) -> Table:
    """The state table."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=False)
    for name in ("job", "this one …", "status", "attempts", "what it says"):
        table.add_column(name, overflow="fold", no_wrap=name in ("job", "status"))
    for act in acts:
        job = act.job
        status = "-" if job is None else str(job.status)
        name = "" if job is None else job.target.rpartition(":")[2]
        table.add_row(
            Text(name, style="bold"),
            cell(act.title),
            Text(status, style=STYLES.get(status, "")),
            cell(0 if job is None else job.attempts),
            cell(act.note),
        )
    return table


@contextmanager
def _watched(acts: list[Act], console: Console, begun: float) -> Iterator[Callable[[], None]]:
    """While the block runs, each call of the function shows what has changed: in place, or line by line."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(
                board(acts, f"A shop at work, {time.monotonic() - begun:.0f} s"), refresh=True
            )
        return
    seen: dict[int, tuple[JobStatus, int]] = {}

    def lines() -> None:
        for number, act in enumerate(acts):
            if act.job is not None and seen.get(number) != (state := (act.job.status, act.job.attempts)):
                seen[number] = state
                at = f"{time.monotonic() - begun:5.1f} s"
                console.print(Text(f"{at}  {state[0]:<10} {act.job.target.rpartition(':')[2]}  {act.note}"))

    yield lines


def problems_of(scheduler: Scheduler, acts: list[Act]) -> list[str]:
    """Everything that did not end as it should; empty if all is well."""
    found = [f"{act.handle.id}, which {act.title}, {act.problem}" for act in acts if act.problem is not None]
    try:
        letters = {letter.job_id for letter in scheduler.dead_letters.find(limit=100)}
        found += [
            f"{act.handle.id} is not among the dead letters"
            for act in acts
            if act.status is JobStatus.FAILED and act.handle.id not in letters
        ]
        found += secrets_found(scheduler, acts)
    except RatchetError as error:
        found.append(str(error))
    return found
