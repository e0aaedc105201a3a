"""What one job costs: statements, round trips, rows, index entries, bytes of log, time in Python and on the server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.conversation import Process, wait_for
from bench.servers import Place, PostgresqlPlace
from bench.trial import Bench

STATEMENTS = """
    SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND (query LIKE '%scheduler_%' OR query LIKE 'BEGIN%' OR query LIKE 'COMMIT%' OR query LIKE 'SET LOCAL%')
"""
# 'BEGIN; SET LOCAL …' is one message and one round trip, but several statements
RECORDS = """
    SELECT coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" LIKE 'Btree/INSERT%%'), 0)
      FROM pg_get_wal_stats(%s, least(%s::pg_lsn, pg_current_wal_flush_lsn()), true)
"""
ROWS = "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables"
HOT = "SELECT coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables"


def count_per_job(bench: Bench) -> None:
    """Count for submissions one by one, in bulk, and for a drain; on PostgreSQL and on SQLite."""
    bench.results.tables["PostgreSQL, per job"] = _postgresql(bench)
    bench.results.tables["SQLite, per job"] = _sqlite(bench)


def _phases(bench: Bench) -> list[tuple[str, int, Callable[[Process], Any]]]:
    few, many = bench.size(1000), bench.size(20_000)
    return [
        ("submit one by one", few, lambda process: process.call("enqueue", jobs=few - 1)),
        ("submit in bulk", many, lambda process: process.call("bulk", jobs=many)),
        ("claim, run, complete", few + many, lambda process: process.call("begin")),
    ]


def _postgresql(bench: Bench) -> list[Mapping[str, Any]]:
    with ExitStack() as stack:
        _, place, process = bench.alone(stack)
        watch(place, process)
        return [count_phase(place, process, *phase) for phase in _phases(bench)]


def watch(place: PostgresqlPlace, process: Process) -> None:
    """Begin to count what *process* does on *place*."""
    place.connection.execute("CREATE EXTENSION pg_stat_statements")
    place.connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
    process.call("watch")
    process.call("bulk", jobs=10)


def count_phase(
    place: PostgresqlPlace, process: Process, name: str, jobs: int, work: Callable[[Process], Any]
) -> Mapping[str, Any]:
    """What each of *jobs* cost while *work* was done; where its name begins with "claim", until all have ended."""
    place.connection.execute("CHECKPOINT")
    before = _seen(place, process)
    ran = process.call("executed")
    work(process)
    if name.startswith("claim"):
        _wait(place, process, ran + jobs)
        process.call("end")
    process.call("release")  # a server process reports its statistics when it ends
    time.sleep(1)
    after = _seen(place, process)
    found = place.connection.execute(RECORDS, (before["lsn"], after["lsn"])).fetchone()
    entries = float(found[0]) if found is not None else 0.0
    change = {key: after[key] - before[key] for key in before if key != "lsn"}
    return {
        "phase": name,
        "statements": change["statements"] / jobs,
        "round trips": change["trips"] / jobs,
        "rows written": change["rows"] / jobs,
        "of these HOT": change["hot"] / jobs,
        "index entries": entries / jobs,
        "WAL bytes": change["wal"] / jobs,
        "Python µs": change["cpu"] / jobs * 1e6,
        "server µs": change["server"] / jobs * 1e6,
    }


def _wait(place: Place, process: Process, jobs: int) -> None:
    wait_for(lambda: process.call("executed") >= jobs, every=0.05)
    wait_for(lambda: not place.ask(process.facts["open"]), every=0.05)


def _seen(place: PostgresqlPlace, process: Process) -> dict[str, Any]:
    row = place.connection.execute(
        "SELECT pg_current_wal_lsn(), pg_current_wal_lsn() - '0/0'::pg_lsn"
    ).fetchone()
    assert row is not None
    return {
        "lsn": row[0],
        "wal": float(row[1]),
        "statements": float(place.ask(STATEMENTS)),
        "rows": float(place.ask(ROWS)),
        "hot": float(place.ask(HOT)),
        "trips": process.call("round_trips"),
        "cpu": process.call("usage")["cpu"],
        "server": _server_cpu(place),
    }


def _server_cpu(place: PostgresqlPlace) -> float:
    """CPU seconds of the server's processes, where it runs on this machine; else 0."""
    backend = Path(f"/proc/{place.ask('SELECT pg_backend_pid()')}")
    try:
        postmaster = _stat(backend)[1]
    except OSError:
        return 0.0
    ticks = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found = _stat(entry)
            except OSError:
                continue
            if entry.name == postmaster:
                ticks += sum(map(float, found[11:15]))  # its own and those of children that have ended
            elif found[1] == postmaster:
                ticks += sum(map(float, found[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(process: Path) -> list[str]:
    return (process / "stat").read_text().rsplit(")", 1)[1].split()


def _sqlite(bench: Bench) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    with ExitStack() as stack:
        place = stack.enter_context(bench.places["sqlite"].new())
        process = stack.enter_context(bench.contenders[0].start(place.url))
        process.call("watch")
        process.call("bulk", jobs=10)
        for name, jobs, work in _phases(bench):
            before = {**process.call("sqlite_counts"), "cpu": process.call("usage")["cpu"]}
            work(process)
            if name.startswith("claim"):
                _wait(place, process, jobs)
            after = {**process.call("sqlite_counts"), "cpu": process.call("usage")["cpu"]}
            change = {key: (after[key] - before[key]) / jobs for key in before}
            rows.append(
                {
                    "phase": name,
                    "statements": change["statements"],
                    "rows written": change["rows"],
                    "bytes written (log and checkpoints)": change["bytes"],
                    "Python and SQLite µs": change["cpu"] * 1e6,
                }
            )
        process.call("end")
    return rows
