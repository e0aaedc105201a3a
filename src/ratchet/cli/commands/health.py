"""``ratchet health``: is the store there, and does work that is due flow?"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from ratchet.api.observe.health import Health
from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import ExitCode
from ratchet.cli.output import Output, round_duration
from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.model.durations import parse_duration


def health(
    max_wait: Annotated[
        str | None,
        typer.Option(
            "--max-wait",
            metavar="DURATION",
            help="Not ok if a due job has waited for longer than this, such as 5m.",
            show_default=False,
        ),
    ] = None,
    max_dead_letters: Annotated[
        int | None,
        typer.Option(
            "--max-dead-letters", min=0, help="Not ok if there are more dead letters.", show_default=False
        ),
    ] = None,
    min_nodes: Annotated[
        int, typer.Option("--min-nodes", min=0, help="Not ok if fewer nodes take jobs.")
    ] = 1,
    url: given.Url = None,
    json: given.Json = False,
) -> None:
    """Check the store, its schema, the nodes, and that due jobs are run; exit code 4 if something is wrong."""
    wait = _duration(max_wait)
    with given.opened(url) as scheduler:
        found = scheduler.health(wait, max_dead_letters, min_nodes)
        _sanitize(found)
        out = Output(as_json=json)
        if json:
            out.document(found)
        else:
            _show(out, found)
        if not found.ok:
            raise typer.Exit(ExitCode.UNHEALTHY)


def _show(out: Output, found: Health) -> None:
    waited, tables = found["oldest_wait"], ("ok", "oldest_wait", "problems", "waiting")
    out.details(
        {
            "health": "ok" if found.ok else "NOT OK",
            **{name: value for name, value in found.items() if name not in tables},
            "oldest wait": None if waited is None else round_duration(timedelta(seconds=waited)),
        }
    )
    for heading, told in (("Problems", found.problems), ("What waits, and is in order", found.waiting)):
        if told:
            out.heading(heading)
            out.table(("code", "text", "since"), [(one.code, one.text, one.since) for one in told])
    if any(one["code"] == "no_nodes" for one in found["problems"]):
        out.text("start a node with: ratchet worker package.module:scheduler")


def _sanitize(found: Health) -> None:
    """What a driver says may hold a password."""
    sanitize = DefaultErrorSanitizer().sanitize_text
    if found["error"]:
        found["error"] = sanitize(str(found["error"]))
    texts: list[dict[str, Any]] = found["problems"]
    found["problems"] = [{**one, "text": sanitize(one["text"])} for one in texts]


def _duration(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-wait") from None
