"""
A worker on a disk of three megabytes that fills up; prints what is seen, as JSON.

Run inside of a mount namespace of its own (``unshare --user --map-root-user --mount``): the disk goes away with the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ratchet import Scheduler
from tests.cluster import idlers
from tests.cluster.test_incidents import APP, HTTP, QUICK, Operator, Seen
from tests.cluster.workers import Worker
from tests.support.waiting import until


def main(folder: Path) -> dict[str, Any]:
    """Fill the disk, look, make room, look again."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=True)
    url = f"sqlite:///{disk / 'jobs.db'}"
    scheduler = Scheduler(url, allow=["tests.cluster.idlers"])
    scheduler.migrate()
    worker = Worker(url, folder, "one", *HTTP, app=APP, environment=QUICK)
    try:
        operator = Operator(scheduler, worker.wait_ready(seconds=60))
        operator.expect(200, 200, set(), set())
        handle = scheduler.schedule(2, idlers.greet, "ann").submit()
        fill(disk / "waste")
        until(lambda: is_told(operator.look()), 60, f"{operator.last}\n{worker.log}")
        full = operator.last
        text = scheduler.health().problems[0].text
        (disk / "waste").unlink()
        result = handle.result(timeout=60)
        until(lambda: operator.look() == (200, 200, set(), set()), 60, worker.log)
        after = operator.look()
    finally:
        worker.close()
        scheduler.close()
    return {"full": shown(full), "after": shown(after), "text": text, "result": result}


def is_told(seen: Seen) -> bool:
    """True once everybody has noticed; the metrics are a few seconds old."""
    return seen.ready == 503 and "read_only" in seen.problems and "RatchetStoreReadOnly" in seen.alerts


def fill(waste: Path) -> None:
    """Write until nothing more fits."""
    with waste.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def shown(seen: Any) -> dict[str, Any]:
    return {
        name: sorted(value) if isinstance(value, set) else value for name, value in seen._asdict().items()
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201 - it is read by the test
