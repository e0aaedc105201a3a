"""``ratchet limits``: how many jobs of a resource may run at once, or start per period."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.commands.job_changes import confirmed
from ratchet.cli.exit_codes import EPILOG, NothingFound
from ratchet.cli.output import Output, shown_value
from ratchet.model.cluster import LimitRecord
from ratchet.model.durations import parse_duration

commands = typer.Typer(
    help="Limits: how many jobs of a resource run at once, or start per period.",
    no_args_is_help=True,
    epilog=EPILOG,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The resource's name.", show_default=False)]


@commands.command("list", epilog=EPILOG)
def list_(url: given.Url = None, json: given.Json = False) -> None:
    """List limits and how much of each is in use."""
    with given.opened(url) as scheduler:
        found = scheduler.limits.list()
        out = Output(as_json=json)
        if json:
            out.document({"limits": found})
            return
        out.table(
            ("resource", "at once", "in use", "rate"),
            [(limit.name, limit.concurrent, limit.held, _rate(limit)) for limit in found],
            empty="no limits are set",
        )


@commands.command(epilog=EPILOG)
def show(
    name: Name,
    most: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="Show at most this many holders.")
    ] = 50,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Show one limit and who holds its permits: jobs and nodes, the longest first."""
    with given.opened(url) as scheduler:
        found = next((limit for limit in scheduler.limits.list() if limit.name == name), None)
        holders = scheduler.limits.holders(name, limit=most)
        if found is None and not holders:
            raise NothingFound(f"there is no limit for {name!r}")
        out = Output(as_json=json)
        if json:
            out.document({"limit": found, "holders": holders})
            return
        if found is not None:
            out.say(f"{name}: {_shown(found)}; {found.held} in use")
        out.table(
            ("job", "node"),
            [(holder.job_id, holder.node_id) for holder in holders],
            empty="nobody holds a permit",
        )


def _shown(limit: LimitRecord) -> str:
    at_once = f"{limit.concurrent} at once" if limit.concurrent is not None else None
    return ", ".join(part for part in (at_once, _rate(limit)) if part)


def _rate(limit: LimitRecord) -> str | None:
    return None if limit.rate is None else f"{limit.rate} per {shown_value(limit.period)}"


@commands.command("set", epilog=EPILOG)
def set_(
    name: Name,
    concurrent: Annotated[
        int | None,
        typer.Option(
            "--concurrent", min=0, help="How many jobs of this resource may run at once.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=1, help="How many jobs may start per period.", show_default=False),
    ] = None,
    per: Annotated[str, typer.Option("--per", metavar="DURATION", help="The period of --rate.")] = "1m",
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Create or change a limit; what you do not name stays as it was."""
    if concurrent is None and rate is None:
        raise typer.BadParameter("say --concurrent, --rate, or both", param_hint="--concurrent")
    try:
        period = parse_duration(per)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--per") from None
    with given.opened(url) as scheduler:
        if concurrent is not None:
            scheduler.limits.set(name, concurrent=concurrent)
        if rate is not None:
            scheduler.limits.set_rate(name, rate, per=period)
        found = next(limit for limit in scheduler.limits.list() if limit.name == name)
        Output(as_json=json).say(f"{name}: {_shown(found)}", limit=found)


@commands.command(epilog=EPILOG)
def remove(name: Name, yes: given.Yes = False, url: given.Url = None, json: given.Json = False) -> None:
    """Forget a limit; jobs of the resource are no longer held back."""
    out = Output(as_json=json)
    with given.opened(url) as scheduler:
        if not confirmed(f"remove the limit of {name}", yes=yes, out=out, can_look=False):
            return
        if not scheduler.limits.remove(name):
            raise NothingFound(f"there is no limit for {name!r}")
        out.say(f"removed the limit of {name}", removed=name)
