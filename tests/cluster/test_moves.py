"""A move beside processes of 0.1.0: its nodes and submitters know nothing of moves, and are held back all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ratchet import Options, Scheduler
from ratchet.model.moves import RowKind
from ratchet.model.status import JobStatus
from ratchet.moving import move
from ratchet.stores import open_store
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.sql.store import SqlStore
from tests.cluster.conftest import StartWorker
from tests.cluster.earlier import earlier_version, python
from tests.cluster.shop import gated, lines, note
from tests.cluster.workers import ROOT
from tests.support.store_urls import empty_url
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

APP = "tests.cluster.depot:scheduler"
PATIENT = {"RATCHET_HEARTBEAT": "1", "RATCHET_SILENCE": "60"}
#: Source and target; each store is both once.
RING = (("sqlite", "mongodb"), ("mongodb", "postgresql"), ("postgresql", "mysql"), ("mysql", "sqlite"))
#: Has the store open, waits for a line, and submits until it is refused; then it says how many it has submitted.
SUBMITS = """
import json, sys, time
from tests.cluster import depot
from tests.cluster.shop import note
ledger, name, submitted = sys.argv[1], sys.argv[2], 0
depot.scheduler.jobs.counts()
print("open", flush=True)
sys.stdin.readline()
try:
    while submitted < 5000:
        depot.scheduler.enqueue(note, ledger, f"{name}-{submitted}").submit()
        submitted += 1
        time.sleep(0.005)
except Exception as error:
    print(json.dumps([submitted, str(error)]), flush=True)
"""


@pytest.fixture(scope="module")
def old() -> Iterator[dict[str, str]]:
    """What makes a process run 0.1.0."""
    with earlier_version() as environment:
        yield environment


@pytest.fixture(params=RING, ids="-".join)
def urls(request: pytest.FixtureRequest, tmp_path: Path, old: dict[str, str]) -> tuple[str, str]:
    """Two stores that 0.1.0 has made."""
    there, here = (empty_url(kind, request, tmp_path) for kind in request.param)
    for url in (there, here):
        made = python({**old, "RATCHET_URL": url}, "-m", "ratchet", "db", "upgrade")
        assert made.returncode == 0, made.stderr
    return there, here


@pytest.fixture
def url(urls: tuple[str, str]) -> str:
    """Where workers work."""
    return urls[0]


@contextmanager
def submitter(
    url: str, environment: dict[str, str], ledger: str, name: str
) -> Iterator[subprocess.Popen[str]]:
    """A process of 0.1.0 that has a store open."""
    with subprocess.Popen(
        [sys.executable, "-c", SUBMITS, ledger, name],
        cwd=ROOT,
        env={**os.environ, **environment, "RATCHET_URL": url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.kill()


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("now\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How many it has submitted, and why no more."""
    assert process.stdout is not None
    submitted, why = json.loads(process.stdout.readline())
    return submitted, why


def after_jobs_came(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do *action* when the first jobs have arrived in the target."""
    left = [action]

    def patched(plain: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: object, kind: RowKind, *args: Any, **given: Any) -> Any:
            found = plain(self, kind, *args, **given)
            if kind is RowKind.JOB and left:
                left.pop()()
            return found

        return called

    for store in (SqlStore, MongoStore):
        monkeypatch.setattr(store, "put_rows", patched(store.put_rows))


def test_processes_of_0_1_0(
    urls: tuple[str, str],
    old: dict[str, str],
    start_worker: StartWorker,
    ledger: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A worker and a submitter of 0.1.0 are at work on the upgraded source, and a process of 0.1.0 has the target open. What was
    acknowledged runs once, on one side or the other; the old worker starts nothing behind the fence and leaves when it is told to;
    a submission of the old process is refused on both sides.
    """
    there, here = urls
    gate = tmp_path / "gate"
    refused: list[tuple[int, str]] = []
    worker = start_worker("old", app=APP, environment={**old, **PATIENT}).wait_ready(seconds=60)
    with ExitStack() as stack:
        at_source = stack.enter_context(submitter(there, old, ledger, "there"))
        at_target = stack.enter_context(submitter(here, old, ledger, "here"))
        for url in urls:
            done = python({"RATCHET_URL": url}, "-m", "ratchet", "db", "upgrade")
            assert done.returncode == 0, done.stderr
        scheduler = stack.enter_context(closing(Scheduler(there, allow=["tests.cluster"])))
        scheduler.enqueue_now(gated, ledger, "long", str(gate))
        begin(at_source)
        until(lambda: len(lines(ledger)) > 20, 60, worker.log)

        def at_the_target() -> None:
            begin(at_target)
            refused.append(answer(at_target))

        after_jobs_came(monkeypatch, at_the_target)
        opener = threading.Thread(target=_open_when_fenced, args=(there, gate))
        opener.start()
        # what the worker leaves undone is known by the time at which it cannot claim any more
        for number in range(50):
            scheduler.enqueue_now(note, ledger, f"new-{number}")
        report = move(there, here, wait=120)
        opener.join(60)
        submitted, why = answer(at_source)
    assert "moved to" in why
    assert refused[0][0] == 0
    assert "nothing may be submitted or run here yet" in refused[0][1]
    before = runs(ledger)
    expected = {f"there-{number}" for number in range(submitted)} | {f"new-{number}" for number in range(50)}
    assert report.jobs == len(expected) + 1, "nothing of the target's own"
    worker.signal(signal.SIGTERM)
    assert worker.wait(60) == 0, worker.log
    target = Scheduler(here, allow=["tests.cluster"])
    with target:
        until(lambda: target.jobs.counts()[JobStatus.SUCCEEDED] == report.jobs, 90, "not all have run")
    target.close()
    assert before <= runs(ledger)
    assert {name: times for name, times in runs(ledger).items() if times > 1} == {}
    assert expected <= runs(ledger).keys()


def _open_when_fenced(url: str, gate: Path) -> None:
    """Let the long job end as soon as nothing can be claimed."""
    store: Any = open_store(url, Options())
    try:
        until(lambda: store.move_record() is not None)
    finally:
        gate.touch()
        store.close()


def runs(ledger: str) -> Counter[str]:
    """How often each job has run to its end."""
    return Counter(line[1] for line in lines(ledger) if line[0] == "ran")
