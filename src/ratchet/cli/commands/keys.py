"""``ratchet keys``: which keys the stored values have, and moving them all to the active one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ratchet.api.authorization import by_hand, require
from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import EPILOG
from ratchet.cli.output import Output
from ratchet.cli.people import As, user_name
from ratchet.cli.user_app import load_scheduler
from ratchet.model.audit import AuditSource
from ratchet.model.permissions import Permission
from ratchet.scheduler import Scheduler
from ratchet.stores.sealed.rewrap import PLAIN, PORTION, StoredKeys, Tally

commands = typer.Typer(
    help="Keys of encrypted values: count them, and move values to the active key.",
    no_args_is_help=True,
    epilog=EPILOG,
)

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="Another store than the one that the app names.", show_default=False
    ),
]
Json = given.Json

#: Seconds between two lines of progress.
TOLD_EVERY = 2.0

App = Annotated[
    str,
    typer.Option(
        "--app", help="The scheduler with the codec, as package.module:attribute.", show_default=False
    ),
]
Portion = Annotated[int, typer.Option("--portion", min=1, max=5000, help="Rows that are read at once.")]


@contextmanager
def _loaded(app: str, url: str | None, who: str | None) -> Iterator[Scheduler]:
    scheduler = load_scheduler(app, str(Path.cwd()))
    if url is not None:
        scheduler.configure(url)
    try:
        with scheduler.acting_as(who or user_name(), source=AuditSource.CLI):
            yield scheduler
    finally:
        scheduler.close()


@commands.command(epilog=EPILOG)
def status(app: App, portion: Portion = PORTION, url: Url = None, json: Json = False, as_: As = None) -> None:
    """Count the stored values of each key, and those that are not encrypted, in portions."""
    out = Output(as_json=json)
    with _loaded(app, url, as_) as scheduler:
        require(scheduler.backend, Permission.LIST, about="keys")
        keys = StoredKeys(scheduler.store, portion=portion)
        counts, active = keys.count(), keys.active
    names = sorted({key for of_place in counts.values() for key in of_place})
    if json:
        out.document(
            {
                "active": active,
                "keys": {name: sum(one[name] for one in counts.values()) for name in names},
                "places": counts,
            }
        )
        return
    rows = [
        (
            name,
            "active" if name == active else "not encrypted" if name == PLAIN else "",
            sum(one[name] for one in counts.values()),
            ", ".join(f"{place} {one[name]}" for place, one in counts.items() if one[name]),
        )
        for name in names
    ]
    out.table(("key", "is", "values", "where"), rows, empty="no values are stored")


@commands.command(epilog=EPILOG)
def rewrap(
    app: App,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, help="Rows a second, at most.", show_default=False),
    ] = None,
    portion: Portion = PORTION,
    url: Url = None,
    json: Json = False,
    as_: As = None,
) -> None:
    """
    Encrypt every stored value with the active key, also those that are not encrypted yet, while jobs run.

    It can be stopped at any moment and started again: what has the active key already is passed by. Values that
    do not decrypt stay as they are; exit code 1 if there are any, or if a key is missing here.
    """
    out = Output(as_json=json)
    told = time.monotonic()
    tally = Tally()
    with _loaded(app, url, as_) as scheduler:
        keys = StoredKeys(scheduler.store, portion=portion)
        to = f"to the key {keys.active}"
        with by_hand(scheduler.backend, Permission.STORAGE, "rewrap", about="keys", reason=to, many=True):
            for tally in keys.rewrap(per_second=rate):
                if not json and time.monotonic() - told >= TOLD_EVERY:
                    told = time.monotonic()
                    sys.stderr.write(f"{tally.place}: {tally.rows:,} rows read, {tally.moved:,} moved\n")
                    sys.stderr.flush()
        active = keys.active
    left = tally.unreadable + tally.no_key
    text = f"{tally.moved:,} of {tally.rows:,} rows have values that were moved to the key {active!r}"
    if tally.no_key:
        text += f"; {tally.no_key:,} values have keys that are not here ({', '.join(sorted(tally.missing))})"
    if tally.unreadable:
        text += f"; {tally.unreadable:,} values do not decrypt and stay as they are"
    out.say(
        text,
        active=active,
        rows=tally.rows,
        moved=tally.moved,
        missed=tally.missed,
        unreadable=tally.unreadable,
        no_key=tally.no_key,
        missing=sorted(tally.missing),
    )
    if left:
        raise typer.Exit(1)
