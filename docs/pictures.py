"""
Makes the pictures of the dashboard in docs/images: ``make pictures``.

A small shop is run in a database of its own, and Debian's chromium looks at it: in light, in dark, and on a phone.
"""

from __future__ import annotations

import argparse
import math
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ratchet import RESULTS, Scheduler, dashboard  # noqa: E402 - the repository is not installed
from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer  # noqa: E402
from ratchet.model.flow_history import (  # noqa: E402
    LOAD,
    MINUTE,
    TOTAL,
    Depth,
    FlowPeriod,
    Tally,
    floor,
    with_total,
)
from tests.browser import shop  # noqa: E402
from tests.services import chromium  # noqa: E402

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
#: What is taken: by name, a page of the shop.
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{failed}",
    "graph": "/graphs/{graph}",
    "dead-letters": "/dead-letters",
}
#: The others, for whoever wants to see them: ``--all``.
MORE = {
    "queues": "/queues",
    "limits": "/limits",
    "schedules": "/schedules",
    "schedule": "/schedules/thumbnails",
    "batches": "/batches",
    "batch": "/batches/{batch}",
    "nodes": "/nodes",
    "audit": "/audit",
    "running": "/jobs/{running}",
    "pending": "/jobs/{pending}",
    "filtered": "/jobs?status=FAILED&queue=payments",
    "nothing": "/jobs?queue=nobody",
}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1180, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1180, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
}


class Plain(DefaultErrorSanitizer):
    """Shows no path of the machine on which the pictures are made."""

    def sanitize_text(self, text: str) -> str:
        """*text* as a reader's own machine would show it."""
        return super().sanitize_text(text).replace(str(ROOT), "/srv/shop")


@contextmanager
def served(scheduler: Scheduler) -> Iterator[str]:
    """The address of a dashboard."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(dashboard.asgi(scheduler), port=port, log_level="warning", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def graph(scheduler: Scheduler) -> str:
    """A join of several parts, one of which has a branch."""
    parts = [scheduler.enqueue(shop.validate, number).then(shop.reserve, number) for number in range(4)]
    report = (
        scheduler.join(parts)
        .then(shop.notify, RESULTS)
        .then_on_failure(shop.refund, 1)
        .then(shop.cleanup)
        .submit()
    )
    return str(report.id)


def record_an_hour(scheduler: Scheduler) -> None:
    """What a busy day leaves in the table of rates: curves of one hour."""
    begin = floor(datetime.now(UTC), MINUTE)
    for minutes in range(1, 61):
        wave = 1 + math.sin(minutes / 9) / 2
        ran = int(220 * wave) + 7 * (minutes % 5)
        failed = 3 + (25 if 18 < minutes < 24 else minutes % 3)
        waited = 24 + (minutes % 7 == 3) + (3 if 18 < minutes < 26 else 0)
        waits, runs = {waited: int(ran * 0.8), waited + 6: ran // 5}, {27: int(ran * 0.8), 32: ran // 5}
        tally = Tally(ran, ran - failed, failed, failed // 2, waits, runs)
        depth = Depth(int(40 * wave) + (90 if 18 < minutes < 26 else 0), 200_000)
        at = begin - minutes * MINUTE
        scheduler.store.record_flow(
            [
                FlowPeriod(at=at, source="node", runs=with_total({"payments": tally})),
                FlowPeriod(at=at, source=LOAD, depths={TOTAL: depth, "payments": depth}),
            ]
        )


def take(browser: Browser, address: str, folder: Path, only: str | None) -> None:
    """Every page in every look."""
    for look, settings in LOOKS.items():
        with browser.new_context(timezone_id="Europe/Berlin", locale="en-GB", **settings) as context:
            tab = context.new_page()
            for name, path in PAGES.items():
                if only is not None and only != name:
                    continue
                tab.goto(f"{address}{path}")
                tab.wait_for_function("document.querySelector('#zone').textContent.includes('Berlin')")
                file = folder / f"dashboard-{name}-{look}.png"
                tab.screenshot(path=file, full_page=name in MORE)
                sys.stdout.write(f"{file.name}: {file.stat().st_size // 1024} KB\n")


def main() -> None:
    """Run the shop and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", choices=PAGES)
    parser.add_argument("--all", action="store_true", help="the pages that the docs do not show, too")
    chosen = parser.parse_args()
    if chosen.all:
        PAGES.update(MORE)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scheduler = shop.declare(
            Scheduler(f"sqlite:///{folder}/shop.db", allow=["tests.browser.shop"], error_sanitizer=Plain())
        )
        ids = {name: str(one) for name, one in shop.fill(scheduler).items()}
        ids["graph"] = graph(scheduler)
        for name in list(PAGES):
            PAGES[name] = PAGES[name].format(**ids)
        record_an_hour(scheduler)
        with scheduler, served(scheduler) as address, sync_playwright() as playwright:
            scheduler.enqueue(shop.export_report, "quarterly").with_queue("reports").submit()
            browser = playwright.chromium.launch(executable_path=chromium.program(), args=ARGUMENTS)
            time.sleep(1.5)
            take(browser, address, chosen.folder, chosen.only)
            browser.close()
            scheduler.stop(drain=False)
        scheduler.close()


if __name__ == "__main__":
    main()
