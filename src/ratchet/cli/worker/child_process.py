"""A child process as its supervisor sees it: its id, two pipes, and when it last gave a sign of life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

import msgspec

from ratchet.cli.worker.messages import (
    ChildSettings,
    Command,
    Failed,
    LineReader,
    Pulse,
    Ready,
    Report,
    RescueNode,
    decode_report,
    encoded,
)
from ratchet.cli.worker.os_signals import interrupts_held
from ratchet.engine.started_runs import read_started, shared_memory

#: So many runs fit into one message, whatever the reader does. If more had begun, their claims tell what had.
RUNS_TOLD = 1000

#: The stacks of more threads than fit into this are cut off.
DUMP_LIMIT = 256 * 1024


class Spawn(Protocol):
    """Starts a process that inherits the two descriptors of *settings* and nothing else; its id."""

    def __call__(self, settings: ChildSettings) -> subprocess.Popen[bytes]: ...


def spawn_worker(app: str, environment: Mapping[str, str]) -> Spawn:
    """Starts ``python -m ratchet.cli.worker.child`` for *app*, with *environment* added to this process's."""

    def spawn(settings: ChildSettings) -> subprocess.Popen[bytes]:
        arguments = [
            sys.executable,
            "-m",
            "ratchet.cli.worker.child",
            app,
            msgspec.json.encode(settings).decode(),
        ]
        with interrupts_held():
            return subprocess.Popen(
                arguments,
                pass_fds=settings.descriptors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )

    return spawn


class ChildProcess:
    """
    One child process.

    ``waitpid`` tells whether it has ended or was stopped, and user code cannot delay that; the rest the
    child reports itself. ``node_id`` is the node to beat for; it changes if the child had to register anew.
    """

    def __init__(
        self, spawn: Spawn, settings: ChildSettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        status, status_end = os.pipe()
        control_end, control = os.pipe()
        self._started_runs: int | None = shared_memory()
        try:
            self._dump: BinaryIO | None = TemporaryFile(prefix="ratchet-")  # noqa: SIM115  # closed by `close`
            self._process = spawn(
                msgspec.structs.replace(
                    settings,
                    status=status_end,
                    control=control_end,
                    dump=self._dump.fileno(),
                    started=self._started_runs,
                )
            )
        finally:
            # Only the child may hold its ends of the pipes: a pipe ends when the other side is gone.
            os.close(status_end)
            os.close(control_end)
        self.pid = self._process.pid
        self.status = status
        self._control: int | None = control
        self._reader = LineReader(status)
        self.started_at = self.heard_at = monotonic()
        self.ready: Ready | None = None
        self.ready_at: float | None = None
        self.failure: Failed | None = None
        self.node_id: str | None = None
        self.overdue = 0.0
        self.pulse: Pulse | None = None  # the last one
        self.stopped = False  # by SIGSTOP
        self.exit_code: int | None = None  # negative: the signal that killed it
        self.leaving = False  # it was told to leave, or said that it leaves
        self.unhurried = (
            False  # it has run enough: it leaves when its successor is ready, and may take its time
        )
        self.given_up = False  # no sign of life: nobody beats for it any more, and it is being killed
        self.deadline: float | None = None  # when to kill it if it has not ended

    # --- observing

    def observe(self) -> None:
        """Learn from the operating system whether the process has ended, was stopped or goes on."""
        while self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                self._ended(0)
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.stopped = True
            elif os.WIFCONTINUED(status):
                self.stopped = False
                self.heard_at = self._monotonic()
            else:
                self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, code: int) -> None:
        self.exit_code = code
        self._process.returncode = code  # reaped here: Popen must not wait for it again

    def listen(self) -> list[Report]:
        """What the child has said since the last call."""
        reports = []
        for line in self._reader.lines():
            try:
                report = decode_report(line)
            except msgspec.DecodeError:
                continue  # user code wrote to a descriptor that is not its own
            self.heard_at = self._monotonic()
            self._note(report)
            reports.append(report)
        return reports

    def _note(self, report: Report) -> None:
        match report:
            case Ready():
                self.ready, self.ready_at, self.node_id = report, self._monotonic(), report.node_id
            case Pulse():
                self.node_id, self.overdue, self.pulse = report.node_id, report.overdue, report
            case Failed():
                self.failure = report
            case _:
                self.leaving = True

    @property
    def is_mute(self) -> bool:
        """True once the child has closed its pipe: there is nothing more to listen to."""
        return self._reader.ended

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self.exit_code is None

    def silent_for(self, now: float) -> float:
        """Seconds without a sign that the child's code runs: no report, or no progress of its poll loop."""
        overdue = 0.0 if self.leaving else self.overdue
        return max(now - self.heard_at, overdue)

    # --- acting

    def tell(self, command: Command) -> None:
        """Send *command*. A child that no longer reads is about to be found dead."""
        if self._control is None:
            return
        try:
            os.write(self._control, encoded(command))
        except OSError:
            pass

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process, unless it was reaped: its id may then belong to another process."""
        if self.is_running:
            os.kill(self.pid, number)

    def close(self) -> None:
        """Close the pipes."""
        if self._control is not None:
            os.close(self._control)
            os.close(self.status)
            self._control = None
        if self._dump is not None:
            self._dump.close()
            self._dump = None
        if self._started_runs is not None:
            os.close(self._started_runs)
            self._started_runs = None

    def last_stacks(self) -> str | None:
        """Where each thread was when the process was killed, as far as it could still write that down."""
        if self._dump is None:
            return None
        self._dump.seek(0)
        return self._dump.read(DUMP_LIMIT).decode(errors="replace").strip() or None

    def obituary(self) -> RescueNode | None:
        """What is known about the end of its node, for whoever rescues it; None if it had no node."""
        if self.node_id is None:
            return None
        started = None if self._started_runs is None else read_started(self._started_runs)
        if started is not None and len(started) > RUNS_TOLD:
            started = None
        return RescueNode(
            node_id=self.node_id,
            seen=self.describe_end(),
            started=None if started is None else [f"{number:x}" for number in sorted(started)],
        )

    def describe_end(self) -> str:
        """How the process ended, for people."""
        code = self.exit_code
        if code is None:
            return "is running"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"


def nodes_to_beat_for(children: Sequence[ChildProcess]) -> list[str]:
    """The nodes whose process lives, is not stopped and gives signs of life."""
    return [
        child.node_id
        for child in children
        if child.node_id is not None and child.is_running and not child.stopped and not child.given_up
    ]
