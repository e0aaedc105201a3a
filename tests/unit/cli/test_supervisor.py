"""
The supervisor keeps children running, goes silent for those that do not live, and stops as it is told.

The children here are small scripts that speak the protocol and nothing else; tests/cluster has real ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ratchet.cli.worker.child_process import ChildProcess
from ratchet.cli.worker.messages import ChildSettings, Ready
from ratchet.cli.worker.source_watch import SourceWatch
from ratchet.cli.worker.supervisor import Supervisor
from tests.support.waiting import until

CHILD = """
import json, os, select, signal, sys, time
behavior, status, control = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
say = lambda **facts: os.write(status, json.dumps(facts).encode() + b"\\n")
if behavior == "failing":
    say(type="Failed", message="the app is broken", passing=False)
    sys.exit(1)
if behavior == "crashing":
    sys.exit(3)
node = f"node-{os.getpid()}"
say(type="Ready", node_id=node, url="", options={}, heartbeat=0.05, drain_timeout=0.5)
while True:
    ready, _, _ = select.select([control], [], [], 0.05)
    if ready:
        told = os.read(control, 4096)
        if b"Quit" in told or not told:
            os._exit(0)
        if b"Drain" in told and behavior != "stubborn":
            os._exit(0)
    if behavior == "leaving":
        say(type="Leaving", reason="tired")
        time.sleep(0.2)
        os._exit(0)
    if behavior == "retiring":
        say(type="Leaving", reason="its node was asked to stop", replace=False)
        time.sleep(0.2)
        os._exit(0)
    if behavior == "spent":
        say(type="Pulse", node_id=node, spent="it has run 3 jobs")
        continue
    if behavior == "drained":
        say(type="Pulse", node_id=node, drained=True, spent="it has run 3 jobs")
        continue
    if behavior != "mute":
        say(type="Pulse", node_id=node)
"""


class StandInHeartbeats:
    """Remembers which nodes it would have beaten for."""

    def __init__(self, alive: Callable[[], list[str]]) -> None:
        self.alive = alive
        self.started: list[Ready] = []
        self.released: list[str] = []
        self.closed = False

    def start(self, ready: Ready) -> None:
        self.started.append(ready)

    def release(self, node_id: str) -> None:
        self.released.append(node_id)

    def close(self) -> None:
        self.closed = True


class Stage:
    """A supervisor with scripted children, and a thread that does things to them."""

    def __init__(self, *behaviors: str, **options: Any) -> None:
        self._behaviors = list(behaviors) or ["steady"]
        self.children: list[ChildProcess] = []
        self.heartbeats: StandInHeartbeats

        def heartbeats(alive: Callable[[], list[str]]) -> Any:
            self.heartbeats = StandInHeartbeats(alive)
            return self.heartbeats

        self.supervisor = Supervisor(self._start, heartbeats=heartbeats, **options)
        self._errors: list[BaseException] = []

    def _start(self) -> ChildProcess:
        behavior = self._behaviors.pop(0) if len(self._behaviors) > 1 else self._behaviors[0]

        def spawn(settings: ChildSettings) -> subprocess.Popen[bytes]:
            arguments = [
                sys.executable,
                "-S",
                "-c",
                CHILD,
                behavior,
                str(settings.status),
                str(settings.control),
            ]
            return subprocess.Popen(arguments, pass_fds=(settings.status, settings.control))

        child = ChildProcess(spawn, ChildSettings(status=-1, control=-1, path=""))
        self.children.append(child)
        return child

    def run(self, script: Callable[[], None] | None = None) -> int:
        """Run the supervisor here while *script* runs beside it; a script that fails stops the supervisor."""

        def beside() -> None:
            try:
                if script is not None:
                    script()
            except BaseException as error:
                self._errors.append(error)
                self.supervisor.receive(signal.SIGTERM)

        thread = threading.Thread(target=beside)
        thread.start()
        code = self.supervisor.run()
        thread.join()
        if self._errors:
            raise self._errors[0]
        return code

    def alive(self) -> list[str]:
        return self.heartbeats.alive()

    def stop(self) -> None:
        self.supervisor.receive(signal.SIGTERM)

    def assert_nobody_is_left(self) -> None:
        for child in self.children:
            assert not child.is_running


@contextmanager
def elapsed() -> Iterator[list[float]]:
    taken: list[float] = []
    begun = time.monotonic()
    yield taken
    taken.append(time.monotonic() - begun)


def test_children_are_started_and_drained() -> None:
    """All processes come up, are beaten for, and end with exit code 0 when told to stop."""
    stage = Stage(processes=3)

    def script() -> None:
        until(lambda: len(stage.alive()) == 3)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 3
    assert all(child.exit_code == 0 for child in stage.children)
    assert stage.heartbeats.closed
    assert stage.heartbeats.released == []


def test_a_killed_child_is_replaced_and_no_longer_beaten_for() -> None:
    """Death is seen at once: the dead node gets no beat, and another process takes its place."""
    stage = Stage()

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        dead = stage.alive()[0]
        os.kill(stage.children[0].pid, signal.SIGKILL)
        until(lambda: dead not in stage.alive(), 0.5)
        until(lambda: len(stage.alive()) == 1)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 2
    assert stage.heartbeats.released == [], "a crash is for the others to rescue, and to count"


def test_a_stopped_child_gets_no_beats_until_it_goes_on() -> None:
    """SIGSTOP is seen by the operating system's word, not by a missing answer; so is SIGCONT."""
    stage = Stage()

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        os.kill(stage.children[0].pid, signal.SIGSTOP)
        until(lambda: stage.alive() == [], 0.5)
        time.sleep(0.7)
        assert stage.alive() == []
        os.kill(stage.children[0].pid, signal.SIGCONT)
        until(lambda: len(stage.alive()) == 1, 0.5)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 1, "a stopped process is not replaced: it may go on"


