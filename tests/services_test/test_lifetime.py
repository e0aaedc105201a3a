"""No server may outlive the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.server import is_alive
from tests.services.shared import ROOT, SharedServers
from tests.support.waiting import until

STARTER = """
from tests.services.redis import Redis
server = Redis().start()
print(server.pid, server.directory, flush=True)
input()
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_private_server_ends_with_its_starter(end: signal.Signals) -> None:
    """Whatever signal ends the starter, its server and its data are gone soon after."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A test run in the background of a shell ignores SIGINT; the starter of a server does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as starter:
        assert starter.stdout is not None
        pid, directory = starter.stdout.readline().split()
        assert is_alive(int(pid))
        starter.send_signal(end)
        starter.wait()
    until(lambda: not is_alive(int(pid)))
    until(lambda: not Path(directory).exists())


def test_shared_servers_end_with_the_run(tmp_path: Path) -> None:
    """All workers get one server; when the run's first process is gone, its keeper ends the server."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as controller:
        (tmp_path / "controller").write_text(str(controller.pid))
        one, two = SharedServers(tmp_path).get("redis"), SharedServers(tmp_path).get("redis")
        assert one.url == two.url
        assert one.answers()
        keeper = int((tmp_path / "redis.pid").read_text())
        controller.kill()
    until(lambda: not one.answers())
    until(lambda: not is_alive(keeper))


def test_up_prints_what_to_export_and_stops_when_told() -> None:
    """The developer's command prints one line for each server, and SIGTERM ends it in order."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.services", "up", "--redis"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as up:
        assert up.stdout is not None
        lines = [up.stdout.readline(), up.stdout.readline()]
        os.kill(up.pid, signal.SIGTERM)
        assert up.wait(30) == 0
    assert lines[0].startswith("export RATCHET_TEST_POSTGRESQL_URL='postgresql://")
    assert lines[1].startswith("export RATCHET_TEST_REDIS_URL='redis://")
