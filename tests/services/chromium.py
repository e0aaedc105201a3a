"""The browser of the tests: Debian's chromium, found or installed as the servers are."""

from __future__ import annotations

import os
from pathlib import Path

from tests.services.programs import find_program, install_packages
from tests.services.server import ServerUnavailable

VARIABLE = "RATCHET_TEST_CHROMIUM"


def install() -> None:
    """Make sure that a chromium is there, or raise `ServerUnavailable`."""
    if _installed() is None:
        install_packages("chromium", VARIABLE, "chromium", instead="the path of a chromium")


def program() -> str:
    """The path of chromium; installed now if it is missing and can be installed."""
    install()
    found = _installed()
    if found is None:
        raise ServerUnavailable(f"chromium was installed but is not in the PATH; set {VARIABLE} to its path.")
    return found


def _installed() -> str | None:
    named = os.environ.get(VARIABLE)
    if named is None:
        return find_program("chromium", "chromium-browser")
    if not Path(named).exists():
        raise ServerUnavailable(f"{VARIABLE} names {named}, which does not exist.")
    return named
