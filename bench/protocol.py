"""
The conversation between the bench and a subject: one JSON value per line, on standard input and output.

A subject is a process of its own, in an environment of its own: it may be Ratchet or a peer, and needs
nothing of the bench but this file.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class Subject:
    """
    What is measured; the methods are called by the bench, by name.

    ``OPEN`` is a query that says whether anything is left to do, ``DONE`` one that counts what has ended;
    both are asked on a connection of the bench's own. None: the subject is asked instead, `executed`.
    """

    OPEN: str | None = None
    DONE: str | None = None

    def __init__(self, url: str) -> None:
        self.url = url
        self.ran = 0
        self.delays: list[int] = []

    def describe(self) -> dict[str, Any]:
        """What the bench has to know."""
        return {"open": self.OPEN, "done": self.DONE, "pid": os.getpid()}

    def executed(self) -> int:
        """How many jobs this process has run."""
        return self.ran

    def usage(self) -> dict[str, float]:
        """CPU seconds of this process so far, and its resident memory in bytes."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {"cpu": time.process_time(), "rss": pages * os.sysconf("SC_PAGE_SIZE")}

    def latencies(self) -> list[int]:
        """Nanoseconds between submission and start of each job that was stamped; forgets them."""
        found, self.delays = self.delays, []
        return found

    def note(self, sent: int) -> None:
        """A stamped job has started; CLOCK_MONOTONIC is the same for all processes of a machine."""
        self.ran += 1
        self.delays.append(time.monotonic_ns() - sent)


def serve(kind: type[Subject]) -> None:
    """Answer the bench until it closes the conversation."""
    # Whatever libraries print must not get between the lines of the conversation.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    subject = kind(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": getattr(subject, request["call"])(**request["with"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)
