"""Subjects as the bench sees them: processes that are started, asked and ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
#: No answer takes longer than this; a subject that hangs ends the run with its own words.
PATIENCE = 900.0


class SubjectFailed(Exception):
    """A subject raised, hung or died."""


class Process:
    """One subject in a process of its own."""

    def __init__(self, command: Sequence[str], url: str, tree: Path) -> None:
        # The code of this tree, whatever the environment has installed.
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
        self._process = subprocess.Popen(
            [*command, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=tree,
            text=True,
        )
        self.facts: dict[str, Any] = self.call("describe")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, name: str, **arguments: Any) -> Any:
        """What the subject's method returns."""
        self.ask(name, **arguments)
        return self.answer()

    def ask(self, name: str, **arguments: Any) -> None:
        """Send a question; `answer` waits for what it gives."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": name, "with": arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the last question."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._process.kill()
            raise SubjectFailed(f"{self._process.args} {'died' if ready else 'hangs'}")
        answer = json.loads(line)
        if "error" in answer:
            raise SubjectFailed(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Contender:
    """Ratchet or a peer: how its subjects are started, and what it can do."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        stores: Sequence[str],
        *,
        awaits: bool = True,
        tree: Path = ROOT,
    ) -> None:
        self.name = name
        self.stores = stores
        self.awaits = awaits  # has an await face and async jobs
        self._command = command
        self.tree = tree  # where its code is

    def start(self, url: str) -> Process:
        """A new process, ready to be asked."""
        process = Process(self._command, url, self.tree)
        process.call("prepare")
        return process


def ratchet(
    subject: str = "bench.subject", *more: str, name: str = "ratchet", tree: Path = ROOT
) -> Contender:
    """Ratchet from a source tree, by default the one that holds the bench; its Python is the bench's own."""
    stores = ["postgresql", "sqlite", "mariadb", "mongodb"]
    return Contender(name, [sys.executable, "-m", subject, *more], stores, tree=tree)


def wait_for(condition: Any, *, every: float = 0.005, limit: float = PATIENCE) -> float:
    """Seconds until *condition* holds."""
    begun = time.perf_counter()
    while not condition():
        if time.perf_counter() - begun > limit:
            raise SubjectFailed(f"nothing happened for {limit:g} s")
        time.sleep(every)
    return time.perf_counter() - begun
