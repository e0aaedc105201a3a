"""A program in a terminal of its own: what it shows, as lines of text, and keys for it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import pyte

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]


def hear_interrupts() -> None:
    """For a process that is started here: Ctrl-C ends it, also where this one ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """``ratchet`` on a pseudo terminal, which a terminal emulator reads."""

    def __init__(
        self, *words: str, columns: int = 80, lines: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self.raw = b""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._own, theirs = pty.openpty()
        self._resize(columns, lines)
        left_out = ("COLUMNS", "LINES", "NO_COLOR")
        inherited = {name: value for name, value in os.environ.items() if name not in left_out}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ratchet", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**inherited, "TERM": "xterm-256color", **(environment or {})},
            start_new_session=True,
            # A test run in the background ignores SIGINT, and so would the program.
            preexec_fn=hear_interrupts,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._own)

    def press(self, *keys: str) -> None:
        """Type."""
        for key in keys:
            os.write(self._own, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as when somebody drags the corner of a window."""
        self._resize(columns, lines)
        self._screen.resize(lines, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def lines(self) -> list[str]:
        """What is on the screen now."""
        while select.select([self._own], [], [], 0.02)[0]:
            try:
                found = os.read(self._own, 65536)
            except OSError:  # the program has ended
                break
            if not found:
                break
            self.raw += found
            self._stream.feed(found)
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines)

    def shows(self, *texts: str, seconds: float = 30.0) -> str:
        """Wait until all of *texts* are on the screen; the screen."""
        return self.shows_that(lambda text: all(one in text for one in texts), f"{texts} not shown", seconds)

    def shows_that(self, condition: Callable[[str], bool], what: str, seconds: float = 30.0) -> str:
        """Wait until the screen is such that *condition* holds; the screen."""
        seen: list[str] = [""]

        def holds() -> bool:
            seen[0] = self.text
            return condition(seen[0])

        try:
            until(holds, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{seen[0]}") from None
        return seen[0]
