"""``ratchet demo``: watch a small shop at work."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.demo.scenario import DemoJob, problems_of, run_demo, state_table
from ratchet.cli.exit_codes import ExitCode
from ratchet.cli.output import Output, console
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from ratchet.stores import file_url


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            show_default=False,
            help="A store to run the shop on; default: an SQLite file in a temporary directory.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the table.")
    ] = False,
) -> None:
    """
    Watch a small shop at work, for a few seconds.

    Jobs succeed, one is retried, one becomes a dead letter with a redacted error, one is canceled, one
    exceeds its timeout, one is async, one runs in a process of its own. Exit code 0 only if every job
    ended as it should.
    """
    with _quiet_logs(), _store_url(url) as chosen:
        stage = console(stderr=json)
        options = Options(concurrency=8, process_concurrency=1, auto_migrate=True)
        scheduler = Scheduler(chosen, allow=["ratchet.cli.demo.shop"], options=options)
        try:
            with scheduler:
                jobs = run_demo(scheduler, stage)
            problems = problems_of(scheduler, jobs)
        finally:
            scheduler.close()
    if json:
        Output(as_json=True).document(
            {"ok": not problems, "problems": problems, "jobs": [_facts(a) for a in jobs]}
        )
    else:
        stage.print(state_table(jobs, "How it ended"))
        stage.print()
        for problem in problems:
            stage.print(f"[red]✗[/] {problem}")
        if not problems:
            stage.print(f"[green]✓[/] all {len(jobs)} jobs ended as they should; no credential was stored")
    if problems:
        raise typer.Exit(ExitCode.ERROR)


def _facts(demo_job: DemoJob) -> dict[str, object]:
    job = demo_job.job
    return {
        "id": demo_job.handle.id,
        "what": demo_job.title,
        "expected": demo_job.status,
        "status": None if job is None else job.status,
        "attempts": None if job is None else job.attempts,
        "says": demo_job.note,
    }


@contextmanager
def _store_url(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="ratchet-demo-", ignore_cleanup_errors=True) as folder:
        yield file_url(Path(folder) / "shop.db")


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep the engine's log lines from breaking up the table."""
    logger = logging.getLogger("ratchet")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
