"""The demo: submit jobs, watch them, and compare how each ended with what was expected."""

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

#: The demo ends after this many seconds; half a minute is promised.
LIMIT = 25.0


@dataclass(slots=True)
class DemoJob:
    """One job of the demo, and how it must end."""

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


def submit(scheduler: Scheduler) -> list[DemoJob]:
    """Submit all jobs of the demo; the node in this process begins to run them at once."""

    def demo_job(title: str, builder: Any, status: JobStatus, attempts: int, **more: Any) -> DemoJob:
        return DemoJob(title, builder.submit(), status, attempts, **more)

    sign_invoices = scheduler.job(lane=Lane.PROCESS)(shop.sign_invoices)
    succeeded, failed = JobStatus.SUCCEEDED, JobStatus.FAILED
    orders = [
        demo_job(
            f"charges order {order}", scheduler.enqueue(shop.charge, order).with_tags("demo"), succeeded, 1
        )
        for order in (1, 2, 3)
    ]
    retried = (
        scheduler.enqueue(shop.reserve_stock, 1)
        .with_max_retries(3)
        .with_backoff(BackoffPolicy.EXPONENTIAL, timedelta(seconds=2))
    )
    return [
        *orders,
        demo_job("fails once, is retried", retried, succeeded, 2),
        demo_job(
            "fails for good, becomes a dead letter",
            scheduler.enqueue(shop.pay_supplier, 1).with_max_retries(5),
            failed,
            1,
            error="AccountClosed",
        ),
        demo_job(
            "is canceled while it runs",
            scheduler.enqueue(shop.send_newsletter, 250).with_priority(Priority.HIGH),
            JobStatus.CANCELED,
            0,
            cancel=True,
        ),
        demo_job(
            "exceeds its timeout of 3 s",
            scheduler.enqueue(shop.print_catalog, 1200).with_timeout(timedelta(seconds=3)),
            failed,
            1,
            error="timeout",
        ),
        demo_job("is an async def", scheduler.enqueue(shop.fetch_rates, "USD"), succeeded, 1),
        demo_job(
            "is CPU-bound, in a process of its own",
            scheduler.enqueue(sign_invoices, 500_000),
            succeeded,
            1,
        ),
    ]


def run_demo(scheduler: Scheduler, console: Console) -> list[DemoJob]:
    """Run the demo; its jobs, each with how it ended."""
    jobs = submit(scheduler)
    begun = time.monotonic()
    with _watched(jobs, console, begun) as refresh:
        while time.monotonic() - begun < LIMIT:
            ended = [demo_job.look() for demo_job in jobs]
            refresh()
            for demo_job in jobs:
                if demo_job.cancel and demo_job.job is not None and _has_made_progress(demo_job.job):
                    scheduler.cancel_job(demo_job.handle.id, reason="nobody reads it")
                    demo_job.cancel = False
            if all(ended):
                break
            time.sleep(0.1)
    return jobs


def _has_made_progress(job: Job) -> bool:
    return job.progress is not None and job.progress.fraction >= 0.4


def secrets_found(scheduler: Scheduler, jobs: list[DemoJob]) -> list[str]:
    """The jobs of which a credential was stored; there must be none."""
    found: list[str] = []
    for demo_job in jobs:
        runs = scheduler.jobs.executions(demo_job.handle.id, all=True)
        lines = scheduler.jobs.logs(demo_job.handle.id)
        texts = [
            demo_job.note,
            *(f"{run.error} {run.traceback}" for run in runs),
            *(line.message for line in lines),
        ]
        if any(secret in text for text in texts for secret in (shop.PASSWORD, shop.API_KEY)):
            found.append(f"a credential of the job that {demo_job.title} was stored")
    return found


def state_table(jobs: list[DemoJob], title: str) -> Table:
    """A table of the jobs and their states."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=False)
    for name in ("job", "this one …", "status", "attempts", "what it says"):
        table.add_column(name, overflow="fold", no_wrap=name in ("job", "status"))
    for demo_job in jobs:
        job = demo_job.job
        status = "-" if job is None else str(job.status)
        name = "" if job is None else job.target.rpartition(":")[2]
        table.add_row(
            Text(name, style="bold"),
            cell(demo_job.title),
            Text(status, style=STYLES.get(status, "")),
            cell(0 if job is None else job.attempts),
            cell(demo_job.note),
        )
    return table


@contextmanager
def _watched(jobs: list[DemoJob], console: Console, begun: float) -> Iterator[Callable[[], None]]:
    """Gives a function that shows what has changed: in place on a terminal, else line by line."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(
                state_table(jobs, f"A shop at work, {time.monotonic() - begun:.0f} s"), refresh=True
            )
        return
    seen: dict[int, tuple[JobStatus, int]] = {}

    def lines() -> None:
        for number, demo_job in enumerate(jobs):
            if demo_job.job is not None and seen.get(number) != (
                state := (demo_job.job.status, demo_job.job.attempts)
            ):
                seen[number] = state
                at = f"{time.monotonic() - begun:5.1f} s"
                console.print(
                    Text(f"{at}  {state[0]:<10} {demo_job.job.target.rpartition(':')[2]}  {demo_job.note}")
                )

    yield lines


def problems_of(scheduler: Scheduler, jobs: list[DemoJob]) -> list[str]:
    """All jobs that did not end as they should; empty if all is well."""
    found = [
        f"{demo_job.handle.id}, which {demo_job.title}, {demo_job.problem}"
        for demo_job in jobs
        if demo_job.problem is not None
    ]
    try:
        letters = {letter.job_id for letter in scheduler.dead_letters.find(limit=100)}
        found += [
            f"{demo_job.handle.id} is not among the dead letters"
            for demo_job in jobs
            if demo_job.status is JobStatus.FAILED and demo_job.handle.id not in letters
        ]
        found += secrets_found(scheduler, jobs)
    except RatchetError as error:
        found.append(str(error))
    return found
