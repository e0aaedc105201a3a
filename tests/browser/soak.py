"""
A page that is left open under load: ``python -m tests.browser.soak --minutes 60``.

A worker runs jobs all the time, one browser shows each page of `PAGES` in a tab of its own, and one more tab is hidden. Each
minute the memory of the browser and of the server and the number of requests are printed; at the end, whether they grew.
The dashboard is served by a process of its own, as ``ratchet dashboard`` does it.
"""

from __future__ import annotations

import argparse
import json
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
from typing import Any

from playwright.sync_api import CDPSession, sync_playwright

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


class Tab:
    """
    A page that playwright does not attach to, driven over the protocol of the browser.

    A driver that records the network may make the browser keep what it got, and that would be measured too. Here
    nothing is asked for but what is read once a minute.
    """

    def __init__(self, session: CDPSession, url: str) -> None:
        self._session = session
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        context = session.send("Target.createBrowserContext")["browserContextId"]
        made = session.send(
            "Target.createTarget",
            {
                "url": "about:blank",
                "browserContextId": context,
                "newWindow": True,
                "width": 1280,
                "height": 900,
            },
        )
        self._id = session.send("Target.attachToTarget", {"targetId": made["targetId"]})["sessionId"]
        session.on("Target.receivedMessageFromTarget", self._received)
        self.send("Page.enable")  # the script is not run without
        self.send("Page.addScriptToEvaluateOnNewDocument", source=COUNTING)
        self.send("Page.navigate", url=url)
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            time.sleep(0.1)

    def _received(self, event: dict[str, Any]) -> None:
        answer = json.loads(event["message"])
        if event["sessionId"] == self._id and "id" in answer:
            self._answers[answer["id"]] = answer

    def send(self, method: str, **words: Any) -> dict[str, Any]:
        """What the browser answers for this page."""
        self._number += 1
        message = json.dumps({"id": self._number, "method": method, "params": words})
        self._session.send("Target.sendMessageToTarget", {"sessionId": self._id, "message": message})
        ends = time.monotonic() + 60
        while self._number not in self._answers:
            assert time.monotonic() < ends, f"{method} was not answered"
            self._session.send("Browser.getVersion")  # answers are received while something is waited for
        answer = self._answers.pop(self._number)
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def value(self, expression: str) -> Any:
        """What a piece of script gives in the page."""
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def memory(self) -> dict[str, int]:
        """What the page itself has: bytes of its heap, and how many nodes and listeners it keeps."""
        self.send("HeapProfiler.collectGarbage")
        self.send("Performance.enable")
        found = {one["name"]: one["value"] for one in self.send("Performance.getMetrics")["metrics"]}
        self.send("Performance.disable")
        return {name: int(found[name]) for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}


#: Counts what the page asks for, and what fails in it.
COUNTING = """
    window.asked = 0; window.faults = [];
    const real = window.fetch;
    window.fetch = (...words) => { window.asked += 1; return real(...words); };
    addEventListener("error", (event) => window.faults.push(event.message));
    addEventListener("unhandledrejection", (event) => window.faults.push(String(event.reason)));
"""


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
        session = browser.new_browser_cdp_session()
        pages = {path: Tab(session, f"{address}{path.format(running=load.running)}") for path in PAGES}
        assert not any(page.value("document.hidden") for page in pages.values())
        hidden = Tab(session, f"{address}/jobs?queue=payments")
        hidden.value(HIDE)
        time.sleep(1)
        asked_when_hidden = hidden.value("asked")
        browser_pid = _browser_pid()
        begun = time.monotonic()
        minute = 0
        say("minute  browser MB  server MB  heap MB   nodes  listeners  requests a minute, by page")
        before = dict.fromkeys(PAGES, 0)
        while time.monotonic() - begun < minutes * 60:
            time.sleep(max(begun + 60 * (minute + 1) - time.monotonic(), 0))
            minute += 1
            of_pages = [page.memory() for page in pages.values()]
            heap, nodes, listeners = (sum(one[name] for one in of_pages) for name in of_pages[0])
            asked = {path: page.value("asked") for path, page in pages.items()}
            told = " ".join(f"{path}:{asked[path] - before[path]}" for path in PAGES)
            before = asked
            say(
                f"{minute:6}  {memory_of(browser_pid) / 1024:10.0f}  {memory_of(pid) / 1024:9.0f}  {heap / 1e6:7.1f}"
                f"  {nodes:6}  {listeners:9}  {told}"
            )
        faults = [fault for page in pages.values() for fault in page.value("faults")]
        say(f"faults: {faults or 'none'}")
        say(f"a hidden page asked {hidden.value('asked') - asked_when_hidden} times")


#: As if another tab were in front.
HIDE = """(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
    document.dispatchEvent(new Event("visibilitychange"));
})()"""


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
