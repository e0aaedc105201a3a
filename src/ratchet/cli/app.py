"""All commands, put together into one app."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ratchet.cli.exit_codes import EPILOG, code_of, complain
from ratchet.model.errors import RatchetError

#: Set while a shell asks for completions.
COMPLETION = "_RATCHET_COMPLETE"


class Commands(TyperGroup):
    """The root of all commands: turns an error of Ratchet into a line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except RatchetError as error:
            complain(error)
            raise typer.Exit(code_of(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("ratchet-jobs")
        except PackageNotFoundError:  # run from a source tree that is not installed
            found = "unknown"
        typer.echo(f"ratchet {found}")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Background jobs that survive crashes, kept in the database you already have."""


class Entry(NamedTuple):
    """Where a command is, and its line in the list of all commands, which is shown without importing it."""

    module: str
    name: str
    summary: str
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed


#: Every command, in the order of the help: groups of commands come last.
COMMANDS = {
    "worker": Entry("worker.command", "worker", "Run jobs until told to stop."),
    "nodes": Entry(
        "commands.nodes", "nodes", "List the processes that run jobs, or forget some that are gone."
    ),
    "check-deploy": Entry(
        "commands.deploy",
        "check_deploy",
        "List targets of waiting jobs and schedules that the code of APP cannot run; exit code 1 if there are any.",
    ),
    "health": Entry(
        "commands.health",
        "health",
        "Check the store, its schema, the nodes, and that due jobs are run; exit code 4 if something is wrong.",
    ),
    "metrics": Entry(
        "commands.metrics",
        "metrics",
        "Print the metrics of the store in Prometheus' format, or serve them with --http.",
    ),
    "demo": Entry("demo.command", "demo", "Watch a small shop at work, for a few seconds."),
    "bench": Entry(
        "commands.bench",
        "bench",
        "Measure submissions, drains and latency on a database, with jobs that do nothing.",
    ),
    "tck": Entry(
        "commands.conformance",
        "tck",
        "Test a store against every contract of the conformance kit.",
        {"context_settings": {"ignore_unknown_options": True}},
    ),
    "jobs": Entry("commands.jobs", "commands", "Look at jobs and change them."),
    "dlq": Entry(
        "commands.dead_letters",
        "commands",
        "Dead letters: jobs that failed for good, and the alerts about them.",
    ),
    "queues": Entry("commands.queues", "commands", "Queues: what is in them; pause and resume."),
    "limits": Entry(
        "commands.limits", "commands", "Limits: how many jobs of a resource run at once, or start per period."
    ),
    "breakers": Entry(
        "commands.breakers",
        "commands",
        "Circuit breakers: which services are cut off; open and reset by hand.",
    ),
    "recurring": Entry(
        "commands.recurring",
        "commands",
        "Recurring jobs: schedules and their runs; pause, trigger and remove them.",
    ),
    "db": Entry("commands.database", "commands", "The schema: create, upgrade, check, show."),
}


def _empty() -> typer.Typer:
    made = typer.Typer(
        name="ratchet",
        cls=Commands,
        help="Background jobs that survive crashes, kept in the database you already have.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    made.callback()(_root)
    return made


def app_of(names: Iterable[str]) -> typer.Typer:
    """The commands of these names: an import costs more time than most commands take."""
    made = _empty()
    for name in names:
        entry = COMMANDS[name]
        found = getattr(importlib.import_module(f"ratchet.cli.{entry.module}"), entry.name)
        if isinstance(found, typer.Typer):
            made.add_typer(found, name=name)
        else:
            made.command(name, epilog=EPILOG, **entry.settings)(found)
    return made


def app_for(words: Sequence[str]) -> typer.Typer:
    """What a command line of these *words* needs."""
    first = words[0] if words else "--help"
    if COMPLETION in os.environ:
        return app_of(COMMANDS)
    if first in COMMANDS:
        return app_of([first])
    if first in ("-h", "--help"):
        return _listing()
    return app_of([] if first == "--version" else COMMANDS)


def _listing() -> typer.Typer:
    """All commands by name and summary, for the help of ``ratchet`` itself; none of them can be run."""
    made = _empty()
    for name, entry in COMMANDS.items():
        made.command(name, help=entry.summary)(lambda: None)
    return made


def __getattr__(name: str) -> Any:
    """``app`` is all commands; made when it is first asked for."""
    if name != "app":
        raise AttributeError(name)
    found = globals()["app"] = app_of(COMMANDS)
    return found
