"""``manage.py ratchet …``: the whole command line of Ratchet, on the project's database."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ratchet.cli.app import app_for

APP = "ratchet.contrib.django.worker:scheduler"


class Command(BaseCommand):
    """Hands its arguments on."""

    help = "Run jobs and look at them: manage.py ratchet worker, manage.py ratchet jobs list, …"
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's way to say it
    suppressed_base_arguments = frozenset(
        {"--version", "--verbosity", "--traceback", "--no-color", "--force-color", "--skip-checks"}
    )

    def run_from_argv(self, argv: list[str]) -> None:
        """Django would read the options itself, and take --help for its own."""
        self.handle(*argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        """For ``call_command("ratchet", "jobs", "list")``."""
        parser.add_argument("words", nargs="*")

    def handle(self, *args: str, **options: Any) -> None:
        """Run the command that *args* name."""
        from ratchet.contrib.django import scheduler

        words = [*options.get("words", ()), *args]
        # Children of a worker inherit these; they find the same database from the same settings.
        os.environ["RATCHET_URL"] = scheduler.url
        os.environ.setdefault("RATCHET_APP", APP)
        if scheduler.options.schema is not None:
            os.environ["RATCHET_SCHEMA"] = scheduler.options.schema
        _pass_on_path()
        app_for(words)(words, prog_name="manage.py ratchet")


def _pass_on_path() -> None:
    """Let the processes of a worker import from the folder of manage.py too, from wherever it was called."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if sys.path[0] and sys.path[0] not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], *known])
