"""
A page that is left open under load: ``python -m tests.browser.soak --minutes 60``.

A worker runs jobs all the time, one browser shows each page of `PAGES` in a tab of its own, and one more tab is hidden. Each
minute the memory of the browser and of the server and the number of requests are printed; at the end, whether they grew.
The dashboard is served by a process of its own, as ``ratchet dashboard`` does it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from ratchet import Scheduler
from tests.browser import shop
from tests.browser.conftest import ARGUMENTS
from tests.services import chromium
from tests.services.postgresql import PostgreSQL

#: What is left open.
PAGES = ("/", "/jobs", "/jobs/{running}", "/queues", "/nodes")
#: Jobs that are submitted in a second.
RATE = 20


def memory_of(pid: int) -> int:
    """Resident kilobytes of a process and its children; what they share is counted once, where the system tells."""
    found = 0
    for one in [pid, *_children(pid)]:
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        found += sum(int(size) for size in re.findall(r"^Pss:\s+(\d+) kB", text, re.MULTILINE))
    return found


def _children(pid: int) -> list[int]:
    try:
        text = " ".join(
            one.read_text(encoding="ascii") for one in Path(f"/proc/{pid}/task").glob("*/children")
        )
    except OSError:
        return []
    return [more for child in map(int, text.split()) for more in (child, *_children(child))]


@contextmanager
def dashboard_process(url: str) -> Iterator[tuple[int, str]]:
    """``ratchet dashboard`` in a process of its own: its id, and its address."""
    command = [sys.executable, "-m", "ratchet", "dashboard", "--url", url, "--bind", "127.0.0.1:0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    address = ""
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            address = found.group()
            break
    reader = threading.Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True)
    reader.start()
    try:
        yield process.pid, address
    finally:
        process.terminate()
        process.wait(30)


class Load:
    """Submits jobs for as long as it is entered; some fail, and one runs all the time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.running = scheduler.enqueue(shop.export_report, "endless").with_queue("reports").submit().id

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(1):
            for _ in range(RATE):
                number += 1
                self._scheduler.enqueue(shop.charge, number, 1.0).with_queue("payments").submit()


def browser_memory(page: Page) -> dict[str, int]:
    """What the page itself has: bytes of its heap, and how many nodes and listeners it keeps."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return {name: int(found[name]) for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}


def say(text: str) -> None:
    """Tell it now, also where it is written to a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def soak(minutes: float, url: str) -> None:
    """Leave the pages open, and tell each minute what they cost."""
    scheduler = shop.declare(Scheduler(url, allow=["tests.browser.shop"]))
    scheduler.migrate()
    with ExitStack() as stack:
        stack.callback(scheduler.close)
        stack.enter_context(scheduler)
        load = stack.enter_context(Load(scheduler))
        pid, address = stack.enter_context(dashboard_process(url))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium.program(), args=ARGUMENTS)
        stack.callback(browser.close)
        context = browser.new_context(timezone_id="Europe/Berlin")
        requests: dict[str, int] = {}
        faults: list[str] = []

        def opened(path: str) -> Page:
            page = context.new_page()
            page.on("request", lambda _: requests.__setitem__(path, requests.get(path, 0) + 1))
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(f"{address}{path.format(running=load.running)}")
            return page

        pages = {path: opened(path) for path in PAGES}
        hidden = opened("/jobs?queue=payments")
        hidden.evaluate(HIDE)
        hidden.wait_for_timeout(1000)
        asked_when_hidden = requests["/jobs?queue=payments"]
        browser_pid = _browser_pid()
        begun = time.monotonic()
        minute = 0
        say("minute  browser MB  server MB  heap MB   nodes  listeners  requests a minute, by page")
        before: dict[str, int] = {}
        while time.monotonic() - begun < minutes * 60:
            ends = begun + 60 * (minute + 1)
            while time.monotonic() < ends:
                hidden.wait_for_timeout(min(5000.0, max(1.0, 1000 * (ends - time.monotonic()))))
            minute += 1
            of_pages = [browser_memory(page) for page in pages.values()]
            heap, nodes, listeners = (sum(one[name] for one in of_pages) for name in of_pages[0])
            told = " ".join(f"{path}:{requests[path] - before.get(path, 0)}" for path in PAGES)
            before = dict(requests)
            say(
                f"{minute:6}  {memory_of(browser_pid) / 1024:10.0f}  {memory_of(pid) / 1024:9.0f}  {heap / 1e6:7.1f}"
                f"  {nodes:6}  {listeners:9}  {told}"
            )
        say(f"faults: {faults or 'none'}")
        say(f"a hidden page asked {requests['/jobs?queue=payments'] - asked_when_hidden} times")


#: As if another tab were in front.
HIDE = """() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def _browser_pid() -> int:
    """The process of the browser, a child of ours through playwright's driver."""
    for one in _children(os.getpid()):
        name = Path(f"/proc/{one}/comm").read_text(encoding="ascii").strip()
        if name.startswith(("chrom", "headless")):
            return one
    raise AssertionError("no browser was started")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sqlite", action="store_true", help="on SQLite instead of PostgreSQL")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        if chosen.sqlite:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            url = f"sqlite:///{folder}/shop.db"
        else:
            url = stack.enter_context(PostgreSQL()).create_database()
        soak(chosen.minutes, url)


if __name__ == "__main__":
    main()
