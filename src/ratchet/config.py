"""Where a scheduler's settings come from: code, then the environment, then a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.store_url import shown_url

logger = logging.getLogger("ratchet")

URL_VARIABLE = "RATCHET_URL"
ALLOW_VARIABLE = "RATCHET_ALLOW"
#: A TOML file with a table [ratchet] or [tool.ratchet].
FILE_VARIABLE = "RATCHET_CONFIG"
DEFAULT_URL = "sqlite:///ratchet.db"

__all__ = [
    "ALLOW_VARIABLE",
    "DEFAULT_URL",
    "FILE_VARIABLE",
    "URL_VARIABLE",
    "resolve_allow",
    "resolve_options",
    "resolve_url",
    "shown_url",
]


def resolve_url(url: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """*url*, else ``RATCHET_URL``, else an SQLite file in the current directory; its full path is then logged."""
    environment = os.environ if environ is None else environ
    chosen = url if url is not None else environment.get(URL_VARIABLE, "").strip() or None
    if chosen is None:
        path = Path(DEFAULT_URL.removeprefix("sqlite:///")).absolute()
        logger.warning(
            "no store was named (neither Scheduler(url) nor %s): jobs are kept in %s", URL_VARIABLE, path
        )
        return f"sqlite:///{path}"
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


def resolve_options(
    options: Options | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Options:
    """The options in force: from the code, else from environment variables, else from the file."""
    environment = os.environ if environ is None else environ
    path = file if file is not None else environment.get(FILE_VARIABLE) or None
    return Options.load(options, environment, path)
