"""``ratchet health``: is the store there, and are jobs being run?"""

from __future__ import annotations

from datetime import timedelta

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import ExitCode
from ratchet.cli.output import Output, round_duration
from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer


def health(url: given.Url = None, json: given.Json = False) -> None:
    """Check the store, its schema and the nodes; exit code 4 if something is wrong."""
    with given.opened(url) as scheduler:
        found = scheduler.health()
        if found.get("error"):
            found["error"] = DefaultErrorSanitizer().sanitize_text(str(found["error"]))
        out = Output(as_json=json)
        if json:
            out.document(found)
        else:
            waited = found.get("oldest_wait")
            out.details(
                {
                    "health": "ok" if found.ok else "NOT OK",
                    **{name: value for name, value in found.items() if name not in ("ok", "oldest_wait")},
                    "oldest wait": None if waited is None else round_duration(timedelta(seconds=waited)),
                }
            )
            if not found.ok and not found.get("error"):
                out.text(
                    "jobs are due and no node is alive; start one with: ratchet worker package.module:scheduler"
                )
        if not found.ok:
            raise typer.Exit(ExitCode.UNHEALTHY)
