"""What jobs write down while they run, outside of any store: one line of JSON for each start and each end of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from ratchet import JobContext


@dataclass
class Run:
    """One run of a job's code; *ended_at* is None if nobody saw its end (its process was killed)."""

    job_id: UUID
    attempt: int
    pid: int
    group: int
    mark: str
    started_at: float
    ended_at: float | None = None
    raised: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.ended_at is not None and self.raised is None


@contextmanager
def written(book: str, mark: str = "") -> Iterator[None]:
    """Write the start of this run, and its end with the class of what it raised."""
    ctx = JobContext.current()
    run = f"{os.getpid()}-{time.monotonic_ns()}"
    about = {"job": str(ctx.job_id), "attempt": ctx.attempt, "group": os.getpgid(0), "mark": mark}
    _write(book, run, "start", **about)
    try:
        yield
    except BaseException as error:
        _write(book, run, "end", raised=type(error).__name__)
        raise
    _write(book, run, "end")


def _write(book: str, run: str, verb: str, **more: object) -> None:
    line = json.dumps({"run": run, "verb": verb, "pid": os.getpid(), "at": time.monotonic(), **more}) + "\n"
    descriptor = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())  # one write: lines of several processes do not mix
    finally:
        os.close(descriptor)


def read(book: str | Path) -> list[Run]:
    """Every run so far, by its start."""
    runs: dict[str, Run] = {}
    path = Path(book)
    for text in path.read_text().splitlines() if path.exists() else []:
        line = json.loads(text)
        if line["verb"] == "start":
            runs[line["run"]] = Run(
                UUID(line["job"]), line["attempt"], line["pid"], line["group"], line["mark"], line["at"]
            )
        else:
            runs[line["run"]].ended_at = line["at"]
            runs[line["run"]].raised = line.get("raised")
    return sorted(runs.values(), key=lambda run: run.started_at)
