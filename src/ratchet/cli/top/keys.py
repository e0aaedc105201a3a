"""`Keyboard`: keys as they are pressed, without Enter and without being shown."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[Z": "tab",
    b"\t": "tab",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
}


#: What a key of several bytes begins with, and how long the rest may take.
_BEGUN = (b"\x1b", b"\x1b[", b"\x1bO")
PIECES = 0.05


class Keyboard:
    """Reads keys from the terminal on stdin."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this is open, keys arrive one by one; Ctrl-C still interrupts."""
        before = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)

    def pressed(self, seconds: float) -> list[str]:
        """The keys that were pressed; waits *seconds* for the first. A terminal that is gone says ``q``."""
        found = self._read(seconds)
        if found is None:
            return []
        # A key of several bytes may arrive in two pieces; Escape itself is followed by nothing.
        while found.endswith(_BEGUN) and (more := self._read(PIECES)):
            found += more
        return _keys(found) if found else ["q"]

    def _read(self, seconds: float) -> bytes | None:
        """What was typed; None if nothing was, and nothing at all if the terminal is gone."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return None
        try:
            return os.read(self._descriptor, 64)
        except OSError:
            return b""


def _keys(found: bytes) -> list[str]:
    keys = []
    while found:
        known = next((code for code in _NAMES if found.startswith(code)), None)
        if known is not None:
            keys.append(_NAMES[known])
            found = found[len(known) :]
        else:
            keys.append(chr(found[0]))
            found = found[1:]
    return keys
