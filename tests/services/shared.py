"""The servers that all tests of one run share, also across pytest-xdist's workers."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.services.kinds import server_class
from tests.services.server import Server, ServerUnavailable, is_alive

RUN_DIRECTORY = "RATCHET_TEST_RUN_DIRECTORY"
ROOT = Path(__file__).parents[2]


class SharedServers:
    """
    Starts each server when the first test asks for it, once for all workers.

    No worker may own a server, because workers end at different times. Each server belongs to a
    keeper, a process of its own, which ends when told so or when the whole run is gone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def begin(cls) -> SharedServers:
        """Called by the run's first process; the others find the directory in their environment."""
        servers = cls(Path(tempfile.mkdtemp(prefix="ratchet-run-")))
        (servers.directory / "controller").write_text(str(os.getpid()))
        os.environ[RUN_DIRECTORY] = str(servers.directory)
        return servers

    @classmethod
    def current(cls) -> SharedServers:
        return cls(Path(os.environ[RUN_DIRECTORY]))

    def get(self, kind: str, **arguments: str) -> Any:
        """The running server of this kind, as one that is given by URL."""
        named = server_class(kind).resolve()
        if not named.private:
            return named.start()
        with (self.directory / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._file(kind, "url").exists():
                self._start_keeper(kind, arguments)
        return server_class(kind)(self._file(kind, "url").read_text())

    def end(self) -> None:
        """End all keepers, and with them the servers."""
        keepers = [int(file.read_text()) for file in self.directory.glob("*.pid")]
        for keeper in keepers:
            try:
                os.kill(keeper, signal.SIGTERM)
            except ProcessLookupError:
                pass  # it failed to start
        deadline = time.monotonic() + 30
        while any(map(is_alive, keepers)) and time.monotonic() < deadline:
            time.sleep(0.02)
        shutil.rmtree(self.directory, ignore_errors=True)
        os.environ.pop(RUN_DIRECTORY, None)

    def keep(self, kind: str, arguments: dict[str, str]) -> None:
        """The life of a keeper: run the server until the run is over."""
        controller = int((self.directory / "controller").read_text())
        # pytest's own process must get the signal that ends the run, its keepers the one that follows.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server: Server = server_class(kind)(**arguments)
        with server:
            new = self._file(kind, "new")
            new.write_text(server.url)
            new.rename(self._file(kind, "url"))  # whole or not at all: the others wait for this file
            while is_alive(controller):
                time.sleep(0.5)
        shutil.rmtree(self.directory, ignore_errors=True)  # the controller died and cannot do it

    def _start_keeper(self, kind: str, arguments: dict[str, str]) -> None:
        log = self._file(kind, "log")
        if log.exists():  # another worker has tried: one attempt is enough for a run
            raise ServerUnavailable(log.read_text())
        with log.open("w") as output:
            words = [f"{name}={value}" for name, value in arguments.items()]
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.services", "keep", str(self.directory), kind, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._file(kind, "pid").write_text(str(keeper.pid))
        while not self._file(kind, "url").exists():
            if keeper.poll() is not None:
                raise ServerUnavailable(log.read_text())
            time.sleep(0.02)
        keeper.returncode = 0  # it stays behind on purpose: no ResourceWarning

    def _file(self, kind: str, suffix: str) -> Path:
        return self.directory / f"{kind}.{suffix}"
