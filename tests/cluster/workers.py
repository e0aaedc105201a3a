"""``ratchet worker`` as a test starts it, with everything it needs to hurt it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
APP = "tests.cluster.app:scheduler"


def _hear_hangups() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Worker:
    """A running worker: the supervisor and its children, in a process group of their own."""

    def __init__(
        self,
        url: str,
        folder: Path,
        name: str,
        *arguments: str,
        app: str = APP,
        cwd: Path = ROOT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._log = self.log_path.open("wb")
        command = [sys.executable, "-m", "ratchet", "worker", app, *arguments]
        own = {"RATCHET_URL": url, "RATCHET_NODE_NAME": name, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **own, **(environment or {})},
            stderr=self._log,
            stdout=self._log,
            start_new_session=True,
            # A test run under nohup ignores SIGHUP, and so would the worker, which is right for the worker only.
            preexec_fn=_hear_hangups,
        )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[int]:
        """The children that are ready, by the supervisor's own word, without those it has replaced."""
        ready = [int(pid) for pid in re.findall(r"process (\d+) is ready as node", self.log)]
        gone = {int(pid) for pid in re.findall(r"process (\d+) (?:was killed|ended|leaves)", self.log)}
        return [pid for pid in ready if pid not in gone]

    def nodes(self) -> list[str]:
        """The nodes that came up here, oldest first."""
        return re.findall(r"is ready as node (\S+)", self.log)

    def wait_ready(self, count: int = 1, seconds: float = 30.0) -> Worker:
        until(lambda: len(self.children()) >= count, seconds, f"{self.name} is not ready:\n{self.log}")
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor alone."""
        self.process.send_signal(number)

    def wait(self, seconds: float) -> int:
        """The supervisor's exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds} s:\n{self.log}") from None

    def kill_group(self) -> None:
        """Kill -9 for the supervisor and all of its children at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)

    def close(self) -> None:
        """End whatever is left."""
        self.kill_group()
        self._log.close()


def is_running(pid: int) -> bool:
    """True while there is such a process that is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
