"""Values move to another key while nodes of several keys work, and whatever ends the rewrap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ratchet import RESULT, AuditFilter, JobStatus
from ratchet.stores.sealed.rewrap import PLAIN, StoredKeys
from tests.integration import rotation_app
from tests.integration.encryption_samples import SECRET
from tests.integration.rotation_app import echo
from tests.support.store_urls import KINDS, fresh_url
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]


def keys_command(url: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ROTATION_URL": url, "ROTATION_ACTIVE": "c", "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "ratchet",
        "keys",
        *words,
        "--app",
        "tests.integration.rotation_app:scheduler",
    ]
    return subprocess.Popen(
        [*command, "--json"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(out)
    return found


def counted(url: str) -> dict[str, int]:
    scheduler = rotation_app.made(url, "c")
    try:
        places = StoredKeys(scheduler.store).count()
        return {
            key: sum(of[key] for of in places.values()) for key in {k for of in places.values() for k in of}
        }
    finally:
        scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_under_load(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two nodes, three keys, a rewrap killed in the middle and run again while jobs come in: none is lost, none is unreadable."""
    url = fresh_url(kind, request, tmp_path)
    old, first, second = (
        rotation_app.made(url, active, name) for active, name in (("a", None), ("b", "one"), ("c", "two"))
    )
    handles = list(old.enqueue_many(echo, [(f"{SECRET} {n}",) for n in range(150)]))
    waiting = [old.enqueue(echo, SECRET).with_delay(86_400).submit() for _ in range(40)]
    chains = [old.enqueue(echo, SECRET).then(echo, RESULT).submit().last for _ in range(20)]
    stop = threading.Event()
    written: list[Any] = []

    def load() -> None:
        while not stop.is_set():
            written.append(first.enqueue_now(echo, SECRET))
            stop.wait(0.02)

    submitting = threading.Thread(target=load)
    first.start()
    second.start()
    submitting.start()
    try:
        killed = keys_command(url, "rewrap", "--rate", "150", "--portion", "10")
        until(lambda: counted(url).get("c", 0) > 40 or killed.poll() is not None, 60)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=30)
        assert answer(keys_command(url, "rewrap", "--portion", "50"))["unreadable"] == 0
    finally:
        stop.set()
        submitting.join()
    for handle in (*handles, *chains, *written):
        assert handle.wait(timeout=120) is JobStatus.SUCCEEDED
    assert [handle.result() for handle in handles] == [f"{SECRET} {n}" for n in range(150)]
    assert list(old.dead_letters.find()) == []
    for scheduler in (first, second):
        scheduler.stop()
    done = answer(keys_command(url, "rewrap"))
    assert (done["unreadable"], done["no_key"]) == (0, 0)
    left = answer(keys_command(url, "status"))
    assert left["active"] == "c"
    assert set(left["keys"]) == {"c"}
    assert {handle.job().args for handle in waiting} == {(SECRET,)}
    for scheduler in (old, first, second):
        scheduler.close()


@pytest.mark.parametrize("kind", KINDS)
def test_introduction(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A rewrap encrypts what was stored in plain text; run again, it changes nothing."""
    url = fresh_url(kind, request, tmp_path)
    from ratchet import Scheduler

    plain = Scheduler(url, allow=[rotation_app.__name__])
    handles = list(plain.enqueue_many(echo, [(f"{SECRET} {n}",) for n in range(30)]))
    plain.close()
    before = answer(keys_command(url, "status"))
    assert before["keys"] == {PLAIN: 30}
    assert answer(keys_command(url, "rewrap", "--portion", "7"))["moved"] == 30
    assert answer(keys_command(url, "rewrap"))["moved"] == 0
    reader = rotation_app.made(url, "c")
    assert sorted(job.args[0] for job in reader.jobs.find()) == sorted(f"{SECRET} {n}" for n in range(30))
    assert len(handles) == 30
    entries = list(reader.audit.find(AuditFilter(verb="rewrap", object="keys", source="cli")))
    assert [(one.outcome, one.count, one.reason) for one in entries] == [
        ("unchanged", 0, "to the key c"),
        ("done", 30, "to the key c"),
    ]
    reader.close()
