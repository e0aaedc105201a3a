"""``ratchet worker``: run jobs until told to stop."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from ratchet.cli.user_app import split_app
from ratchet.cli.worker.child_process import ChildProcess, spawn_worker
from ratchet.cli.worker.logs import LEVELS, log_to_stderr
from ratchet.cli.worker.messages import ChildSettings
from ratchet.cli.worker.source_watch import SourceWatch, sources_of
from ratchet.cli.worker.supervisor import Supervisor
from ratchet.config import URL_VARIABLE
from ratchet.model.durations import parse_duration
from ratchet.model.errors import ConfigurationError
from ratchet.scheduler.importing import module_names

logger = logging.getLogger("ratchet.worker")


def worker(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            envvar="RATCHET_APP",
            help="The scheduler to run, as package.module:attribute; imported from the current directory.",
            show_default=False,
        ),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            help="How many jobs run at once in threads, per process.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=512, help="How many processes to run.")
    ] = 1,
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues",
            "-q",
            metavar="NAMES",
            help="Take only jobs of these queues (emails,default).",
            show_default=False,
        ),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import this module before the worker starts, because it declares jobs; may be repeated.",
            show_default=False,
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="Restart when a .py file of the app's package changes; for development."
        ),
    ] = False,
    drain_timeout: Annotated[
        str | None,
        typer.Option(
            "--drain-timeout",
            metavar="DURATION",
            help="How long running jobs may take to finish when the worker stops (30s).",
            show_default=False,
        ),
    ] = None,
    unresponsive_after: Annotated[
        str,
        typer.Option(
            "--unresponsive-after",
            metavar="DURATION",
            help="Replace a process that shows no sign of life for this long, as in a deadlock or in one C call "
            "that holds the interpreter; 0: never.",
        ),
    ] = "2m",
    log_level: Annotated[str, typer.Option("--log-level", help=", ".join(LEVELS))] = "INFO",
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            show_default=False,
            help=f"The store, for an app that does not name one in its code; default: ${URL_VARIABLE}.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Log JSON objects, one per line.")] = False,
) -> None:
    """
    Run jobs until told to stop.

    A small process without your code starts the processes that run it, beats for them, and replaces those that
    die. SIGTERM or Ctrl-C: take no more jobs, let running jobs finish, hand back the rest. Ctrl-C again: stop
    at once. SIGHUP: replace the processes one after the other. Logs go to stderr.
    """
    split_app(app)
    level = log_level.upper()
    if level not in LEVELS:
        raise typer.BadParameter(f"{log_level!r} is none of {', '.join(LEVELS)}", param_hint="--log-level")
    log_to_stderr(level, as_json=json)
    silence = _seconds(unresponsive_after, "--unresponsive-after")
    drain = None if drain_timeout is None else _seconds(drain_timeout, "--drain-timeout")
    here = str(Path.cwd())
    settings = ChildSettings(
        status=-1,
        control=-1,
        path=here,
        store_named=url is not None,
        concurrency=concurrency,
        queues=None if queues is None else [name.strip() for name in queues.split(",") if name.strip()],
        imports=list(module_names(imports or ())),
        drain_timeout=drain,
        log_level=level,
        log_json=json,
    )
    spawn = spawn_worker(app, {} if url is None else {URL_VARIABLE: url})
    supervisor = Supervisor(
        lambda: ChildProcess(spawn, settings),
        processes=processes,
        unresponsive_after=silence or None,
        drain_timeout=drain,
        sources=_sources(app, here) if reload else None,
    )
    logger.info("starting %d %s for %s", processes, "process" if processes == 1 else "processes", app)
    sys.exit(supervisor.run())


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _sources(app: str, path: str) -> SourceWatch:
    roots = sources_of(app, path)
    if not roots:
        raise ConfigurationError(f"--reload: the source files of {app} cannot be found from {path}")
    return SourceWatch(roots)
