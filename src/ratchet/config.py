"""Where a scheduler's settings come from: code, then the environment, then a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path

from ratchet.model.durations import parse_duration
from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.store_url import shown_url
from ratchet.stores.places import DEFAULT_FILE, DEFAULT_URL, file_url

logger = logging.getLogger("ratchet")

URL_VARIABLE = "RATCHET_URL"
ALLOW_VARIABLE = "RATCHET_ALLOW"
#: How long running jobs get to finish, as whoever stops the process knows it (a unit file, a pod's manifest).
DRAIN_VARIABLE = "RATCHET_DRAIN"
#: A TOML file with a table [ratchet] or [tool.ratchet].
FILE_VARIABLE = "RATCHET_CONFIG"

__all__ = [
    "ALLOW_VARIABLE",
    "DEFAULT_URL",
    "DRAIN_VARIABLE",
    "FILE_VARIABLE",
    "URL_VARIABLE",
    "named_url",
    "resolve_allow",
    "resolve_drain",
    "resolve_options",
    "resolve_url",
    "shown_url",
]


def named_url(environ: Mapping[str, str] | None = None) -> str | None:
    """What ``RATCHET_URL`` says; None if nothing."""
    environment = os.environ if environ is None else environ
    return environment.get(URL_VARIABLE, "").strip() or None


def resolve_url(url: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """*url*, else ``RATCHET_URL``, else an SQLite file in the current directory; its full path is then logged."""
    chosen = url if url is not None else named_url(environ)
    if chosen is None:
        path = Path(DEFAULT_FILE).absolute()
        logger.warning(
            "no store was named (neither Scheduler(url) nor %s): jobs are kept in %s", URL_VARIABLE, path
        )
        return file_url(path)
    if not isinstance(chosen, str):
        raise ConfigurationError(
            f"the store is named by a URL such as {DEFAULT_URL!r}, not by a {type(chosen).__name__}"
        )
    return chosen


def resolve_allow(allow: Iterable[str] | None, environ: Mapping[str, str] | None = None) -> Iterable[str]:
    """*allow*, else the comma-separated names in ``RATCHET_ALLOW``."""
    if allow is not None:
        return allow
    environment = os.environ if environ is None else environ
    return [name.strip() for name in environment.get(ALLOW_VARIABLE, "").split(",") if name.strip()]


def resolve_drain(environ: Mapping[str, str] | None = None) -> timedelta | None:
    """The drain time in ``RATCHET_DRAIN``; it wins over the options, which do not know where the program runs."""
    environment = os.environ if environ is None else environ
    text = environment.get(DRAIN_VARIABLE, "").strip()
    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{DRAIN_VARIABLE}: {error}") from None


def resolve_options(
    options: Options | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Options:
    """The options in force: from the code, else from environment variables, else from the file."""
    if options is not None and not isinstance(options, Options):
        raise ConfigurationError(f"options is an Options(…), not {options!r:.100}")
    environment = os.environ if environ is None else environ
    path = file if file is not None else environment.get(FILE_VARIABLE) or None
    return Options.load(options, environment, path)
