"""Exit codes, and how an error becomes one: with a readable line on stderr, never with a traceback."""

from __future__ import annotations

import sys
from enum import IntEnum

from ratchet.model.errors import RatchetError

EPILOG = (
    "Exit codes: 0 success · 1 an error, or the request could not be done · 2 wrong usage · "
    "3 there is no such job, schedule, queue or limit · 4 unhealthy · 5 old nodes have to be stopped first."
)


class ExitCode(IntEnum):
    """What the command line tells the shell."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    UNHEALTHY = 4
    STOP_FIRST = 5


class Refused(RatchetError):
    """The command was understood and changed nothing; the message says why."""


class NothingFound(RatchetError, LookupError):
    """What the command names does not exist."""


def code_of(error: RatchetError) -> ExitCode:
    """The exit code that *error* means."""
    return ExitCode.NOT_FOUND if isinstance(error, LookupError) else ExitCode.ERROR


def complain(error: RatchetError) -> None:
    """Say on stderr what went wrong. Credentials are taken out: a driver's message may quote a URL."""
    from ratchet.defaults.error_sanitizer import (
        DefaultErrorSanitizer,  # many patterns: only where there is an error
    )

    text = DefaultErrorSanitizer().sanitize_text(str(error) or type(error).__name__)
    sys.stderr.write(f"ratchet: {text}\n")
