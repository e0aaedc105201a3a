"""What an idle worker holds and asks, how soon a worker takes jobs, and what a short command costs."""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from bench.conversation import ROOT, Contender, wait_for
from bench.servers import PostgresqlPlace
from bench.sizing import ASKED
from bench.trial import Bench

APP = "bench.idle"
IMPORT = "from ratchet import Scheduler"
SUBMIT = "from bench.idle import nothing, scheduler; scheduler.enqueue_now(nothing)"
#: Seconds that a worker gets until connections that it needed for its start are closed, and how long it is watched then.
SETTLED, WATCHED = 35.0, 20.0
CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
TICKS = os.sysconf("SC_CLK_TCK")


def footprint(bench: Bench) -> None:
    """A worker on PostgreSQL with the default options, and the commands of a shell; of each contender that is Ratchet."""
    rows: list[dict[str, Any]] = []
    for contender in bench.contenders:
        if not contender.name.startswith("ratchet"):
            continue
        bench.say(contender.name)
        with ExitStack() as stack:
            place = stack.enter_context(bench.places["postgresql"].new())
            assert isinstance(place, PostgresqlPlace)
            place.connection.execute("CREATE EXTENSION pg_stat_statements")
            found = _measure(place, contender, bench.rounds)
        if not rows:
            rows = [{"of": name} for name in found]
        for row, value in zip(rows, found.values(), strict=True):
            row[contender.name] = value
    bench.results.tables["Footprint"] = rows


def _measure(place: PostgresqlPlace, contender: Contender, rounds: int) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{contender.tree / 'src'}{os.pathsep}{ROOT}",
        "PYTHONPYCACHEPREFIX": str(contender.tree / "build" / "bytecode"),  # as if it were installed
        "PYTHONDONTWRITEBYTECODE": "",
        "RATCHET_URL": place.url,
    }
    ratchet = [sys.executable, "-m", "ratchet"]
    _run([*ratchet, "db", "upgrade"], environment)
    _run([sys.executable, "-c", SUBMIT], environment)
    commands: Mapping[str, Sequence[str]] = {
        "import, s of CPU": [sys.executable, "-c", IMPORT],
        "jobs list, s of CPU": [*ratchet, "jobs", "list"],
    }
    found: dict[str, Any] = {}
    for name, command in commands.items():
        _run(command, environment)  # writes the bytecode
        found[name] = statistics.median(_run(command, environment) for _ in range(rounds))
    with _worker(place, environment):
        pass  # the same
    begun = []
    for _ in range(rounds):
        _run([sys.executable, "-c", SUBMIT], environment)
        with _worker(place, environment) as (_, took):
            begun.append(took)
    found["worker until its first job has ended, s"] = statistics.median(begun)
    with _worker(place, environment) as (worker, _):
        found |= _watch(place, worker)
    found["packages of the base install"] = len(_needed("ratchet-jobs"))
    return found


def _run(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Seconds of CPU that *command* has taken."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=dict(environment), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


@contextmanager
def _worker(
    place: PostgresqlPlace, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A worker that has run all jobs, and how many seconds after its start that was."""
    begun = time.perf_counter()
    worker = subprocess.Popen(
        [sys.executable, "-m", "ratchet", "worker", APP],
        env=dict(environment),
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: not place.ask("SELECT EXISTS (SELECT 1 FROM scheduler_job_queue)"))
        yield worker, time.perf_counter() - begun
    finally:
        worker.terminate()
        worker.wait(60)


def _watch(place: PostgresqlPlace, worker: subprocess.Popen[bytes]) -> dict[str, Any]:
    time.sleep(SETTLED)
    processes = [worker.pid, *_children(worker.pid)]
    asked, ticks = place.ask(ASKED), sum(map(_ticks, processes))
    time.sleep(WATCHED)
    return {
        "threads of an idle worker": sum(_status(pid, "Threads") for pid in processes),
        "its connections": place.ask(CONNECTIONS),
        "its resident memory, MB": round(sum(_status(pid, "VmRSS") for pid in processes) / 1024),
        "the same, shared pages once": round(sum(map(_proportional, processes)) / 1024),
        "its statements per second": float(place.ask(ASKED) - asked) / WATCHED,
        "its CPU, %": 100 * (sum(map(_ticks, processes)) - ticks) / TICKS / WATCHED,
    }


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def _status(pid: int, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return 0 if found is None else int(found[1])


def _proportional(pid: int) -> int:
    found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return 0 if found is None else int(found[1])


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def _needed(package: str, found: dict[str, None] | None = None) -> dict[str, None]:
    """What pip installs for *package* without extras, as this environment has it; the package itself among it."""
    found = {} if found is None else found
    name = package.lower().replace("_", "-")
    if name in found:
        return found
    found[name] = None
    try:
        wanted = requires(name) or []
    except PackageNotFoundError:
        wanted = []
    for requirement in wanted:
        what, _, marker = requirement.partition(";")
        if not marker or ("extra" not in marker and "Windows" not in marker and "win32" not in marker):
            match = re.match(r"[A-Za-z0-9._-]+", what)
            if match is not None:
                _needed(match[0], found)
    return found
