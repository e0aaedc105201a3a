"""All commands, put together into one app."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ratchet.cli.commands import (
    bench,
    breakers,
    conformance,
    database,
    dead_letters,
    deploy,
    health,
    jobs,
    limits,
    nodes,
    queues,
    recurring,
)
from ratchet.cli.demo import command as demo
from ratchet.cli.exit_codes import EPILOG, code_of, complain
from ratchet.cli.worker import command as worker
from ratchet.model.errors import RatchetError


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


app = typer.Typer(
    name="ratchet",
    cls=Commands,
    help="Background jobs that survive crashes, kept in the database you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            found = version("ratchet-jobs")
        except PackageNotFoundError:  # run from a source tree that is not installed
            found = "unknown"
        typer.echo(f"ratchet {found}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Background jobs that survive crashes, kept in the database you already have."""


app.command("worker", epilog=EPILOG)(worker.worker)
app.add_typer(jobs.commands, name="jobs")
app.add_typer(dead_letters.commands, name="dlq")
app.command("nodes", epilog=EPILOG)(nodes.nodes)
app.add_typer(queues.commands, name="queues")
app.add_typer(limits.commands, name="limits")
app.add_typer(breakers.commands, name="breakers")
app.add_typer(recurring.commands, name="recurring")
app.add_typer(database.commands, name="db")
app.command("check-deploy", epilog=EPILOG)(deploy.check_deploy)
app.command("health", epilog=EPILOG)(health.health)
app.command("demo", epilog=EPILOG)(demo.demo)
app.command("bench", epilog=EPILOG)(bench.bench)
app.command("tck", epilog=EPILOG, context_settings={"ignore_unknown_options": True})(conformance.tck)
