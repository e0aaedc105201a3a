"""All commands, put together into one app."""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ratchet.cli.conversion import convert_only_what_needs_it
from ratchet.cli.exit_codes import EPILOG, code_of, complain
from ratchet.cli.people import personal
from ratchet.model.errors import RatchetError

#: Set while a shell asks for completions.
COMPLETION = "_RATCHET_COMPLETE"


class Commands(TyperGroup):
    """The root of all commands: turns an error of Ratchet into a line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the command line apart."""
        convert_only_what_needs_it(self)  # here, because Typer adds parameters after the group is made
        return super().parse_args(ctx, args)

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
    "audit": Entry(
        "commands.audit",
        "audit",
        "Show who changed what, newest first: jobs, queues, limits, breakers, schedules, nodes, the schema.",
    ),
    "metrics": Entry(
        "commands.metrics",
        "metrics",
        "Print the metrics of the store in Prometheus' format, or serve them with --http.",
    ),
    "top": Entry(
        "top.command",
        "top",
        "Watch queues, nodes, running jobs, rates and problems; pause a queue, drain a node or cancel a job with a key.",
    ),
    "dashboard": Entry(
        "commands.dashboard",
        "dashboard",
        "Serve the dashboard on this machine, until the command is stopped.",
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
    "nodes": Entry(
        "commands.nodes", "commands", "Nodes: the processes that run jobs; drain, stop and forget them."
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
    "keys": Entry(
        "commands.keys",
        "commands",
        "Keys of encrypted values: count them, and move values to the active key.",
    ),
    "db": Entry(
        "commands.database",
        "commands",
        "The database: create, upgrade, check and show the schema; roles; sizes, purges and moves.",
    ),
}


#: Commands that do what the API's verbs do: they say who gives them, and go by the rules of a scheduler.
PERSONAL = frozenset(
    [
        "nodes",
        "health",
        "audit",
        "top",
        "dashboard",
        "jobs",
        "dlq",
        "queues",
        "limits",
        "breakers",
        "recurring",
    ]
)


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
            made.add_typer(_personal(found) if name in PERSONAL else found, name=name)
        else:
            command = personal(found) if name in PERSONAL else found
            made.command(name, epilog=EPILOG, **entry.settings)(command)
    return made


def _personal(group: typer.Typer) -> typer.Typer:
    """A group whose commands say who gives them."""
    made = copy.copy(group)
    callback = group.registered_callback
    if callback is not None and callback.callback is not None:
        made.registered_callback = copy.copy(callback)
        made.registered_callback.callback = personal(callback.callback, is_group=True)
    made.registered_commands = [copy.copy(one) for one in group.registered_commands]
    for one in made.registered_commands:
        if one.callback is not None:
            one.callback = personal(one.callback)
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
