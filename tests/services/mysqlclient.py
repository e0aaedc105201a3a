"""
mysqlclient for the tests. It has no wheels for Linux: it is built once, against the headers of MariaDB's client library.

It is not in the development environment, so that ``make venv`` needs no compiler.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.services.programs import cache_directory, find_program, install_packages, installation
from tests.services.server import ServerUnavailable

VERSION = "2.3.1"
PACKAGES = ("libmariadb-dev", "gcc", "libc6-dev", "pkg-config")


def folder() -> Path:
    """Where it is kept, for this version of Python: for ``PYTHONPATH`` and ``sys.path``."""
    return cache_directory() / f"mysqlclient-{VERSION}-{sys.implementation.cache_tag}"


def install() -> None:
    """Build it, if it is not there yet; without root, the error says what to run."""
    if (folder() / ".complete").exists():
        return
    if not (find_program("mariadb_config") and find_program("gcc") and find_program("pkg-config")):
        install_packages("mysqlclient's headers", "nothing", *PACKAGES)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--upgrade",
        "--target",
        str(folder()),
    ]
    command.append(f"mysqlclient=={VERSION}")
    with installation():
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise ServerUnavailable(
                f"mysqlclient could not be built:\n{done.stdout}\nRun: {' '.join(command)}"
            )
        (folder() / ".complete").touch()


@cache
def mysqldb() -> Any:
    """The module ``MySQLdb``."""
    install()
    if str(folder()) not in sys.path:
        sys.path.append(str(folder()))
    return import_module("MySQLdb")