def test_a_child_that_shows_no_life_is_replaced() -> None:
    """Beyond the limit a process that says nothing is given up; before it, it is beaten for all the same."""
    stage = Stage("mute", "steady", unresponsive_after=1.0)

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        mute = stage.alive()[0]
        time.sleep(0.5)
        assert stage.alive() == [mute]
        until(lambda: stage.alive() and stage.alive() != [mute])
        stage.stop()

    assert stage.run(script) == 0
    assert stage.children[0].exit_code == -signal.SIGABRT


def test_an_app_that_cannot_start_ends_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    """If no child ever came up, the reason is said once and the exit code is not 0."""
    stage = Stage("failing", processes=2)
    assert stage.run() == 1
    assert [record.getMessage() for record in caplog.records].count("the app is broken") == 1
    stage.assert_nobody_is_left()


def test_a_failure_after_a_success_is_tried_again() -> None:
    """Once a child has been up, a start that fails is repeated: the worker does not give up."""
    stage = Stage("steady", "failing", "steady")

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        os.kill(stage.children[0].pid, signal.SIGKILL)
        until(lambda: len(stage.children) == 3 and len(stage.alive()) == 1)
        stage.stop()

    assert stage.run(script) == 0


def test_children_that_crash_at_once_are_not_started_in_a_storm() -> None:
    """Crashes right away slow the restarts down."""
    stage = Stage("crashing")

    def script() -> None:
        time.sleep(2.0)
        stage.stop()

    assert stage.run(script) == 0
    assert 3 <= len(stage.children) <= 5


def test_a_child_that_leaves_is_replaced_before_it_is_gone() -> None:
    """A process that drains by itself (its threads hang) loses its place at once."""
    stage = Stage("leaving", "steady")

    def script() -> None:
        until(lambda: len(stage.children) == 2)
        until(lambda: stage.children[1].node_id in stage.alive())
        stage.stop()

    assert stage.run(script) == 0
    assert stage.children[0].exit_code == 0


def test_a_child_that_does_not_drain_is_killed_and_released() -> None:
    """After its time a process is killed, and what it held is handed back: a shutdown costs no attempt."""
    stage = Stage("stubborn", drain_timeout=0.2)

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        stage.children[0].deadline = None
        stage.stop()
        until(lambda: stage.children[0].deadline is not None)
        stage.children[0].deadline = time.monotonic() + 0.2

    assert stage.run(script) == 0
    assert stage.children[0].exit_code == -signal.SIGKILL
    assert stage.heartbeats.released == [stage.children[0].node_id]


def test_a_second_interrupt_ends_everything_at_once() -> None:
    """Ctrl-C twice does not wait for running jobs; twice within one keystroke counts once."""
    stage = Stage("stubborn", drain_timeout=60.0)

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        stage.supervisor.receive(signal.SIGINT)
        stage.supervisor.receive(signal.SIGINT)
        time.sleep(1.0)
        assert stage.children[0].is_running
        stage.supervisor.receive(signal.SIGINT)

    with elapsed() as taken:
        assert stage.run(script) == 0
    assert taken[0] < 5.0
    assert stage.children[0].exit_code == 0


