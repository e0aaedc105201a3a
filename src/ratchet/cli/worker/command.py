"""``ratchet worker``: run jobs until told to stop."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratchet.cli.user_app import split_app
from ratchet.cli.worker import systemd
from ratchet.cli.worker.child_process import ChildProcess, spawn_worker
from ratchet.cli.worker.logs import FORMATS, LEVELS, log_to_stderr
from ratchet.cli.worker.messages import ChildSettings
from ratchet.cli.worker.source_watch import SourceWatch, sources_of
from ratchet.cli.worker.supervisor import Supervisor
from ratchet.cli.worker.wear import parse_size
from ratchet.config import DRAIN_VARIABLE, URL_VARIABLE
from ratchet.model.durations import parse_duration
from ratchet.model.errors import ConfigurationError
from ratchet.scheduler.importing import module_names

if TYPE_CHECKING:
    from ratchet.cli.worker.probes import Probes

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
            help="How many jobs run at once, per process: so many in threads, so many `async def` jobs, and no more "
            "than so many in processes of their own. Default: what the app's options say (20, 200, one per core).",
            show_default=False,
        ),
    ] = None,
    async_concurrency: Annotated[
        int | None,
        typer.Option(
            "--async-concurrency",
            min=1,
            help="How many `async def` jobs run at once, per process, if not as many as --concurrency.",
            show_default=False,
        ),
    ] = None,
    process_concurrency: Annotated[
        int | None,
        typer.Option(
            "--process-concurrency",
            min=1,
            help="How many jobs of the process lane run at once, per process.",
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
    drain: Annotated[
        str | None,
        typer.Option(
            "--drain",
            "--drain-timeout",
            metavar="DURATION",
            envvar=DRAIN_VARIABLE,
            help="How long running jobs may take to finish when the worker stops; what has not finished is handed "
            "back. Default: the app's option drain_timeout; else, as a service of systemd, 5s less than TimeoutStopSec; "
            "else 30s. Give less than whoever stops the worker waits before it kills.",
            show_default=False,
        ),
    ] = None,
    max_jobs: Annotated[
        int | None,
        typer.Option(
            "--max-jobs",
            metavar="N",
            min=1,
            help="Replace a process after it has run this many jobs. It works until the new one is ready, and finishes "
            "what it runs; with several processes, one is replaced after the other.",
            show_default=False,
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="Replace a process in the same way when it holds more memory than this, such as 512M or 1.5G.",
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
    log_format: Annotated[
        str | None,
        typer.Option(
            "--log-format",
            help="text, or json: one object per line, with job_id, target, attempt, error_type and node.",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log a line for each job that succeeds, too.")
    ] = False,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve /live, /ready and /metrics here; only a port means loopback.",
            show_default=False,
        ),
    ] = None,
    store_metrics: Annotated[
        bool,
        typer.Option(
            "--store-metrics",
            help="With --http: /metrics also has what the store knows of the whole cluster.",
        ),
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            show_default=False,
            help=f"The store, for an app that does not name one in its code; default: ${URL_VARIABLE}.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --log-format json.")] = False,
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
    as_json = _is_json(log_format, json)
    log_to_stderr(level, as_json=as_json)
    silence = _seconds(unresponsive_after, "--unresponsive-after")
    drain_seconds = None if drain is None else _seconds(drain, "--drain")
    probes = None if http is None else _probes(http, store_metrics)
    here = str(Path.cwd())
    settings = ChildSettings(
        status=-1,
        control=-1,
        path=here,
        store_named=url is not None,
        concurrency=concurrency,
        async_concurrency=async_concurrency,
        process_concurrency=process_concurrency,
        queues=None if queues is None else [name.strip() for name in queues.split(",") if name.strip()],
        imports=list(module_names(imports or ())),
        drain_timeout=drain_seconds,
        default_drain=None if drain_seconds is not None else systemd.drain_time(),
        log_level=level,
        log_json=as_json,
        verbose=verbose,
        max_jobs=max_jobs,
        max_memory=None if max_memory is None else _size(max_memory),
        metrics=None if probes is None else probes.folder,
    )
    spawn = spawn_worker(app, {} if url is None else {URL_VARIABLE: url})
    supervisor = Supervisor(
        lambda: ChildProcess(spawn, settings),
        processes=processes,
        unresponsive_after=silence or None,
        drain_timeout=drain_seconds,
        sources=_sources(app, here) if reload else None,
        probes=probes,
        notifier=systemd.Notifier.of(),
    )
    logger.info("starting %d %s for %s", processes, "process" if processes == 1 else "processes", app)
    sys.exit(supervisor.run())


def _probes(http: str, store_metrics: bool) -> Probes:
    from ratchet.cli.worker.probes import Probes

    return Probes(http, store_metrics=store_metrics)


def _is_json(log_format: str | None, json: bool) -> bool:
    if log_format is None:
        return json
    if log_format not in FORMATS:
        raise typer.BadParameter(f"{log_format!r} is none of {', '.join(FORMATS)}", param_hint="--log-format")
    if json and log_format != "json":
        raise typer.BadParameter(f"{log_format} and --json contradict each other", param_hint="--log-format")
    return log_format == "json"


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-memory") from None


def _sources(app: str, path: str) -> SourceWatch:
    roots = sources_of(app, path)
    if not roots:
        raise ConfigurationError(f"--reload: the source files of {app} cannot be found from {path}")
    return SourceWatch(roots)
