"""A server and two workers of one subject, and the file that says what ran."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.faults.subjects import HERE, REDIS, Subject, modules

#: Trials mostly wait; making a database and importing libraries is what they compute, so one does that at a time.
BEGINNING = threading.Semaphore(1)


@dataclass(frozen=True)
class Line:
    """One line of the file."""

    what: str
    job: str
    at: float
    worker: str
    pid: int


class Cluster:
    """Everything that one trial starts; leaving it ends and removes all of it."""

    def __init__(self, subject: Subject) -> None:
        from tests.services.postgresql import PostgreSQL
        from tests.services.redis import Redis

        self.subject = subject
        self.server = Redis() if subject.base in REDIS else PostgreSQL()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        #: How often a worker had ended and was started again.
        self.restarts = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._place = tempfile.TemporaryDirectory(prefix="ratchet-faults-")
        self.log = Path(self._place.name) / "log"

    def __enter__(self) -> Self:
        self.log.touch()
        with BEGINNING:
            self.server.start()
            if self.subject.base not in REDIS:
                self.script("setup")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                send(family(process.pid), signal.SIGKILL)
                process.wait()
        self.server.close()
        self._place.cleanup()

    def _environment(self, worker: str = "?") -> dict[str, str]:
        url = self.server.url
        return {
            **os.environ,
            "FAULTS_URL": url,
            "OBAN_DSN": url,
            "RATCHET_URL": url,
            "FAULTS_LOG": str(self.log),
            "FAULTS_WORKER": worker,
            "FAULTS_MODULES": str(modules()),
            "PYTHONPATH": f"{HERE}:{self.subject.folder}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.subject.settings,
        }

    def script(self, *words: str) -> None:
        """Run the subject's script."""
        command = self.subject.script(*words)
        done = subprocess.run(
            command, cwd=self.subject.folder, env=self._environment(), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"{self.subject.name} {words[0]}: {done.stderr.decode(errors='replace')[-2000:]}"
            )

    def start(self, worker: str) -> None:
        """Start a worker under this name."""
        with (Path(self._place.name) / worker).open("ab") as output:
            process = subprocess.Popen(
                self.subject.worker(worker),
                cwd=self.subject.folder,
                env=self._environment(worker),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers[worker] = process
        self._started.append(process)

    def lines(self) -> list[Line]:
        """What ran so far."""
        found = [line.split() for line in self.log.read_text().splitlines()]
        return [Line(what, job, float(at), worker, int(pid)) for what, job, at, worker, pid in found]

    def starts(self, job: str | None = None) -> list[Line]:
        """Starts, of one job or of all."""
        return [line for line in self.lines() if line.what == "start" and job in (None, line.job)]

    def ended(self) -> list[str]:
        """Jobs that ended, as often as they did."""
        return [line.job for line in self.lines() if line.what == "end"]

    def supervise(self) -> None:
        """Start again what has ended, as the supervisor does that every library's docs ask for."""
        for name, code in self.exits().items():
            if code is not None:
                self.restarts += 1
                self.start(name)

    def exits(self) -> dict[str, int | None]:
        """The exit code of each worker; None: it still runs."""
        return {name: process.poll() for name, process in self.workers.items()}


def until(condition: Callable[[], bool], limit: float, every: float = 0.1) -> bool:
    """Whether *condition* came true within *limit* seconds."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(every)
    return condition()


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # it ended meanwhile
            parents.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to processes, as far as they still exist."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
