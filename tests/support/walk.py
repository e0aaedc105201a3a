"""
Which files of `ratchet` a plain job visits, on its way in and while it is run.

A file counts when one of its functions is called, not when it is imported. Run ``python -m tests.support.walk``
for the list on SQLite, or give it the URL of another empty database.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import ratchet
from ratchet import Scheduler
from tests.support.running_jobs import HERE, add

HOME = Path(ratchet.__file__).parent
#: Threads that are there without any job: beats, housekeeping, wakeups. Their names contain one of these.
SERVICES = (
    "heartbeat",
    "orphan",
    "maintenance",
    "recurring",
    "schedules",
    "watch",
    "announc",
    "event",
    "wakeup",
    "log",
    "listen",
    "lookout",
    "wait",
    "flow",
    "services",
)
#: Seconds in which a node that has started does what it does once, and in which a run that has ended is forgotten.
LOOKED_AROUND = 1.0
AFTERWARDS = 0.5


@dataclass(frozen=True)
class Walk:
    """The files that a submission and a run visit, in the order of their first call."""

    submit: list[str]
    run: list[str]


class Visits:
    """The files whose functions were called, by the thread that called them."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, None]] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """A function was called or has returned: see `sys.setprofile`."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(HOME)):
            thread = threading.current_thread().name
            self._seen.setdefault(thread, {}).setdefault(str(Path(name).relative_to(HOME)))

    def forget(self) -> None:
        """Begin again."""
        self._seen.clear()

    def files(self) -> list[str]:
        """What all threads but those of services visited."""
        working = [
            files
            for thread, files in self._seen.items()
            if not any(word in thread.lower() for word in SERVICES)
        ]
        return list(dict.fromkeys(name for files in working for name in files))


def walk(url: str) -> Walk:
    """Submit a plain job to the store at *url*, then let this process run another one."""
    scheduler = Scheduler(url, allow=[HERE])
    scheduler.migrate()
    try:
        scheduler.enqueue(add, 1, 1).submit()  # the first one opens connections and looks up the target
        return Walk(_submission(scheduler), _run(scheduler))
    finally:
        scheduler.close()


def _submission(scheduler: Scheduler) -> list[str]:
    """What the calling thread visits; others are left out."""
    visits = Visits()
    before = sys.getprofile()
    sys.setprofile(visits)
    try:
        scheduler.enqueue(add, 1, 2).submit()
    finally:
        sys.setprofile(before)
    return visits.files()


def _run(scheduler: Scheduler) -> list[str]:
    """What the threads of the scheduler visit; the calling one submits and is left out."""
    visits = Visits()
    threading.setprofile(visits)
    try:
        scheduler.start()
        time.sleep(LOOKED_AROUND)
        visits.forget()
        scheduler.enqueue(add, 1, 3).submit().wait(timeout=30)
        time.sleep(AFTERWARDS)
    finally:
        threading.setprofile(None)
    found = visits.files()
    scheduler.stop()
    return found


def main(arguments: list[str]) -> None:
    """Print what was visited."""
    with tempfile.TemporaryDirectory() as folder:
        found = walk(arguments[0] if arguments else f"sqlite:///{folder}/walk.db")
    for title, files in (("submit", found.submit), ("run", found.run)):
        lines = [f"{title}: {len(files)} files", *(f"    {name}" for name in files)]
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
