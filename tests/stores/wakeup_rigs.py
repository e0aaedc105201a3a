"""Servers, processes and listeners for the tests of wakeups."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from ratchet.defaults.redis_coordinator import RedisCoordinator
from ratchet.spi.broadcast import BroadcastCoordinator
from ratchet.stores.sql.dialects.postgresql.wakeups import postgresql_wakeups
from ratchet.stores.sql.dialects.sqlite.wakeups import SqliteWakeups
from tests.services.postgresql import PostgreSQL
from tests.services.redis import Redis
from tests.services.server import free_port
from tests.support.waiting import until

log = logging.getLogger(__name__)

C = TypeVar("C", BroadcastCoordinator, SqliteWakeups)

TABLE = "CREATE TABLE scheduler_job_queue (job_id text)"


class Heard:
    """A listener that remembers when it was called."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.times.append(time.monotonic())
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self.times)

    def within(self, seconds: float, *, after: int) -> bool:
        """True once it was called more than *after* times, False if not within *seconds*."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.times) > after, seconds)


@contextmanager
def listening(coordinator: C) -> Iterator[tuple[C, Heard]]:
    """The coordinator, connected, and a listener that has been called at least once."""
    heard = Heard()
    coordinator.register_wakeup_listener(heard)
    coordinator.start()
    try:
        until(lambda: coordinator.connected and len(heard) > 0)
        yield coordinator, heard
    finally:
        coordinator.stop()


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that runs *code*."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """What a process has written, once it has ended well."""
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert errors == ""
    return output


def latencies(sent: list[float], heard: list[float]) -> tuple[float, float]:
    """Median and 99th percentile, in milliseconds, of the time from each sending to the next hearing."""
    found = []
    for at in sent:
        later = [time_ for time_ in heard if time_ >= at]
        assert later, "a message was never heard"
        found.append((later[0] - at) * 1000)
    return statistics.median(found), statistics.quantiles(found, n=100)[98]


@contextmanager
def threads_end() -> Iterator[None]:
    """Whatever a test does, stop() ends the threads."""
    yield
    until(lambda: not waking_threads(), 5, "threads for wakeups are left")


def waking_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ratchet-wakeups")]


class Proxy:
    """A TCP proxy that can fall silent without closing anything."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = free_port()
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen: set[socket.socket] = set()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def freeze(self) -> None:
        """Let nothing through any more on the connections there are; new ones work."""
        self._frozen |= {end for pair in self._pairs for end in pair}

    def close(self) -> None:
        self._over = True
        self._thread.join()
        for end in [self._listening, *(end for pair in self._pairs for end in pair)]:
            end.close()

    @staticmethod
    def _readable(ends: list[socket.socket]) -> list[Any]:
        # Not select(): a process that has run thousands of tests may have descriptors beyond its range.
        with selectors.DefaultSelector() as selector:
            for end in ends:
                selector.register(end, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(0.02)]

    def _run(self) -> None:
        while not self._over:
            other = {end: peer for pair in self._pairs for end, peer in (pair, pair[::-1])}
            open_ends = [end for end in other if end.fileno() >= 0 and end not in self._frozen]
            for end in self._readable([self._listening, *open_ends]):
                if end is self._listening:
                    client = self._listening.accept()[0]
                    self._pairs.append((client, socket.create_connection(("127.0.0.1", self._target))))
                elif data := end.recv(65536):
                    other[end].sendall(data)
                else:
                    end.close()
                    other[end].close()


class Rig:
    """A private server, and coordinators on it in this and in other processes."""

    server: PostgreSQL | Redis
    build: str  # the source of a function `make(url)`

    def make(self, url: str | None = None, **settings: Any) -> BroadcastCoordinator:
        raise NotImplementedError

    def connections(self) -> int:
        """How many connections the server has besides the one that asks."""
        raise NotImplementedError

    @contextmanager
    def listening(self, **settings: Any) -> Iterator[tuple[BroadcastCoordinator, Heard]]:
        """A coordinator that is connected, and its listener, which has been called at least once."""
        with listening(self.make(**settings)) as found:
            yield found

    @contextmanager
    def sending(self, **settings: Any) -> Iterator[BroadcastCoordinator]:
        """A coordinator that was not started, as in a process that only submits."""
        coordinator = self.make(**settings)
        try:
            yield coordinator
        finally:
            coordinator.stop()


class PostgresqlRig(Rig):
    build = (
        "from ratchet.stores.sql.dialects.postgresql.wakeups import postgresql_wakeups as make\n"
        "from ratchet.model.status import Priority\n"
    )

    def __init__(self) -> None:
        self.server = PostgreSQL(fsync=False).start()
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(TABLE)

    def make(self, url: str | None = None, **settings: Any) -> BroadcastCoordinator:
        return postgresql_wakeups(url or self.server.url, **settings)

    def connections(self) -> int:
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchone()
        return int(row[0]) if row else 0


class RedisRig(Rig):
    build = (
        "from ratchet.defaults.redis_coordinator import RedisCoordinator as make\n"
        "from ratchet.model.status import Priority\n"
    )

    def __init__(self) -> None:
        self.server = Redis().start()

    def make(self, url: str | None = None, **settings: Any) -> BroadcastCoordinator:
        return RedisCoordinator(url or self.server.url, **settings)

    def connections(self) -> int:
        import redis

        with redis.Redis.from_url(self.server.url) as client:
            return len(client.client_list()) - 1


def forked(work: Callable[[], bool]) -> int:
    """The exit status of a forked child that does *work*: 0 if that was true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def repeating(work: Callable[[], None]) -> Iterator[None]:
    """Do *work* every few milliseconds on another thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.02):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
