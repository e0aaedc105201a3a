"""
How long a move of many jobs takes, killed on the way, and whether both sides are equal at the end and every job has run once.

    python -m bench.moves --jobs 200000 --kills 10 --pairs sqlite:postgresql,mongodb:mysql

Servers are those of the tests. The jobs are copies of a small store with everything in it (`tests/moves/samples.py`): all states, batches, edges,
signals, keys, schedules, history, audit, archive. Beside them a worker runs jobs of one queue on the source until it is fenced off; at the
end another one runs what is left of them on the target, and a file says how often each has run. After each kill another process
looks from which side a job can be claimed: never from the target. Each pair prints one line of JSON; what is wrong ends the command with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from ratchet import ManualClock, Options, Scheduler
from ratchet.model.moves import FIELDS, MoveState, NeutralRow, RowKind
from ratchet.moving import move
from ratchet.moving.copying import tallies_of
from ratchet.stores import open_store
from tests.moves import live_jobs, samples
from tests.moves.killing import claimable, forked, killed_within
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL

KINDS = ("sqlite", "postgresql", "mysql", "mongodb")
_SERVERS = {"postgresql": PostgreSQL, "mysql": MariaDB, "mongodb": MongoDB}
_PORTION = 2000
#: Kinds whose keys belong to the whole store: there is one copy of them.
_ONCE = (RowKind.QUEUE, RowKind.LIMIT, RowKind.BREAKER, RowKind.FLOW)
#: Texts that are a key, or part of one.
_KEYS = {"idempotency_key", "business_key", "signal_key", "schedule"}
#: Jobs that are really run, and the queue they are in.
_LIVE, _QUEUE = 1000, "live"
#: Jobs that move in a second, roughly: when to kill.
_GUESS = 900


def copies(rows: dict[RowKind, list[NeutralRow]], count: int) -> Iterator[tuple[RowKind, list[NeutralRow]]]:
    """Portions of rows: a store so many times, until it has so many jobs, each copy with ids and keys of its own."""
    for kind in _ONCE:
        yield kind, rows[kind]
    jobs = len(rows[RowKind.JOB]) + len(rows[RowKind.ARCHIVED_JOB])
    for kind in RowKind:
        if kind in _ONCE:
            continue
        portion: list[NeutralRow] = []
        for number in range(-(-count // jobs)):
            portion += [_copied(kind, row, number) for row in rows[kind]]
            if len(portion) >= _PORTION:
                yield kind, portion
                portion = []
        yield kind, portion


def _copied(kind: RowKind, row: NeutralRow, number: int) -> NeutralRow:
    found = dict(row)
    for field in FIELDS[kind]:
        value = row.get(field.name)
        if isinstance(value, UUID):
            found[field.name] = UUID(int=value.int ^ number)  # the time in it stays, and so does the order
        elif isinstance(value, str) and number:
            is_name = (kind is RowKind.SIGNAL and field.name == "key") or (
                kind is RowKind.SCHEDULE and field.name == "name"
            )
            if is_name or field.name in _KEYS:
                found[field.name] = f"{value}~{number}"
    if kind is RowKind.SCHEDULE and number:
        found["paused"] = True
    return found


def fill(url: str, count: int, ledger: str) -> int:
    """A store with everything in it, many times, and jobs to be run."""
    with tempfile.TemporaryDirectory() as folder:
        small: Any = open_store(f"sqlite:///{folder}/small.db", Options())
        # it ends now, so that nothing is overdue
        samples.fill(small, ManualClock(datetime.now(UTC) - timedelta(days=40, minutes=7)))
        rows = {kind: small.neutral_rows(kind, limit=10_000) for kind in RowKind}
        small.close()
    store: Any = open_store(url, Options())
    store.migrate()
    for kind, portion in copies(rows, count):
        store.put_rows(kind, portion)
    store.close()
    scheduler = Scheduler(url, allow=["tests.moves"])
    scheduler.submit_all(
        scheduler.enqueue(live_jobs.noted, ledger, number).with_queue(_QUEUE) for number in range(_LIVE)
    )
    scheduler.close()
    return 0


def work(url: str) -> int:
    """Run the live jobs of a store until this process is told to stop."""
    options = Options(concurrency=4, queues=(_QUEUE,))
    scheduler = Scheduler(url, allow=["tests.moves"], options=options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    scheduler.start()
    while True:
        time.sleep(0.2)


def begun(url: str) -> int:
    """A worker of its own; its process."""
    child = os.fork()
    if child == 0:
        try:
            work(url)
        finally:
            os._exit(0)
    return child


def runs(ledger: str) -> Counter[str]:
    """How often each live job has run."""
    path = Path(ledger)
    return Counter(path.read_text().split()) if path.exists() else Counter()


def moved(source: str, target: str, ledger: str, kills: int, seed: int, guess: float) -> dict[str, Any]:
    """Kill a move so many times, at moments all over its length, and let it end; then compare, and run what is left."""
    chance, killed, seen = random.Random(seed), 0, 0
    worker = begun(source)
    while not runs(ledger):
        time.sleep(0.05)
    began = time.monotonic()
    for _ in range(kills):
        alive = chance.uniform(0.05, 1.4 * guess / max(kills, 1))
        code = forked(lambda alive=alive: _killed(source, target, alive))  # type: ignore[misc]
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"a try ended with {code}")
        if code == 0:
            break
        killed += 1
        looking = time.monotonic()
        seen += forked(lambda: too_early(source, target))
        began += time.monotonic() - looking
    here_before = len(runs(ledger))
    if forked(lambda: int(bool(move(source, target).dry_run))):
        raise SystemExit("the last try has failed")
    seconds = time.monotonic() - began
    found = {"killed": killed, "seconds": round(seconds, 1), "ran_on_source": here_before}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        forked(lambda: _compared(source, target, path))
        compared = json.loads(path.read_text())
    os.kill(worker, signal.SIGTERM)
    os.waitpid(worker, 0)
    worker = begun(target)
    give_up = time.monotonic() + 300
    while len(runs(ledger)) < _LIVE and time.monotonic() < give_up:
        time.sleep(0.2)
    time.sleep(1)  # a second run would come now
    os.kill(worker, signal.SIGTERM)
    os.waitpid(worker, 0)
    again = runs(ledger)
    return (
        compared
        | found
        | {
            "jobs_per_second": round(compared["jobs"] / seconds),
            "claimable_too_early": seen,
            "not_run": _LIVE - len(again),
            "run_twice": sum(times > 1 for times in again.values()),
        }
    )


def too_early(source: str, target: str) -> int:
    """1 if a job of the target can be claimed although the source has not been given up."""
    store: Any = open_store(source, Options())
    record = store.move_record()
    store.close()
    return 0 if record is not None and record.state is MoveState.MOVED else claimable(target)


def _compared(source: str, target: str, path: Path) -> int:
    left, arrived = {}, {}
    for url, found in ((source, left), (target, arrived)):
        store: Any = open_store(url, Options())
        found |= tallies_of(store)
        store.close()
    differences = [
        kind.value for kind in RowKind if kind is not RowKind.AUDIT and left[kind] != arrived[kind]
    ]
    jobs = left[RowKind.JOB].count + left[RowKind.ARCHIVED_JOB].count
    rows = sum(tally.count for tally in left.values())
    # the move itself writes one entry on its target, and so did whoever made the tables
    if not 0 <= arrived[RowKind.AUDIT].count - left[RowKind.AUDIT].count <= 2:
        differences.append("audit")
    empty = [kind.value for kind in RowKind if not left[kind].count]
    path.write_text(json.dumps({"jobs": jobs, "rows": rows, "differences": differences, "empty": empty}))
    return 0


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
    parser.add_argument("--guess", type=float, help="about how many seconds a move takes")
    parser.add_argument(
        "--pairs", default=",".join(f"{one}:{other}" for one in KINDS for other in KINDS if one != other)
    )
    given = parser.parse_args()
    wrong = False
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
            ledger = str(folder / f"{number}.ledger")
            if forked(lambda urls=urls, ledger=ledger: fill(urls[0], given.jobs, ledger)):  # type: ignore[misc]
                raise SystemExit("the source could not be filled")
            guess = given.guess or given.jobs / _GUESS
            found = moved(urls[0], urls[1], ledger, given.kills, given.seed + number, guess)
            sys.stdout.write(json.dumps({"pair": pair, **found}) + "\n")
            sys.stdout.flush()
            for url, kind in zip(urls, pair.split(":"), strict=True):
                if kind in servers:
                    servers[kind].drop_database(url)
            wrong |= any(
                found[name]
                for name in ("differences", "empty", "claimable_too_early", "not_run", "run_twice")
            )
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
