"""``ratchet queues``: show queues, pause and resume them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG, NothingFound, Refused
from ratchet.cli.output import Output
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob
from ratchet.scheduler import Scheduler

commands = typer.Typer(help="Queues: what is in them; pause and resume.", no_args_is_help=True, epilog=EPILOG)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.", show_default=False)]


@commands.command("list", epilog=EPILOG)
def list_(url: given.Url = None, json: given.Json = False) -> None:
    """List queues, with how many jobs wait and run in each."""
    with given.opened(url) as scheduler:
        found = scheduler.queues.list()
        out = Output(as_json=json)
        if json:
            out.document({"queues": found})
            return
        out.table(
            ("queue", "pending", "running", "paused", "since", "until"),
            [
                (one.name, one.pending, one.running, one.paused, one.paused_at, one.paused_until)
                for one in found
            ],
            empty="no queue was used yet",
        )


@commands.command(epilog=EPILOG)
def pause(
    name: Name,
    new: Annotated[
        bool, typer.Option("--new", help="Also a queue that no job was submitted to yet.")
    ] = False,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            help="It opens by itself then, such as 2026-12-01T08:00.",
            show_default=False,
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="It opens by itself after so long, such as 2h.",
            show_default=False,
        ),
    ] = None,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Let no job of a queue start, on any node; running jobs go on."""
    end = _end(until, for_)
    with given.opened(url) as scheduler:
        if not new:
            _require_known(scheduler, name, "; with --new it is paused before its first job comes")
        try:
            paused = scheduler.queues.pause(name, until=end)
        except InvalidJob as error:
            raise typer.BadParameter(str(error), param_hint="--until") from None
        if not paused:
            raise Refused(f"queue {name!r} is already paused" + ("" if end is None else " until then"))
        out = Output(as_json=json)
        if end is None:
            out.say(f"paused queue {name}", paused=name)
            return
        at = next(queue.paused_until for queue in scheduler.queues.list() if queue.name == name)
        out.say(f"paused queue {name} until {at}", paused=name, until=at)


@commands.command(epilog=EPILOG)
def resume(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Let jobs of a paused queue start again."""
    with given.opened(url) as scheduler:
        if not scheduler.queues.resume(name):
            _require_known(scheduler, name)
            raise Refused(f"queue {name!r} is not paused")
        Output(as_json=json).say(f"resumed queue {name}", resumed=name)


def _end(until: str | None, duration: str | None) -> datetime | timedelta | None:
    """When the pause ends; None: when somebody resumes the queue."""
    if until is not None and duration is not None:
        raise typer.BadParameter(
            "say when it ends with --until or with --for, not with both", param_hint="--for"
        )
    if duration is not None:
        try:
            return parse_duration(duration)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--for") from None
    if until is None:
        return None
    try:
        return datetime.fromisoformat(until).astimezone(UTC)
    except ValueError:
        raise typer.BadParameter(
            f"{until!r} is not a time such as 2026-12-01T08:00; after a while: --for 2h", param_hint="--until"
        ) from None


def _require_known(scheduler: Scheduler, name: str, more: str = "") -> None:
    known = sorted(queue.name for queue in scheduler.queues.list())
    if name not in known:
        raise NothingFound(f"there is no queue {name!r} yet, only: {', '.join(known) or 'none'}{more}")
