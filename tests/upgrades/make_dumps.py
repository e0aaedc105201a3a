"""
``python -m tests.upgrades.make_dumps``: run 0.1.0 on a new database of each kind, and dump what it leaves.

The dumps are in the repository; this is here to show how they came about. Names of this machine are taken out of them.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from bson import json_util
from pymongo import MongoClient

from tests.cluster.earlier import earlier_version, python
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.upgrades.restore import DUMPS, dump_of

MAIN = "from tests.upgrades import past; past.main()"


def _made(url: str, old: dict[str, str]) -> dict[str, Any]:
    # a node that is dead is found to be so quickly
    environment = {**old, "RATCHET_URL": url, "RATCHET_HEARTBEAT": "0.5", "RATCHET_SILENCE": "2"}
    made = python(environment, "-m", "ratchet", "db", "upgrade")
    assert made.returncode == 0, made.stderr
    done = python(environment, "-c", MAIN)
    assert done.returncode == 9, done.stdout + done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    for job in facts["jobs"].values():  # to keep the file small: what is not there is None
        for name in [name for name, value in job.items() if value is None]:
            del job[name]
    return facts


def _sqlite(url: str) -> str:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def _postgresql(url: str) -> str:
    text = _output("pg_dump", "--inserts", "--no-owner", "--no-privileges", f"--dbname={url}")
    lines = [line for line in text.splitlines() if line and not line.startswith(("--", "\\", "SET "))]
    return "\n".join(line for line in lines if "set_config('search_path'" not in line) + "\n"


def _mysql(url: str) -> str:
    parts = urlsplit(url)
    text = _output(
        "mariadb-dump", "--no-defaults", "--protocol=tcp", f"--host={parts.hostname}", f"--port={parts.port}", "--user=root",
        "--hex-blob", "--skip-comments", "--skip-add-locks", "--skip-extended-insert", parts.path.strip("/"),
    )  # fmt: skip
    # the sandbox mode that newer programs switch on is a command of their own shell
    return re.sub(r"^/\*M?!999999.*\n", "", text, flags=re.MULTILINE)


def _mongodb(url: str) -> str:
    with MongoClient[Any](url, uuidRepresentation="standard") as client:
        database = client.get_default_database()
        found = {
            name: {
                "indexes": [_plain(index) for index in database[name].list_indexes()],
                "documents": list(database[name].find()),
            }
            for name in sorted(database.list_collection_names())
        }
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, uuid_representation=4)
    return json_util.dumps(found, json_options=options, indent=1) + "\n"


def _plain(index: Any) -> dict[str, Any]:
    return {name: value for name, value in index.items() if name not in ("v", "ns")}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _anonymous(text: str, old: dict[str, str]) -> str:
    for path in old["PYTHONPATH"].split(os.pathsep):
        text = text.replace(path, "/srv/shop")
    return text.replace(socket.gethostname(), "host-1")


def main() -> None:
    DUMPS.mkdir(exist_ok=True)
    expected = {}
    with earlier_version() as old, tempfile.TemporaryDirectory() as folder:
        file = f"sqlite:///{Path(folder) / 'jobs.db'}"
        expected["sqlite"] = _made(file, old)
        dump_of("sqlite").write_text(_anonymous(_sqlite(file), old))
        for kind, server, dump in (
            ("postgresql", PostgreSQL(), _postgresql),
            ("mysql", MariaDB(), _mysql),
            ("mongodb", MongoDB(), _mongodb),
        ):
            with server:
                url = server.create_database()
                expected[kind] = _made(url, old)
                dump_of(kind).write_text(_anonymous(dump(url), old))
        text = json.dumps(expected, indent=1, sort_keys=True) + "\n"
        (DUMPS / "expected.json").write_text(_anonymous(text, old))


if __name__ == "__main__":
    try:
        main()
    except pytest.fail.Exception as missing:
        raise SystemExit(str(missing)) from None
