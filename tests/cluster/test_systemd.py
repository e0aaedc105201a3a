"""A worker under ``Type=notify`` and a watchdog: what it says on systemd's socket, over a real one."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.cli.worker.systemd import Notifier
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.workers import Worker
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Listener:
    """The side of systemd: a datagram socket, and every message that has arrived on it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.path = str(path)
        self._heard: list[str] = []

    def heard(self) -> list[str]:
        """All messages so far."""
        while True:
            try:
                self._heard.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return self._heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Listener]:
    found = Listener(tmp_path / "notify")
    yield found
    found.close()


def test_a_worker_says_how_it_is(tmp_path: Path, systemd: Listener) -> None:
    """
    READY when it can run jobs and not before, WATCHDOG while it looks after its processes, STOPPING when it drains.

    The processes that run jobs do not see the socket, and a supervisor that stands still does not feed the watchdog.
    """
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    scheduler = Scheduler(url, allow=["tests.cluster"])
    scheduler.migrate()
    ledger = str(tmp_path / "ledger")
    environment = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "1000000"}
    worker = Worker(url, tmp_path, "notified", "--concurrency", "2", environment=environment)
    try:
        worker.wait_ready()
        until(lambda: "READY=1" in systemd.heard(), 30, worker.log)
        assert systemd.heard().index("READY=1") > systemd.heard().index("WATCHDOG=1")
        until(lambda: "STATUS=1 of 1 processes run jobs" in systemd.heard(), 30, worker.log)
        (child,) = worker.children()
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        assert not [one for one in variables if one.startswith((b"NOTIFY_SOCKET=", b"WATCHDOG_"))]
        fed = systemd.heard().count("WATCHDOG=1")
        until(lambda: systemd.heard().count("WATCHDOG=1") >= fed + 3, 30, worker.log)

        os.kill(worker.process.pid, signal.SIGSTOP)
        until(lambda: _state(worker.process.pid) == "T", 30, "it does not stop")
        fed = systemd.heard().count("WATCHDOG=1")
        running = scheduler.enqueue_now(shop.slow, ledger, "long", 2.0)  # its process goes on meanwhile
        until(lambda: shop.lines(ledger), 30, worker.log)
        assert systemd.heard().count("WATCHDOG=1") == fed
        os.kill(worker.process.pid, signal.SIGCONT)
        until(lambda: systemd.heard().count("WATCHDOG=1") > fed, 30, worker.log)

        assert "STOPPING=1" not in systemd.heard()
        worker.signal(signal.SIGTERM)
        until(lambda: "STOPPING=1" in systemd.heard(), 30, worker.log)
        assert worker.wait(60) == 0, worker.log
        assert running.result(timeout=5)
        assert systemd.heard().count("READY=1") == 1
        assert systemd.heard().count("STOPPING=1") == 1
    finally:
        worker.close()
        scheduler.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class TestNotifier:
    def test_nobody_asks(self) -> None:
        """Without the variable, or with one that is no socket, nothing is told."""
        assert Notifier.of({}) is None
        assert Notifier.of({"NOTIFY_SOCKET": "relative"}) is None

    def test_a_watchdog_of_another_process(self, systemd: Listener) -> None:
        """WATCHDOG_PID names who has to feed it; without a watchdog, none is fed."""
        for more in ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {}, {"WATCHDOG_USEC": "soon"}):
            notifier = Notifier.of({"NOTIFY_SOCKET": systemd.path, **more})
            assert notifier is not None
            notifier.alive(True)
        assert systemd.heard() == []

    def test_a_worker_that_is_not_well_does_not_feed_it(self, systemd: Listener) -> None:
        """So systemd restarts it; when all is well again it is fed at once."""
        now = [100.0]
        environ = {
            "NOTIFY_SOCKET": systemd.path,
            "WATCHDOG_USEC": "10000000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        notifier = Notifier.of(environ, lambda: now[0])
        assert notifier is not None
        assert environ == {}
        notifier.alive(True)
        now[0] += 4.9
        notifier.alive(True)
        assert systemd.heard() == ["WATCHDOG=1"]
        now[0] += 5
        notifier.alive(False)
        assert systemd.heard() == ["WATCHDOG=1"]
        notifier.alive(True)
        assert systemd.heard() == ["WATCHDOG=1"] * 2

    def test_an_abstract_address(self) -> None:
        """A name that begins with @ is no file."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(f"\0ratchet-{os.getpid()}")
            notifier = Notifier.of({"NOTIFY_SOCKET": f"@ratchet-{os.getpid()}"})
            assert notifier is not None
            notifier.ready()
            notifier.ready()
            notifier.status("1 of 1 processes run jobs")
            listener.setblocking(False)
            assert listener.recv(100) == b"READY=1"
            assert listener.recv(100) == b"STATUS=1 of 1 processes run jobs"
            with pytest.raises(BlockingIOError):
                listener.recv(100)

    def test_a_systemd_that_is_gone(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The worker goes on, and says it once."""
        notifier = Notifier.of({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "1"})
        assert notifier is not None
        for _ in range(3):
            notifier.ready()
            notifier.alive(True)
        assert [record.getMessage()[:36] for record in caplog.records] == [
            "systemd cannot be told how this work"
        ]
