"""``ratchet dashboard``: served to this machine, and to nobody else."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ratchet import Scheduler
from tests.support.waiting import until


def start(*words: str, log: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own; what it says goes to *log*."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "ratchet", "dashboard", *words], stderr=file, stdout=file
        )


@pytest.mark.parametrize("more", [("--json",), ("--read-only",)])
def test_it_is_served_and_ends(tmp_path: Path, more: tuple[str, ...]) -> None:
    """It says where, answers pages and JSON, refuses other names and changes from elsewhere, and ends with a signal."""
    url, log = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "log"
    scheduler = Scheduler(url)
    assert scheduler.jobs.count() == 0
    process = start("--url", url, "--bind", "127.0.0.1:0", *more, log=log)
    try:
        until(lambda: "http://" in log.read_text() or process.poll() is not None, 60, "it said nothing")
        address = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[0]
        if "--json" in more:
            assert json.loads(log.read_text()) == {"url": f"{address}/"}

        def status(path: str, method: str = "GET", **headers: str) -> int:
            asked = urllib.request.Request(f"{address}{path}", headers=headers, method=method)
            try:
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        assert status("/") == 200
        assert status("/jobs", Accept="application/json") == 200
        assert status("/", Host="evil.example") == 403
        assert status("/queues/mail/pause", "POST") == 403
        assert status("/queues/mail/pause", "POST", Origin=address) == (403 if "--read-only" in more else 200)
        assert [queue.name for queue in scheduler.queues.list()] == (
            [] if "--read-only" in more else ["mail"]
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
    finally:
        process.kill()
        process.wait()
        scheduler.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bind", "0.0.0.0:8080"), "only this machine is served"),
        (("--bind", "nonsense"), "--bind"),
        (("--url", "sqlite:///missing.db"), "there is no database"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Another address than loopback, what is no address, and a store that is not there: one line, no traceback."""
    command = [sys.executable, "-m", "ratchet", "dashboard", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