def test_sighup_replaces_one_process_after_the_other() -> None:
    """A rolling restart: every process is new afterwards, and never were fewer than before at work."""
    stage = Stage(processes=2)
    fewest = [2]

    def script() -> None:
        until(lambda: len(stage.alive()) == 2)
        before = set(stage.alive())
        stage.supervisor.receive(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while set(stage.alive()) & before or len(stage.alive()) < 2:
            fewest[0] = min(fewest[0], len(stage.alive()))
            assert time.monotonic() < deadline
            time.sleep(0.005)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 4
    assert fewest[0] == 2


def test_a_changed_file_restarts_all_children(tmp_path: Path) -> None:
    """With a source watch, a written file replaces every process."""
    source = tmp_path / "jobs.py"
    source.write_text("a = 1\n")
    stage = Stage(processes=2, sources=SourceWatch([tmp_path]))

    def script() -> None:
        until(lambda: len(stage.alive()) == 2)
        before = set(stage.alive())
        os.utime(source, (1000, 1000))
        until(lambda: len(stage.alive()) == 2 and not set(stage.alive()) & before)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 4


def test_children_end_when_the_supervisor_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error inside the supervisor leaves no process behind: the pipes close and the children drain."""
    stage = Stage()
    until_ready = threading.Event()

    def fail(*_: Any) -> None:
        if stage.children and stage.children[0].node_id:
            until_ready.set()
            raise RuntimeError("a bug")

    monkeypatch.setattr(stage.supervisor, "_enforce", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        stage.run()
    assert until_ready.is_set()
    until(lambda: (stage.children[0].observe(), not stage.children[0].is_running)[1])
    assert stage.children[0].exit_code == 0


def test_signals_are_restored(capfd: pytest.CaptureFixture[str]) -> None:
    """After the supervisor has ended, signals mean what they meant before."""
    before = [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    ]
    stage = Stage()

    def script() -> None:
        until(lambda: len(stage.alive()) == 1)
        stage.stop()

    stage.run(script)
    after = [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    ]
    assert after == before


def test_children_that_have_run_enough_are_replaced_one_after_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each works until its successor is ready; never do two leave for one another, and the log says why."""
    caplog.set_level("INFO", "ratchet.worker")
    stage = Stage("spent", "spent", "spent", "steady", processes=3)
    fewest: list[int] = []

    def script() -> None:
        until(lambda: len(stage.alive()) >= 3)
        begun = len(stage.children)

        def done() -> bool:
            fewest.append(sum(child.ready is not None and child.is_running for child in stage.children))
            return len(stage.children) == 6 and not any(child.is_running for child in stage.children[:3])

        assert begun in (3, 4)
        until(done, 20, "they were not replaced")
        stage.stop()

    assert stage.run(script) == 0
    assert min(fewest) >= 3, "there were always as many that worked"
    assert caplog.text.count("is replaced: it has run 3 jobs") == 3
    assert all(child.exit_code == 0 for child in stage.children)


def test_a_successor_that_fails_is_not_started_again_at_once() -> None:
    """The process that has run enough goes on; the next try is half a minute away."""
    stage = Stage("spent", "crashing")

    def script() -> None:
        until(lambda: len(stage.children) == 2 and not stage.children[1].is_running)
        looks = len(stage.heartbeats.started)
        until(lambda: stage.children[0].pulse is not None and len(stage.alive()) == 1)
        assert looks == len(stage.heartbeats.started)
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 2


def test_a_node_that_was_stopped_is_not_replaced_and_the_last_one_ends_the_worker() -> None:
    """Its place stays empty; when all places are, the supervisor ends by itself, with exit code 0."""
    stage = Stage("retiring", "retiring", processes=2)
    assert stage.run() == 0
    assert len(stage.children) == 2
    stage.assert_nobody_is_left()
    assert stage.supervisor.condition().missing[:1] == ["it is stopping"]


def test_a_drained_node_is_not_ready_and_is_not_replaced() -> None:
    """Somebody asked it to take no jobs: the probe says so, and a new process would take some."""
    stage = Stage("drained")

    def script() -> None:
        until(lambda: stage.children and stage.children[0].pulse is not None)
        condition = stage.supervisor.condition()
        assert (condition.faults, condition.missing) == ([], ["process 1 was asked to take no jobs"])
        stage.stop()

    assert stage.run(script) == 0
    assert len(stage.children) == 1
