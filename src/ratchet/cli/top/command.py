"""``ratchet top``: what the cluster does, on a terminal, as it happens."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from ratchet.cli import parameters as given
from ratchet.cli.output import Output, console
from ratchet.cli.people import person
from ratchet.cli.top.snapshot import take
from ratchet.config import shown_url

#: Seconds between two looks, at least.
SHORTEST = 0.1


def top(
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="DURATION", help="Time between two looks at the store.")
    ] = "2s",
    window: Annotated[
        str,
        typer.Option("--window", metavar="DURATION", help="Rates and percentiles are those of this time."),
    ] = "1m",
    once: Annotated[
        bool, typer.Option("--once", help="Print what there is now and exit, as without a terminal.")
    ] = False,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """
    Watch queues, nodes, running jobs, rates and problems; pause a queue, drain a node or cancel a job with a key.

    Without a terminal, with --once or with --json it prints once and exits.
    """
    rest, length = given.duration(interval, "--interval"), given.duration(window, "--window")
    if rest < SHORTEST:
        raise typer.BadParameter("not more often than every 100ms", param_hint="--interval")
    if length < 1:
        raise typer.BadParameter("at least 1s", param_hint="--window")
    lately = timedelta(seconds=length)
    with given.opened(url) as scheduler:
        if json:
            Output(as_json=True).document(take(scheduler, lately))
            return
        from ratchet.cli.top.screen import View, drawn

        out, where = console(), person.get().app or shown_url(given.store_url(url))
        if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            out.print(drawn(take(scheduler, lately), View(live=False), where, width=out.width, height=None))
            return
        from ratchet.cli.top.keys import Keyboard
        from ratchet.cli.top.session import Session
        from ratchet.cli.top.watcher import Watcher

        watcher = Watcher(lambda: take(scheduler, lately), rest)
        Session(scheduler, watcher, out, Keyboard(), where).run()
