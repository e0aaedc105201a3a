"""What the servers have in common: one process, one port, one data directory."""

from __future__ import annotations

import atexit
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

LEASH = Path(__file__).with_name("leash.py")
START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
DATABASE_PREFIX = "ratchet_"


class ServerUnavailable(Exception):
    """A server that the tests need cannot be had; the message names the command that fixes it."""


class Server:
    """
    One server: a private instance, or with *url* one that somebody else runs.

    A private instance keeps its port and its data through ``stop``, ``kill`` and ``restart``;
    ``close`` removes them. It cannot outlive the process that started it, however that one ends.
    """

    name: ClassVar[str]
    variable: ClassVar[str]
    users: ClassVar[tuple[str, ...]] = ("nobody",)
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, url: str | None = None) -> None:
        self.private = url is None
        self.url = url or ""
        self.port = 0
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @classmethod
    def resolve(cls) -> Self:
        """The server named in the environment, else a private one; not started yet."""
        return cls(os.environ.get(cls.variable))

    # What each server answers for itself.

    @classmethod
    def install(cls) -> None:
        """Make sure that the programs are there, or raise `ServerUnavailable`."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Fill the empty data directory, before the first start."""

    def command(self) -> list[str]:
        """The command line that runs the server in the foreground."""
        raise NotImplementedError

    def private_url(self) -> str:
        """The URL of the private instance on its port."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether the server is ready for work; completes its set-up when it can."""
        raise NotImplementedError

    def create_database(self) -> str:
        """The URL of a new, empty database with a name of its own."""
        raise NotImplementedError

    def drop_database(self, url: str) -> None:
        """Remove a database that `create_database` made, also while others are connected."""
        raise NotImplementedError

    # The life of the process.

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._own_process().pid

    def start(self) -> Self:
        """Start and wait until the server answers; on a server given by URL, only wait."""
        if not self.private:
            self._wait_until_it_answers()
            return self
        if self.running:
            return self
        if not self.port:
            self.install()
            self._settle()
        self._launch()
        self._wait_until_it_answers()
        return self

    def stop(self) -> None:
        """End the server in its orderly way; the data stays."""
        if self._process is None:
            return
        process = self._own_process()
        if process.poll() is None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._kill_family()
        self._forget()

    def restart(self) -> None:
        """Stop in the orderly way and start again on the same port and data."""
        self._own_process()
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the server as a power cut would (SIGKILL to it and to its children); `start` recovers it."""
        self._own_process()
        self._kill_family()
        self._forget()

    def close(self) -> None:
        """Stop and remove the data."""
        if not self.private or os.getpid() != self._owner:  # a forked child must not end its parent's server
            return
        self.stop()
        if self.port:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.port = 0
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Means for the subclasses.

    def run(self, command: list[str]) -> None:
        """Run one preparing command as the server's user."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **self._identity(),
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            raise ServerUnavailable(
                f"{self.name}: {' '.join(command)} failed with {done.returncode}:\n{output}"
            )

    def log_tail(self) -> str:
        """The last lines the server wrote."""
        log = self.directory / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-30:]) if log.exists() else "(no log)"

    # The rest is private.

    def _own_process(self) -> subprocess.Popen[bytes]:
        if not self.private:
            raise RuntimeError(
                f"{self.name} at {self.url} was not started here; take a private one: {type(self).__name__}()"
            )
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running; call start() first")
        return self._process

    def _settle(self) -> None:
        """Take a directory and a port, once; everything later happens there."""
        self.directory = Path(tempfile.mkdtemp(prefix=f"ratchet-{self.name.lower()}-"))
        self.port = free_port()
        self.url = self.private_url()
        if account := self._account():
            os.chown(self.directory, account.pw_uid, account.pw_gid)
        atexit.register(self.close)
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise

    def _launch(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the test run; it ends the servers in order
                **self._identity(),
            )
        self._leash = subprocess.Popen(
            [sys.executable, str(LEASH), str(self._process.pid), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if self.private and not self.running:
                log = self.log_tail()
                self._forget()
                raise ServerUnavailable(
                    f"{self.name} ended while it started. Its log in {self.directory}:\n{log}"
                )
            if time.monotonic() > deadline:
                where = f"Its log:\n{self.log_tail()}" if self.private else f"Is {self.variable} right?"
                raise ServerUnavailable(
                    f"{self.name} at {self.url} did not answer for {START_TIMEOUT:.0f} s. {where}"
                )
            time.sleep(0.02)

    def _kill_family(self) -> None:
        process = self._own_process()
        family = [process.pid, *children_of(process.pid)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # ended by itself in between
        process.wait()
        while any(map(is_alive, family)):  # PostgreSQL refuses to start while a child holds its memory
            time.sleep(0.005)

    def _forget(self) -> None:
        if self._leash is not None and self._leash.stdin is not None:
            try:
                self._leash.stdin.write(b"free")  # without this word the leash would kill on release
                self._leash.stdin.close()
            except BrokenPipeError:
                pass
            self._leash.wait()
        self._leash = None
        self._process = None

    def _account(self) -> pwd.struct_passwd | None:
        """The unprivileged account to run as; None when this process has no privileges to drop."""
        if os.geteuid() != 0:
            return None
        for user in (*self.users, "nobody"):
            try:
                return pwd.getpwnam(user)
            except KeyError:
                continue
        raise ServerUnavailable(
            f"{self.name} must not run as root. Create a user: useradd --system {self.users[0]}"
        )

    def _identity(self) -> dict[str, Any]:
        account = self._account()
        return (
            {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.directory),
            "LC_ALL": "C",
            "TZ": "UTC",
        }


def free_port() -> int:
    """
    A loopback port nobody listens on.

    Taken below the range for outgoing connections: while the server is down for a crash test, no
    client may be given its port as a local one, nor connect to itself on it.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def children_of(pid: int) -> list[int]:
    """The direct children; empty where there is no /proc to read."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended in between
        if int(fields[1]) == pid:
            children.append(int(stat.parent.name))
    return children


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except (FileNotFoundError, PermissionError):
        return not Path("/proc/self").exists()  # without /proc, the signal's answer stands


def database_name() -> str:
    """A name that no other test run on the same server uses."""
    return DATABASE_PREFIX + uuid.uuid4().hex[:16]


def with_database(url: str, name: str) -> str:
    """The same URL, for another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def made_here(url: str) -> str:
    """The database's name, refused unless `create_database` made it: given servers hold other people's data."""
    name = urlsplit(url).path.removeprefix("/")
    if not name.startswith(DATABASE_PREFIX):
        raise ValueError(f"database {name!r} was not made by create_database(); it is not dropped")
    return name
