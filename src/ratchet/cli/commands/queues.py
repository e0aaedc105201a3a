"""``ratchet queues``: show queues, pause and resume them."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG, NothingFound, Refused
from ratchet.cli.output import Output
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
            ("queue", "pending", "running", "paused", "since"),
            [(queue.name, queue.pending, queue.running, queue.paused, queue.paused_at) for queue in found],
            empty="no queue was used yet",
        )


@commands.command(epilog=EPILOG)
def pause(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Let no job of a queue start, on any node; running jobs go on. The queue need not exist yet."""
    with given.opened(url) as scheduler:
        if not scheduler.queues.pause(name):
            raise Refused(f"queue {name!r} is already paused")
        Output(as_json=json).say(f"paused queue {name}", paused=name)


@commands.command(epilog=EPILOG)
def resume(name: Name, url: given.Url = None, json: given.Json = False) -> None:
    """Let jobs of a paused queue start again."""
    with given.opened(url) as scheduler:
        if not scheduler.queues.resume(name):
            _require_known(scheduler, name)
            raise Refused(f"queue {name!r} is not paused")
        Output(as_json=json).say(f"resumed queue {name}", resumed=name)


def _require_known(scheduler: Scheduler, name: str) -> None:
    if name not in {queue.name for queue in scheduler.queues.list()}:
        raise NothingFound(f"there is no queue {name!r}")
