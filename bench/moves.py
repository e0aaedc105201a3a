"""
How long a move of many jobs takes, killed on the way, and whether both sides are equal at the end.

    python -m bench.moves --jobs 200000 --kills 10 --pairs sqlite:postgresql,mongodb:mysql

Servers are those of the tests. The jobs are copies of a small store with everything in it (`tests/moves/samples.py`): each ended one has a run and a
log line, and one in five is in the archive. Each pair prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ratchet import ManualClock, Options, new_id
from ratchet.model.moves import NeutralRow, RowKind, has_ended
from ratchet.moving import MoveReport, move
from ratchet.moving.copying import tallies_of
from ratchet.stores import open_store
from tests.moves import samples
from tests.moves.killing import forked, killed_within
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL

KINDS = ("sqlite", "postgresql", "mysql", "mongodb")
_SERVERS = {"postgresql": PostgreSQL, "mysql": MariaDB, "mongodb": MongoDB}
_PORTION = 2000


def copies(templates: list[NeutralRow], count: int) -> Iterator[tuple[RowKind, list[NeutralRow]]]:
    """Portions of rows: so many jobs, and what belongs to them."""
    for first in range(0, count, _PORTION):
        jobs: dict[RowKind, list[NeutralRow]] = {kind: [] for kind in (RowKind.JOB, RowKind.ARCHIVED_JOB)}
        runs, lines = [], []
        for number in range(first, min(first + _PORTION, count)):
            job_id, claim_id = new_id(), new_id()
            row = {
                **templates[number % len(templates)],
                "job_id": job_id,
                "root_id": job_id,
                "parent_id": None,
            }
            row |= {"batch_id": None, "has_dependants": False, "has_conditions": False, "business_key": None}
            archived = has_ended(row) and number % 5 == 0
            if archived:
                row["archived_at"] = row["created_at"]
            jobs[RowKind.ARCHIVED_JOB if archived else RowKind.JOB].append(row)
            if has_ended(row):
                runs.append(_run(row, claim_id))
                lines.append(_line(row, claim_id, number))
        yield RowKind.RUN, runs
        yield RowKind.LOG, lines
        yield from jobs.items()


def _run(row: NeutralRow, claim_id: UUID) -> NeutralRow:
    at = row["created_at"]
    return {
        "job_id": row["job_id"], "claim_id": claim_id, "attempt": 1, "node_id": "node", "queue_wait_us": 1500,
        "started_at": at, "finished_at": at, "status": "SUCCEEDED", "counted": True, "error": None,
        "error_type": None, "traceback": None,
    }  # fmt: skip


def _line(row: NeutralRow, claim_id: UUID, number: int) -> NeutralRow:
    return {
        "job_id": row["job_id"], "claim_id": claim_id, "sequence": 1, "attempt": 1, "at": row["created_at"],
        "level": "INFO", "logger": "shop.mail", "message": f"mailed number {number}",
    }  # fmt: skip


def fill(url: str, count: int) -> None:
    """A store with everything in it, many times."""
    store: Any = open_store(url, Options())
    store.migrate()
    samples.fill(store, ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    templates = [row for row in store.neutral_rows(RowKind.JOB, limit=1000) if row["status"] != "WAITING"]
    for kind, rows in copies(templates, count):
        store.put_rows(kind, rows)
    store.close()


def moved(source: str, target: str, kills: int, seed: int, guess: float) -> dict[str, Any]:
    """Kill a move so many times, at moments all over its length, and let it end; then compare."""
    chance, killed, began = random.Random(seed), 0, time.monotonic()
    for _ in range(kills):
        alive = chance.uniform(0.05, 2 * guess / max(kills, 1))
        code = forked(lambda alive=alive: _killed(source, target, alive))  # type: ignore[misc]
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"a try ended with {code}")
        killed += code != 0
    report = move(source, target)
    seconds = time.monotonic() - began
    there, here = (open_store(url, Options()) for url in (source, target))
    left, arrived = tallies_of(there), tallies_of(here)  # type: ignore[arg-type]
    there.close()
    here.close()
    differences = [kind for kind in RowKind if kind is not RowKind.AUDIT and left[kind] != arrived[kind]]
    jobs = left[RowKind.JOB].count + left[RowKind.ARCHIVED_JOB].count
    return {
        "jobs": jobs,
        "rows": sum(tally.count for tally in left.values()),
        "killed": killed,
        "seconds": round(seconds, 1),
        "jobs_per_second": round(jobs / seconds),
        "differences": differences,
    } | _undisturbed(report)


def _undisturbed(report: MoveReport) -> dict[str, Any]:
    return {"last_call_jobs_per_second": round(report.jobs_per_second)} if report.copied_jobs else {}


def _killed(source: str, target: str, alive: float) -> int:
    killed_within(alive)
    move(source, target)
    return 0


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guess", type=float, default=60.0, help="about how many seconds a move takes")
    parser.add_argument(
        "--pairs", default=",".join(f"{one}:{other}" for one in KINDS for other in KINDS if one != other)
    )
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers: dict[str, Any] = {}
        for number, pair in enumerate(given.pairs.split(",")):
            urls = []
            for side, kind in enumerate(pair.split(":")):
                if kind == "sqlite":
                    urls.append(f"sqlite:///{folder / f'{number}-{side}.db'}")
                    continue
                if kind not in servers:
                    servers[kind] = stack.enter_context(_SERVERS[kind]())
                urls.append(servers[kind].create_database())
            fill(urls[0], given.jobs)
            found = moved(urls[0], urls[1], given.kills, given.seed + number, given.guess)
            sys.stdout.write(json.dumps({"pair": pair, **found}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
