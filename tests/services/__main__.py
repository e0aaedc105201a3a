"""Test servers from the command line: ``python -m tests.services up`` and ``install``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.services import chromium, mysqlclient
from tests.services.galera import GaleraNode
from tests.services.kinds import CLASSES, server_class
from tests.services.patroni import Patroni
from tests.services.server import ServerUnavailable
from tests.services.shared import SharedServers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run PostgreSQL, and the servers named, until interrupted")
    for kind in CLASSES:
        up.add_argument(f"--{kind}", dest="kinds", action="append_const", const=kind)
    commands.add_parser("install", help="install the servers and the browser, if they are missing")
    keep = commands.add_parser(
        "keep", help="used by the tests: run one server for as long as the test run lives"
    )
    keep.add_argument("directory", type=Path)
    keep.add_argument("kind", choices=CLASSES)
    keep.add_argument("arguments", nargs="*")
    chosen = parser.parse_args()
    try:
        match chosen.command:
            case "up":
                run_until_interrupted(chosen.kinds or [])
            case "install":
                install_missing()
            case "keep":
                SharedServers(chosen.directory).keep(
                    chosen.kind, dict(word.split("=", 1) for word in chosen.arguments)
                )
    except ServerUnavailable as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def run_until_interrupted(more: list[str]) -> None:
    """Print one export line for each server; standard output holds nothing else."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    with ExitStack() as servers:
        postgresql = servers.enter_context(server_class("postgresql")())
        print(f"export {postgresql.variable}={postgresql.url!r}", flush=True)
        for kind in dict.fromkeys(more):
            if kind == "postgresql":
                continue
            arguments = {"upstream": postgresql.url} if kind == "pgbouncer" else {}
            server = servers.enter_context(server_class(kind)(**arguments))
            print(f"export {server.variable}={server.url!r}", flush=True)
        print(f"Running as process {os.getpid()}; Ctrl-C stops the servers.", file=sys.stderr)
        while True:
            signal.pause()


def install_missing() -> None:
    """Install the programs of each server that the environment does not name, the driver that has to be built, and the browser."""
    for kind in CLASSES:
        server = server_class(kind)
        if server.variable not in os.environ:
            server.install()
    mysqlclient.install()
    Patroni.install()
    GaleraNode.install()
    chromium.install()


if __name__ == "__main__":
    sys.exit(main())
