"""``ratchet breakers``: which services are cut off; open and reset by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG, NothingFound, Refused
from ratchet.cli.output import Output

commands = typer.Typer(
    help="Circuit breakers: which services are cut off; open and reset by hand.",
    no_args_is_help=True,
    epilog=EPILOG,
)

Name = Annotated[str, typer.Argument(metavar="SERVICE", help="The service's name.", show_default=False)]


@commands.command("list", epilog=EPILOG)
def list_(url: given.Url = None, json: given.Json = False) -> None:
    """List breakers; an open one lets a few jobs try again after a while."""
    with given.opened(url) as scheduler:
        found = scheduler.breakers.list()
        out = Output(as_json=json)
        if json:
            out.document({"breakers": found})
            return
        out.table(
            ("service", "state", "probes from"),
            [(one.service, one.state, one.until if one.state != "CLOSED" else None) for one in found],
            empty="no breaker was used yet",
        )


@commands.command("open", epilog=EPILOG)
def open_(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Let no job that depends on a service start, on any node, until `reset`; running jobs go on."""
    with given.opened(url) as scheduler:
        if not scheduler.breakers.open(name):
            raise Refused(f"the breaker of {name!r} is already open")
        Output(as_json=json).say(f"opened the breaker of {name}", opened=name)


@commands.command(epilog=EPILOG)
def reset(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Close a breaker and forget what it has seen: jobs start again."""
    with given.opened(url) as scheduler:
        if not scheduler.breakers.reset(name):
            if name not in {one.service for one in scheduler.breakers.list()}:
                raise NothingFound(f"there is no breaker of {name!r}")
            raise Refused(f"the breaker of {name!r} is not open")
        Output(as_json=json).say(f"reset the breaker of {name}", reset=name)
