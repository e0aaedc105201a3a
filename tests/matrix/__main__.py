"""
``python -m tests.matrix [--stores sqlite,mysql] [ROW …]``: run rows one after the other, and write what came of them into the docs.

A row that cannot be had here (an interpreter that is not installed) is reported as such, never as passed. What fails beside others is run
once more, alone; what passes then is named as unsteady. A failure that the row explains is counted and shown with its reason; one that it explains and
that does not happen is reported too, for then the reason is not true.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.matrix.rows import ROWS, Row
from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import PostgreSQL
from tests.services.programs import find_program, unpack_wheel

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".matrix"
RESULTS = ROOT / "docs" / "reference" / "matrix.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
MARK = "<!-- written by make matrix -->"
COUNTS = re.compile(r"(\d+) (passed|skipped)")
#: More failures than these are not run again: then it is not the machine.
FEW = 10
SOME_FAILED = 1  # pytest's exit code


class Unavailable(Exception):
    """What a row needs is not on this machine."""


class OtherPostgreSQL(PostgreSQL):
    """A PostgreSQL of another version, from a wheel."""

    wheel = ""

    @classmethod
    def programs(cls) -> Path:
        return unpack_wheel(cls.name, cls.variable, cls.wheel, "initdb").parent


@contextmanager
def servers(row: Row) -> Iterator[tuple[dict[str, str], str]]:
    """The variables that lead the tests to the servers of a row, and what these say of themselves."""
    if row.postgresql is None and row.pool_mode is None:
        yield {}, ""
        return
    with ExitStack() as stack:
        kind: type[PostgreSQL] = PostgreSQL
        if row.postgresql is not None:
            kind = type("Chosen", (OtherPostgreSQL,), {"wheel": row.postgresql})
        server: PostgreSQL = stack.enter_context(kind(fsync=False))
        with psycopg.connect(server.url) as connection:
            (version,) = connection.execute("SHOW server_version").fetchone() or ("?",)
        about = f"PostgreSQL {version}"
        if row.pool_mode is not None:
            server = stack.enter_context(PgBouncer(upstream=server.url, mode=row.pool_mode))
            about += f", {_pooler()} in {row.pool_mode} mode"
        yield {PostgreSQL.variable: server.url}, about


def _pooler() -> str:
    """PgBouncer and its version."""
    said = subprocess.run(
        [find_program("pgbouncer") or "pgbouncer", "--version"], capture_output=True, text=True, check=True
    )
    return said.stdout.splitlines()[0]


def interpreter(row: Row) -> Path:
    """Python with everything that the row wants; that of `make venv` where it wants nothing special."""
    if row.python is None and not row.packages:
        return Path(sys.executable)
    wanted = row.python or f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ENVIRONMENTS / row.name
    python = folder / "bin" / "python"
    complete, packages = folder / ".complete", " ".join(row.packages)
    if not complete.exists() or complete.read_text() != packages:
        shutil.rmtree(folder, ignore_errors=True)
        _run(_base(wanted), "-m", "venv", str(folder))
        install = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        _run(*install, "-c", "constraints.txt", "hatchling", "editables")
        _run(*install, "-c", "constraints.txt", "--no-build-isolation", "-e", ".[dev]")
        if row.packages:
            _run(*install, *row.packages)
        complete.write_text(packages)
    return python


def _base(version: str) -> str:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    named = shutil.which(f"python{version}")
    if not found and named is None:
        raise Unavailable(f"there is no python{version} on this machine")
    return str(found[-1]) if found else str(named)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        # nothing of the command itself: it has paths of this machine
        raise Unavailable("what the row needs cannot be installed here")


def about_packages(python: Path, row: Row) -> str:
    """The versions that were really used."""
    names = ["psycopg", "PyMySQL", "pymongo", "msgspec", "cronsim", "typer", "rich"]
    code = (
        "import importlib.metadata as m, platform; "
        f"print('Python', platform.python_version(), *('%s %s' % (n, m.version(n)) for n in {names}), sep=', ')"
    )
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return said.replace("Python, ", "Python ", 1) if row.packages else said.split(", psycopg")[0].replace("Python, ", "Python ")  # fmt: skip


def run(row: Row) -> dict[str, Any]:
    """One row: what it was, and what came of it."""
    begun = time.monotonic()
    result: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat()}
    ENVIRONMENTS.mkdir(exist_ok=True)
    log = ENVIRONMENTS / f"{row.name}.log"
    try:
        python = interpreter(row)
        with servers(row) as (variables, about):
            result["with"] = ", ".join(filter(None, (about, about_packages(python, row))))
            together = ("-n", "2", "--dist", "loadfile")
            said = _pytest(python, variables, *together, *row.tests)
            log.write_text(said)
            failed = failed_tests(said)
            doubtful = sorted(failed - set(row.explained))
            if 0 < len(doubtful) <= FEW:
                again = _pytest(python, variables, *doubtful)
                log.write_text(f"{said}\n\n=== once more, alone\n\n{again}")
                result["unsteady"] = sorted(set(doubtful) - failed_tests(again))
                failed -= set(result["unsteady"])
    except Unavailable as missing:
        return {**result, "missing": str(missing)}
    counts = {word: int(number) for number, word in COUNTS.findall(said[-400:])}
    return {
        **result,
        "passed": counts.get("passed", 0) + len(result.get("unsteady", ())),
        "skipped": counts.get("skipped", 0),
        "failures": sorted(failed),
        "unexplained": sorted(failed - set(row.explained)),
        "did not fail": sorted(set(row.explained) - failed),
        "seconds": round(time.monotonic() - begun),
    }


def _pytest(python: Path, variables: dict[str, str], *arguments: str) -> str:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode and not (done.returncode == SOME_FAILED and failed_tests(done.stdout)):
        raise SystemExit(
            f"pytest did not come to its end ({done.returncode}):\n{done.stdout[-4000:]}{done.stderr}"
        )
    return done.stdout + done.stderr


def failed_tests(said: str) -> set[str]:
    """The tests that pytest names as failed."""
    return set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE))


def written(results: dict[str, dict[str, Any]]) -> str:
    """The table for the docs."""
    lines = ["| row | stores | with | passed | failed | on |", "|---|---|---|---|---|---|"]
    for row in ROWS:
        found = results.get(row.name)
        if found is None:
            lines.append(f"| `{row.name}` | {', '.join(row.stores)} | | not run | | |")
        elif "missing" in found:
            lines.append(f"| `{row.name}` | | {found['missing']} | not run | | {found['date']} |")
        else:
            stores = ", ".join(found.get("stores", row.stores))
            failed = str(len(found["failures"]))
            if found["failures"]:
                failed += f", {len(found.get('unexplained', found['failures']))} unexplained"
            if found.get("unsteady"):
                failed += f"; {len(found['unsteady'])} only beside others"
            lines.append(
                f"| `{row.name}` | {stores} | {found['with']} | {found['passed']} | {failed} | {found['date']} |"
            )
    remarks = [
        f"`{row.name}`: `{test}` fails. {reason}"
        for row in ROWS
        for test, reason in row.explained.items()
        if test in results.get(row.name, {}).get("failures", ())
    ]
    return "\n\n".join(["\n".join(lines), *remarks])


def main(names: list[str]) -> int:
    stores: tuple[str, ...] = ()
    if names[:1] == ["--stores"]:
        stores, names = tuple(names[1].split(",")), names[2:]
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(
            f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}"
        )
        return 2
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    bad = False
    for row in ROWS:
        if names and row.name not in names:
            continue
        print(f"{row.name} …", flush=True)
        chosen = replace(row, stores=stores) if stores else row
        results[row.name] = found = {**run(chosen), "stores": list(chosen.stores)}
        print(f"  {json.dumps(found)}", flush=True)
        bad |= bool(found.get("unexplained") or found.get("did not fail"))
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        before, mark, _ = PAGE.read_text().partition(MARK)
        PAGE.write_text(f"{before}{mark or MARK}\n\n{written(results)}\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
