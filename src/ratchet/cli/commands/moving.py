"""``ratchet db move``, ``export``, ``import`` and ``after-restore``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import confirmed
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output
from ratchet.cli.people import As, user_name
from ratchet.config import resolve_options, shown_url
from ratchet.moving import (
    MoveReport,
    Progress,
    Restored,
    Stage,
    after_restore,
    export_store,
    give_up,
    import_file,
    move,
)

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        "--url",
        metavar="URL",
        help=f"The store whose jobs are moved. Default: ${given.URL_VARIABLE}, else {given.DEFAULT_URL}.",
        show_default=False,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="URL", help="The store that they are moved to; empty, or new.", show_default=False
    ),
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait",
        metavar="DURATION",
        help="How long jobs that are running may take to end before the command stops.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file of lines, one row in each.", show_default=False)
]

#: Characters of the bar.
_WIDTH = 24
#: Seconds between two lines where nobody sees them change.
_SELDOM = 10.0


def register(commands: typer.Typer) -> None:
    """Add these commands to ``ratchet db``."""
    commands.command("move", epilog=EPILOG)(move_command)
    commands.command("export", epilog=EPILOG)(export_command)
    commands.command("import", epilog=EPILOG)(import_command)
    commands.command("after-restore", epilog=EPILOG)(after_restore_command)


def move_command(
    source: From = None,
    target: To = None,
    wait: Wait = "5m",
    hand_back: Annotated[
        bool,
        typer.Option(
            "--hand-back",
            help="Take jobs that have not ended after --wait from their nodes; their code may still be running when they run again.",
        ),
    ] = False,
    give_it_up: Annotated[
        bool, typer.Option("--give-up", help="Let the nodes of --from go on, and forget an unfinished move.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only look and count, and change nothing.")
    ] = False,
    yes: given.Yes = False,
    as_: As = None,
    json: given.Json = False,
) -> None:
    """
    Move every job, with its history and all that belongs to it, to another store; ids and states are kept.

    First no node of the old store can claim any more, and what runs there ends; then it takes no writes, and submissions to it are
    refused; then rows are copied, and compared on both sides; then the new store is open for nodes. Interrupted at any point, the same command
    goes on. The old store keeps its rows and stays closed.
    """
    out, source = Output(as_json=json), given.existing(given.store_url(source))
    if give_it_up:
        found = give_up(source, options=resolve_options())
        text = (
            "the move is given up; nodes may claim again"
            if found
            else "there is no unfinished move; nothing is held back"
        )
        out.say(text, store=shown_url(source), given_up=found)
        return
    if target is None:
        raise typer.BadParameter("say where the jobs are moved to", param_hint="--to")
    what = f"close {shown_url(source)} for good, and move its jobs to {shown_url(target)}"
    if not dry_run and not confirmed(what, yes=yes, out=out):
        return
    report = move(
        source,
        target,
        options=resolve_options(),
        wait=given.duration(wait, "--wait"),
        hand_back=hand_back,
        dry_run=dry_run,
        principal=as_ or user_name(),
        on_progress=_shown(as_json=json),
    )
    _end_line(as_json=json)
    if dry_run:
        text = f"{report.jobs} jobs ({report.rows} rows) would be moved; {report.nodes} nodes are alive and {report.running} jobs are running"
    elif not report.tallies:
        text = f"the jobs were moved to {shown_url(target)} before; it is open"
    else:
        text = f"moved {_told(report)}. Both sides are equal; point applications and nodes to {shown_url(target)}"
    _say(out, report, text)


def export_command(
    path: File, wait: Wait = "5m", url: given.Url = None, yes: given.Yes = False, json: given.Json = False
) -> None:
    """
    Write everything in a store to a new file: newline-delimited JSON, one row in each line.

    While it is written, the store takes neither claims nor submissions, so that the file is the store at one moment. Jobs that are running
    end first. Then the store is open again, and its nodes go on.
    """
    out, chosen = Output(as_json=json), given.existing(given.store_url(url))
    if not confirmed(f"close {shown_url(chosen)} while it is exported", yes=yes, out=out, can_look=False):
        return
    report = export_store(
        chosen,
        path,
        options=resolve_options(),
        wait=given.duration(wait, "--wait"),
        on_progress=_shown(as_json=json),
    )
    _end_line(as_json=json)
    _say(out, report, f"exported {_told(report)} to {path}")


def import_command(path: File, url: given.Url = None, json: given.Json = False) -> None:
    """
    Fill an empty store with a file of `ratchet db export`. Interrupted at any point, the same command goes on.

    At the end the rows of the store are compared with the checksums in the file; before that no node can work on it.
    """
    chosen = given.store_url(url)
    report = import_file(path, chosen, options=resolve_options(), on_progress=_shown(as_json=json))
    _end_line(as_json=json)
    _say(Output(as_json=json), report, f"imported {_told(report)} into {shown_url(chosen)}")


def after_restore_command(
    running: Annotated[
        Restored,
        typer.Option(
            "--running",
            help="What becomes of jobs that were running: paused until a person looks, or run again.",
        ),
    ] = Restored.PAUSE,
    pause_queues: Annotated[
        bool, typer.Option("--pause-queues", help="Also pause every queue, until it is resumed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look, and change nothing.")] = False,
    url: given.Url = None,
    yes: given.Yes = False,
    json: given.Json = False,
) -> None:
    """
    Look after a store that was restored from a backup, before the first node starts on it.

    A job that was running when the backup was made may have ended since; nobody can tell. It gets an entry in its history, and is
    paused, or handed back to run again. Jobs that waited then and have run since will run again; the command counts what is due.
    """
    out, chosen = Output(as_json=json), given.existing(given.store_url(url))
    what = f"{'pause' if running is Restored.PAUSE else 'hand back'} what was running when the backup of {shown_url(chosen)} was made"
    if not dry_run and not confirmed(what, yes=yes, out=out):
        return
    report = after_restore(
        chosen, running, options=resolve_options(), pause_queues=pause_queues, dry_run=dry_run
    )
    if json:
        out.document(report)
        return
    became = (
        "would be dealt with" if dry_run else "are paused" if running is Restored.PAUSE else "will run again"
    )
    out.text(f"{len(report.running)} jobs were running when the backup was made; they {became}")
    for job_id in report.running:
        out.text(f"  {job_id}")
    out.text(
        f"{report.overdue} jobs wait and are due, and {report.schedules} schedules have passed a fire time: what of it was done after the "
        f"backup is done again"
    )
    if report.queues:
        out.text(f"paused: {', '.join(report.queues)}")


def _told(report: MoveReport) -> str:
    part = f", {report.copied} of them now" if report.resumed and report.copied != report.rows else ""
    return f"{report.jobs} jobs ({report.rows} rows{part}) in {report.seconds:.1f} s, {report.jobs_per_second:.0f} jobs/s"


def _say(out: Output, report: MoveReport, text: str) -> None:
    if out.as_json:
        out.document(
            {
                "rows": {kind.value: tally for kind, tally in report.tallies.items()},
                "jobs": report.jobs,
                "seconds": report.seconds,
                "jobs_per_second": report.jobs_per_second,
                "handed_back": report.handed_back,
                "resumed": report.resumed,
                "dry_run": report.dry_run,
            }
        )
        return
    found = [
        (kind.value, tally.count, tally.checksum) for kind, tally in report.tallies.items() if tally.count
    ]
    if found:
        out.table(("kind", "rows", "checksum"), found)
    out.text(text)


def _shown(*, as_json: bool) -> Callable[[Progress], None]:
    """One line on a terminal that changes; elsewhere a line once in a while."""
    if as_json:
        return lambda progress: None
    is_terminal = sys.stderr.isatty()
    last = time.monotonic() if not is_terminal else 0.0

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (0.1 if is_terminal else _SELDOM):
            return
        last = now
        text = _line(progress)
        sys.stderr.write(f"\r\x1b[2K{text}" if is_terminal else f"{text}\n")
        sys.stderr.flush()

    return show


def _line(progress: Progress) -> str:
    if progress.stage is Stage.DRAIN:
        return f"waiting for {progress.rows} runs to end …"
    kind = f" {progress.kind.value.replace('_', ' ')}" if progress.kind is not None else ""
    if not progress.expected:
        return f"{progress.stage}{kind}: {progress.rows} rows, {progress.rate:.0f}/s"
    part = min(progress.rows / progress.expected, 1.0)
    filled = round(part * _WIDTH)
    return f"{progress.stage} [{'#' * filled}{'-' * (_WIDTH - filled)}] {part:4.0%} {progress.rows} rows, {progress.rate:.0f}/s{kind}"


def _end_line(*, as_json: bool) -> None:
    if not as_json and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
