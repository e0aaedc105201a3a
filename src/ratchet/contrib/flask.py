"""
Ratchet in Flask. Needs the extra ``flask``.

``ratchet = Ratchet()`` at module level, jobs with ``@ratchet.scheduler.job``, and ``ratchet.init_app(app)`` in the application factory. The store is
``app.config["RATCHET_URL"]``. Each job runs inside the application context, whatever lane it has, and ``flask ratchet`` is the
whole command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import click
from flask import Flask, has_app_context
from flask.cli import ScriptInfo

from ratchet.api.context import JobContext
from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler

#: The name under which the extension, its commands and its settings are known.
NAME = "ratchet"
URL, OPTIONS = "RATCHET_URL", "RATCHET_OPTIONS"
#: What ``ratchet worker`` imports in each of its processes: an application factory has no module that names the scheduler.
WORKER_APP = "ratchet.contrib.flask:worker_scheduler"


class Ratchet:
    """
    The extension; ``.scheduler`` is the scheduler.

    *given* is what `Scheduler` takes: ``allow``, SPIs. Settings: ``RATCHET_URL``, and ``RATCHET_OPTIONS``, a mapping or `Options`.
    """

    def __init__(self, app: Flask | None = None, **given: Any) -> None:
        self.scheduler = Scheduler(None, **given)
        self._app: Flask | None = None
        self._url: str | None = None
        self.scheduler.around(self._in_context)
        self.scheduler.around(in_application)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Configure the scheduler by the settings of *app*, and give it its commands."""
        url, options = app.config.get(URL), app.config.get(OPTIONS)
        if options is not None and not isinstance(options, Options):
            options = Options(**options)
        if options is not None or url not in (None, self._url):
            self.scheduler.configure(url, options=options)
        self._url = url
        self._app = app
        app.extensions[NAME] = self
        app.cli.add_command(_command(), NAME)

    def _in_context(self, ctx: JobContext) -> Iterator[None]:
        """For jobs in this process."""
        if self._app is None:
            yield
        else:
            with self._app.app_context():
                yield


def in_application(ctx: JobContext) -> Iterator[None]:
    """For jobs in a process of their own, which has made no application yet. It has a name, so that it runs there."""
    if has_app_context():
        yield
    else:
        with worker_app().app_context():
            yield


def worker_app() -> Flask:
    """The application that ``FLASK_APP`` names, in a process that has not made it yet."""
    return ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()


def __getattr__(name: str) -> Any:
    """``worker_scheduler``: the scheduler of the application that ``FLASK_APP`` names."""
    if name != "worker_scheduler":
        raise AttributeError(name)
    extension = worker_app().extensions.get(NAME)
    if not isinstance(extension, Ratchet):
        raise ConfigurationError(
            f"the Flask application has no Ratchet; call Ratchet().init_app(app) (FLASK_APP is {os.environ.get('FLASK_APP')!r})"
        )
    return extension.scheduler


def _command() -> click.Command:
    """``flask ratchet …``: our own command line, on the store of the application."""

    @click.command(
        NAME,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
        short_help="Jobs, workers, queues: the command line of Ratchet.",
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def ratchet(context: click.Context, words: tuple[str, ...]) -> None:
        info = context.ensure_object(ScriptInfo)
        url = info.load_app().config.get(URL)
        if url is not None:
            os.environ[URL] = url
        if info.app_import_path is not None:
            os.environ["FLASK_APP"] = info.app_import_path
        if words[:1] == ("worker",) and (len(words) == 1 or words[1].startswith("-")):
            words = ("worker", WORKER_APP, *words[1:])
        # A process of its own: the worker's signals, and a command line that ends with an exit code.
        os.execv(sys.executable, [sys.executable, "-m", "ratchet", *words])

    return ratchet
