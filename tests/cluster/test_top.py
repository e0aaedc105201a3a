"""``ratchet top`` in a real terminal, beside a real node."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ratchet import JobFilter, Options, Scheduler
from ratchet.model.cluster import NodeState
from ratchet.model.status import JobStatus
from tests.cluster import errands
from tests.cluster.workers import ROOT
from tests.services.postgresql import PostgreSQL
from tests.support.terminal import Terminal
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
#: What sets a color.
COLOR = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-7]|38;|9[0-7])")
QUICK = Options(heartbeat=0.2, idle_heartbeat=0.2, silence=60, concurrency=4, node_name="shop")


@pytest.fixture
def busy(url: str) -> Iterator[Scheduler]:
    """A node that runs one job until the gate opens, has run some, and has one in a queue that is not served."""
    made = Scheduler(url, allow=["tests.cluster"], options=QUICK)
    errands.gate.clear()
    errands.waiting.clear()
    with made:
        done = [made.enqueue_now(errands.greet, str(number)) for number in range(5)]
        made.enqueue(errands.wait_for_gate).with_queue("mails").submit()
        made.schedule(3600, errands.greet, "later").with_queue("reports").submit()
        until(errands.waiting.is_set, 30, "the job did not start")
        for handle in done:
            handle.result(timeout=30)
        yield made
        errands.gate.set()
    made.close()


def test_what_it_shows(url: str, busy: Scheduler) -> None:
    """Queues with rates and waits, the node, and the running job with its age, within 80 columns and 24 lines."""
    with Terminal("top", "--url", url, "--interval", "200ms") as terminal:
        screen = terminal.shows("default", "mails", "reports", "shop-", "wait_for_gate", "q quit")
        assert "1 node · 1 running · 1 pending · 0 dead letters" in screen
        assert "ACTIVE" in screen
        (job,) = busy.jobs.find(JobFilter(statuses=[JobStatus.RUNNING]))
        assert str(job.id)[:18] in screen, "as much of its id as the commands take"
        assert all(len(line) <= 80 for line in terminal.lines)
        terminal.press("q")
        until(lambda: terminal.lines and terminal.process.poll() is not None, 20, "it did not end")
        assert terminal.process.returncode == 0


def test_keys_pause_drain_and_cancel(url: str, busy: Scheduler) -> None:
    """Each is asked first; n changes nothing, y does it, and the screen shows what has become of it."""
    with Terminal("top", "--url", url, "--interval", "200ms") as terminal:
        terminal.shows("wait_for_gate")
        terminal.press("p")
        terminal.shows("pause queue mails? y/n")
        terminal.press("n")
        terminal.shows("nothing was changed")
        assert not any(queue.paused for queue in busy.queues.list())
        terminal.press("p", "y")
        terminal.shows("mails (paused)", "pause queue mails: done")
        terminal.press("p", "y")
        terminal.shows("resume queue mails: done")
        terminal.shows_that(lambda text: "(paused)" not in text, "it is still paused")
        terminal.press("\t", "d")
        terminal.shows("drain node shop-")
        terminal.press("y")
        terminal.shows("DRAINING")
        assert [node.state for node in busy.nodes.list()] == [NodeState.DRAINING]
        terminal.press("d", "y")
        terminal.shows_that(lambda text: "DRAINING" not in text, "it still drains")
        terminal.press("\t", "c")
        terminal.shows("cancel job")
        terminal.press("y")
        terminal.shows("no jobs", "1 node · 0 running")
        assert [job.status for job in busy.jobs.find() if job.target.endswith("wait_for_gate")] == [
            JobStatus.CANCELED
        ]


@on_sqlite
def test_it_follows_the_size_of_the_terminal(url: str, busy: Scheduler) -> None:
    """Wider: more columns. Lower: fewer rows, and the keys stay in sight. The arrows reach what was cut."""
    for number in range(30):
        busy.schedule(3600, errands.greet, "x").with_queue(f"queue-{number:02}").submit()
    with Terminal("top", "--url", url, "--interval", "200ms") as terminal:
        terminal.shows("mails", "more", "q quit")
        assert "SLOTS" not in terminal.text
        terminal.resize(160, 60)
        terminal.shows("VERSION", "SLOTS", "queue-29")
        terminal.resize(80, 16)
        terminal.shows_that(lambda text: "SLOTS" not in text and "q quit" in text, "it did not get smaller")
        assert all(len(line) <= 80 for line in terminal.lines)
        terminal.press(*["\x1b[B"] * 40)
        terminal.shows("> reports")


@on_sqlite
def test_without_color(url: str, busy: Scheduler) -> None:
    """NO_COLOR is heard: not one color on the wire, and the same text."""
    with Terminal("top", "--url", url, environment={"NO_COLOR": "1"}) as terminal:
        terminal.shows("wait_for_gate", "ACTIVE")
        assert not COLOR.search(terminal.raw)
    with Terminal("top", "--url", url) as terminal:
        terminal.shows("wait_for_gate", "ACTIVE")
        assert COLOR.search(terminal.raw)


def test_without_a_terminal_it_prints_once(url: str, busy: Scheduler) -> None:
    """Everything, in the width that COLUMNS says; --once does the same on a terminal."""
    command = [sys.executable, "-m", "ratchet", "top", "--url", url]
    environment = {**os.environ, "COLUMNS": "80"}
    shown = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert "wait_for_gate" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    with Terminal("top", "--url", url, "--once") as terminal:
        terminal.shows("wait_for_gate")
        assert terminal.process.wait(20) == 0


def test_a_database_that_goes_away_and_comes_back() -> None:
    """The last numbers stay, with a line that says since when there is no answer; then it goes on by itself."""
    with PostgreSQL() as server:
        url = server.create_database()
        looking_on = Scheduler(url)
        looking_on.migrate()
        looking_on.close()
        with Terminal("top", "--url", url, "--interval", "200ms") as terminal:
            terminal.shows("0 nodes")
            server.stop()
            terminal.shows("! no answer from the store since", "0 nodes", seconds=60)
            server.start()
            terminal.shows_that(lambda text: "no answer" not in text and "0 nodes" in text, "no recovery", 60)
            os.kill(terminal.process.pid, signal.SIGINT)
            until(lambda: terminal.lines and terminal.process.poll() is not None, 20, "it did not end")
            assert terminal.process.returncode == 130
