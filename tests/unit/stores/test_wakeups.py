"""How processes wake each other: LISTEN/NOTIFY, Redis, and SQLite's data_version, all against the real thing."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ratchet.defaults import redis_coordinator as redis_module
from ratchet.defaults.redis_coordinator import RedisCoordinator
from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.status import Priority
from ratchet.spi import broadcast
from ratchet.spi.broadcast import BroadcastCoordinator
from ratchet.stores.memory.store import MemoryStore
from ratchet.stores.sql.dialects.postgresql import PostgresqlDialect
from ratchet.stores.sql.store import open_store
from ratchet.stores.sql.wakeups import postgresql as postgresql_module
from ratchet.stores.sql.wakeups import sqlite as sqlite_module
from ratchet.stores.sql.wakeups.postgresql import notify_within, postgresql_wakeups
from ratchet.stores.sql.wakeups.sqlite import SqliteWakeups
from tests.services.pgbouncer import CONFIGURATION, PgBouncer
from tests.services.postgresql import PostgreSQL
from tests.services.redis import Redis
from tests.services.server import free_port, with_database

log = logging.getLogger(__name__)

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


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait for *condition*; whether it came true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


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


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Whatever a test does, stop() ends the threads."""
    yield
    assert until(lambda: not waking_threads(), 5), waking_threads()


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
        coordinator, heard = self.make(**settings), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        try:
            assert until(lambda: coordinator.connected and len(heard) > 0)
            yield coordinator, heard
        finally:
            coordinator.stop()

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
        "from ratchet.stores.sql.wakeups.postgresql import postgresql_wakeups as make\n"
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


@pytest.fixture(scope="module", params=[PostgresqlRig, RedisRig], ids=["postgresql", "redis"])
def owned(request: pytest.FixtureRequest) -> Iterator[Rig]:
    rig: Rig = request.param()
    yield rig
    rig.server.close()


@pytest.fixture
def rig(owned: Rig) -> Rig:
    """A running server that the test may stop."""
    owned.server.start()
    return owned


class TestBroadcast:
    """What holds for every medium."""

    def test_a_process_that_submits_and_ends_at_once_is_heard(self, rig: Rig) -> None:
        """The message of another process arrives, although that process ends right after asking for it."""
        with rig.listening() as (_, heard):
            before = len(heard)
            code = rig.build + "import sys; make(sys.argv[1]).notify_new_work(Priority.NORMAL)"
            finished(python(code, rig.server.url))
            assert heard.within(5, after=before)

    def test_messages_cross_processes_in_milliseconds(self, rig: Rig) -> None:
        """From notify_new_work in one process to the listener in another: 5 ms in the middle on a quiet machine."""
        code = rig.build + (
            "import sys, time\n"
            "coordinator = make(sys.argv[1])\n"
            "for _ in range(100):\n"
            "    print(time.monotonic(), flush=True)\n"
            "    coordinator.notify_new_work(Priority.NORMAL)\n"
            "    time.sleep(0.02)\n"
        )
        with rig.listening() as (_, heard):
            sent = [float(line) for line in finished(python(code, rig.server.url)).split()]
            assert until(lambda: heard.times[-1] >= sent[-1])
            middle, slow = latencies(sent[1:], heard.times)
        log.info("latency: p50 %.2f ms, p99 %.2f ms", middle, slow)
        assert middle < 20  # 5 on a quiet machine; this one may be busy

    def test_a_burst_is_few_messages_and_the_last_submission_is_told(self, rig: Rig) -> None:
        """10,000 calls take no time and wake others a few times; one wakeup comes after the last call."""
        with rig.listening() as (_, heard), rig.sending() as sender:
            before, began = len(heard), time.monotonic()
            for _ in range(10_000):
                sender.notify_new_work(Priority.NORMAL)
            ended = time.monotonic()
            assert until(lambda: heard.times[-1] >= ended)
            time.sleep(0.05)
            assert len(heard) - before <= (ended - began) / broadcast.GAP + 3
            assert ended - began < 2

    def test_own_messages_are_no_news(self, rig: Rig) -> None:
        """A node that submits wakes the others; its own poller has been woken directly."""
        with rig.listening() as (first, heard_first), rig.listening() as (_, heard_second):
            before = len(heard_first), len(heard_second)
            first.notify_new_work(Priority.NORMAL)
            assert heard_second.within(5, after=before[1])
            time.sleep(0.1)
            assert len(heard_first) == before[0]

    def test_it_survives_a_restart_of_the_server(self, rig: Rig) -> None:
        """Listeners are called when the connection is lost and when it is back; then messages arrive again."""
        with rig.listening() as (coordinator, heard), rig.sending() as sender:
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(5, after=before)
            time.sleep(0.1)
            before = len(heard)
            rig.server.stop()
            assert heard.within(10, after=before)
            assert not coordinator.connected
            before = len(heard)
            rig.server.start()
            assert heard.within(15, after=before)
            assert coordinator.connected
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(15, after=before)

    def test_it_survives_a_kill_of_the_server(self, rig: Rig) -> None:
        """The same after SIGKILL, when nobody said goodbye."""
        with rig.listening() as (coordinator, heard), rig.sending() as sender:
            rig.server.kill()
            assert until(lambda: not coordinator.connected)
            rig.server.start()
            assert until(lambda: coordinator.connected)
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(15, after=before)

    def test_a_submission_never_waits_for_a_server_that_is_gone(
        self, rig: Rig, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without a server, calls neither raise nor block, one warning is logged, and the message is sent later."""
        caplog.set_level(logging.INFO, "ratchet.wakeups")
        rig.server.stop()
        with rig.sending() as sender:
            slowest = 0.0
            for _ in range(200):
                began = time.monotonic()
                sender.notify_new_work(Priority.NORMAL)
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(0.005)
            assert slowest < 0.25
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "cannot be woken" in caplog.text
            rig.server.start()
            with rig.listening() as (_, heard):
                # connected before the retry of the sender, or after it: one more makes sure
                before = len(heard)
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(15, after=before)
            assert until(lambda: "woken for new work again" in caplog.text)

    def test_it_starts_and_stops_while_the_server_is_gone(self, rig: Rig) -> None:
        """start() and stop() return quickly and raise nothing; once the server is there, start() connects."""
        rig.server.stop()
        coordinator = rig.make()
        began = time.monotonic()
        coordinator.start()
        coordinator.notify_new_work(Priority.NORMAL)
        time.sleep(0.3)
        coordinator.stop()
        assert time.monotonic() - began < 6
        assert waking_threads() == []
        rig.server.start()
        coordinator.start()
        assert until(lambda: coordinator.connected)
        coordinator.stop()

    def test_a_connection_that_falls_silent_is_replaced(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A peer that vanishes without closing anything is noticed, and a new connection listens."""
        monkeypatch.setattr(postgresql_module, "ANSWER_TIMEOUT", 1.0)
        monkeypatch.setattr(redis_module, "ANSWER_TIMEOUT", 1.0)
        proxy = Proxy(rig.server.port)
        url = urlsplit(rig.server.url)
        through = url._replace(netloc=url.netloc.replace(str(rig.server.port), str(proxy.port))).geturl()
        try:
            with (
                rig.listening(url=through, check_interval=0.3) as (coordinator, heard),
                rig.sending() as sender,
            ):
                before = len(heard)
                proxy.freeze()
                assert until(lambda: not coordinator.connected)
                assert until(lambda: coordinator.connected)
                assert heard.within(5, after=before + 1)
                before = len(heard)
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(5, after=before)
        finally:
            proxy.close()

    def test_stop_delivers_nothing_more_and_start_works_again(self, rig: Rig) -> None:
        """After stop() there is no thread, no connection and no call; twice is once; start() begins anew."""
        assert until(lambda: rig.connections() == 0)
        with rig.listening() as (coordinator, heard), rig.sending() as sender:
            coordinator.start()
            sender.notify_new_work(Priority.NORMAL)
            assert until(lambda: rig.connections() >= 2)
            coordinator.stop()
            coordinator.stop()
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            sender.stop()
            assert waking_threads() == []
            assert until(lambda: rig.connections() == 0)
            assert len(heard) == before
            assert not coordinator.connected
            coordinator.start()
            assert until(lambda: coordinator.connected)
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(5, after=before)

    def test_a_listener_may_raise_stop_or_be_registered_twice(self, rig: Rig) -> None:
        """One that raises is logged and called again, one that stops its coordinator does not hang, one is called once."""
        with rig.listening() as (coordinator, heard), rig.sending() as sender:
            coordinator.register_wakeup_listener(heard)
            broken: list[float] = []

            def fail() -> None:
                broken.append(time.monotonic())
                raise ValueError("no")

            coordinator.register_wakeup_listener(fail)
            for _ in range(2):
                before = len(heard)
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(5, after=before)
                time.sleep(0.1)
                assert len(heard) == before + 1
            assert len(broken) == 2
            coordinator.register_wakeup_listener(coordinator.stop)
            sender.notify_new_work(Priority.NORMAL)
            assert until(
                lambda: not coordinator.connected and "ratchet-wakeups-listen" not in waking_threads()
            )

    def test_a_forked_child_has_its_own_connections(self, rig: Rig) -> None:
        """A child of a listening process can send, and ends without taking its parent's connections with it."""
        with rig.listening() as (coordinator, heard), rig.listening() as (_, heard_elsewhere):
            coordinator.notify_new_work(Priority.NORMAL)  # so that the sending thread exists too
            time.sleep(0.1)
            before = len(heard), len(heard_elsewhere)
            with repeating(lambda: coordinator.notify_new_work(Priority.NORMAL)):
                status = forked(lambda: child_of(coordinator))
            assert status == 0
            assert heard.within(5, after=before[0])
            assert heard_elsewhere.within(5, after=before[1])
            time.sleep(0.1)
            assert coordinator.connected
            before = len(heard), len(heard_elsewhere)
            coordinator.notify_new_work(Priority.NORMAL)
            assert heard_elsewhere.within(5, after=before[1])
            assert len(heard) == before[0]


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


def child_of(coordinator: BroadcastCoordinator) -> bool:
    """In the child: it has nothing of its parent's, can send, and hears its parent."""
    was_connected = coordinator.connected
    coordinator.notify_new_work(Priority.NORMAL)
    coordinator.stop()
    heard = Heard()
    coordinator.register_wakeup_listener(heard)
    coordinator.start()
    heard_parent = until(lambda: coordinator.connected, 5) and heard.within(5, after=2)
    coordinator.stop()
    return heard_parent and not was_connected


class Pipe:
    """A medium in memory that counts, and can be broken."""

    def __init__(self) -> None:
        self.sent = self.opened = self.closed = 0
        self.broken = False

    def sender(self) -> Pipe:
        if self.broken:
            raise OSError("broken")
        self.opened += 1
        return self

    def receiver(self) -> Any:
        raise OSError("nobody is there")

    def send(self) -> None:
        if self.broken:
            raise OSError("broken")
        self.sent += 1

    def close(self) -> None:
        self.closed += 1


class Letterbox(Pipe):
    """One that can be posted to; the answers are held back for as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.posters: list[int] = []
        self.answering = threading.Event()
        self.answering.set()

    def post(self) -> None:
        self.posters.append(threading.get_ident())
        self.send()

    def collect(self) -> None:
        self.answering.wait(30)
        if self.broken:
            raise OSError("broken")


class TestPosting:
    """On a system that has nothing to do the thread that submits sends the message by itself."""

    @pytest.fixture
    def box(self) -> Letterbox:
        return Letterbox()

    @pytest.fixture
    def coordinator(self, box: Letterbox) -> Iterator[BroadcastCoordinator]:
        """One that has a connection, and nothing to send."""
        coordinator = BroadcastCoordinator(box)
        coordinator.notify_new_work(Priority.NORMAL)
        self.wait_for_rest(coordinator)
        assert (box.sent, box.posters) == (1, [])
        yield coordinator
        box.answering.set()
        coordinator.stop()

    def wait_for_rest(self, coordinator: BroadcastCoordinator) -> None:
        """Until the sending thread has nothing to do."""
        assert until(lambda: coordinator._telling is not None and coordinator._telling._poster is not None)

    def test_no_thread_has_to_wake_up_for_it(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """The message is on its way when the call returns, each time that nothing else is being sent."""
        for count in range(2, 5):
            coordinator.notify_new_work(Priority.NORMAL)
            assert (box.sent, box.posters) == (count, [threading.get_ident()] * (count - 1))
            self.wait_for_rest(coordinator)
        assert box.opened == 1

    def test_nobody_waits_for_its_answer(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """What is submitted meanwhile is told by one more message, when the answer is there."""
        box.answering.clear()
        for _ in range(10):
            coordinator.notify_new_work(Priority.NORMAL)
        assert box.sent == 2
        box.answering.set()
        assert until(lambda: box.sent == 3)
        self.wait_for_rest(coordinator)
        assert (box.sent, len(box.posters)) == (3, 1)

    def test_a_message_behind_a_posted_one_is_not_forgotten(self, box: Letterbox) -> None:
        """Both came before the thread looked: it reads the answer to the one, and comes back for the other."""
        telling = broadcast.Telling(box, lambda telling: True, broadcast.Outage("%s", ""))
        telling._sender = box
        telling.posted = telling.pending = True
        telling._send()
        assert (telling.posted, telling.pending, telling._bell.is_set()) == (False, True, True)

    def test_a_connection_that_died_unused(self, box: Letterbox, coordinator: BroadcastCoordinator) -> None:
        """The message is sent again: by the thread where it could not be posted, on a new one where no answer came."""
        for opened, part in ((1, "post"), (2, "collect")):
            original, failures = getattr(box, part), [OSError("died unused")]

            def fails_once(original: Any = original, failures: list[OSError] = failures) -> None:
                if failures:
                    raise failures.pop()
                original()

            setattr(box, part, fails_once)
            before = box.sent
            coordinator.notify_new_work(Priority.NORMAL)
            assert until(lambda opened=opened, before=before: box.opened == opened and box.sent > before)
            self.wait_for_rest(coordinator)
            assert box.opened == opened

    def test_stop_and_the_end_of_the_thread(self, box: Letterbox, monkeypatch: pytest.MonkeyPatch) -> None:
        """However they coincide with a call, a message follows every call."""
        monkeypatch.setattr(broadcast, "LINGER", 0.0)
        monkeypatch.setattr(broadcast, "GAP", 0.0)
        coordinator = BroadcastCoordinator(box)
        for _ in range(100):
            before = box.sent
            coordinator.notify_new_work(Priority.NORMAL)
            assert until(lambda before=before: box.sent > before, 30)
        coordinator.stop()
        assert until(lambda: not waking_threads())
        assert box.opened == box.closed


class TestSendingThread:
    def test_it_ends_when_there_is_nothing_to_send_and_begins_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process that submitted once keeps neither thread nor connection; its next submission is told all the same."""
        monkeypatch.setattr(broadcast, "LINGER", 0.05)
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        for turn in (1, 2):
            coordinator.notify_new_work(Priority.NORMAL)
            assert until(lambda: not waking_threads())
            assert (pipe.sent, pipe.opened, pipe.closed) == (turn, turn, turn)

    def test_no_submission_falls_between_two_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However the end of one thread and a call coincide, a message follows every call."""
        monkeypatch.setattr(broadcast, "LINGER", 0.0)
        monkeypatch.setattr(broadcast, "GAP", 0.0)
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        for _ in range(500):
            before = pipe.sent
            coordinator.notify_new_work(Priority.NORMAL)
            deadline = time.monotonic() + 5
            while pipe.sent == before:
                time.sleep(0)
                assert time.monotonic() < deadline
        coordinator.stop()

    def test_stop_sends_what_is_waiting(self) -> None:
        """A submission right before stop() is told."""
        for _ in range(50):
            pipe = Pipe()
            coordinator = BroadcastCoordinator(pipe)
            coordinator.notify_new_work(Priority.NORMAL)
            coordinator.stop()
            assert pipe.sent == 1

    def test_a_connection_that_died_unused_is_replaced_at_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What broke while nobody used it costs no pause and no warning."""
        pipe = Pipe()
        coordinator = BroadcastCoordinator(pipe)
        coordinator.notify_new_work(Priority.NORMAL)
        assert until(lambda: pipe.sent == 1)
        send, failures = pipe.send, [OSError("died unused")]

        def send_once_more() -> None:
            if failures:
                raise failures.pop()
            send()

        pipe.send = send_once_more  # type: ignore[method-assign]
        began = time.monotonic()
        coordinator.notify_new_work(Priority.NORMAL)
        assert until(lambda: pipe.sent == 2)
        assert time.monotonic() - began < broadcast.FIRST_PAUSE * 0.7
        assert caplog.records == []
        coordinator.stop()

    def test_it_gives_up_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the medium gone for long, the message is dropped and the thread ends; a later one is tried again."""
        monkeypatch.setattr(broadcast, "GIVE_UP", 0.3)
        monkeypatch.setattr(broadcast, "LINGER", 0.05)
        pipe = Pipe()
        pipe.broken = True
        coordinator = BroadcastCoordinator(pipe)
        coordinator.notify_new_work(Priority.NORMAL)
        time.sleep(0.2)
        assert waking_threads() == ["ratchet-wakeups-send"]
        assert until(lambda: not waking_threads(), 5)
        pipe.broken = False
        coordinator.notify_new_work(Priority.NORMAL)
        assert until(lambda: pipe.sent == 1)
        coordinator.stop()


@pytest.fixture
def installed_url(postgresql_url: str) -> str:
    """A PostgreSQL database with the one table that names the channel."""
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(TABLE)
    return postgresql_url


class TestPostgresql:
    def test_two_installations_in_one_database_do_not_wake_each_other(self, installed_url: str) -> None:
        """Each schema has its own channel."""
        with psycopg.connect(installed_url, autocommit=True) as connection:
            connection.execute('CREATE SCHEMA "Second ""one"""')
            connection.execute('CREATE TABLE "Second ""one""".scheduler_job_queue (job_id text)')
        table = '"Second ""one""".scheduler_job_queue'
        first, second = postgresql_wakeups(installed_url), postgresql_wakeups(installed_url, table)
        heard = Heard(), Heard()
        try:
            for coordinator, listener in zip((first, second), heard, strict=True):
                coordinator.register_wakeup_listener(listener)
                coordinator.start()
            assert until(lambda: first.connected and second.connected and all(heard))
            before = [len(listener) for listener in heard]
            sender = postgresql_wakeups(installed_url, table)
            sender.notify_new_work(Priority.NORMAL)
            sender.stop()
            assert heard[1].within(5, after=before[1])
            time.sleep(0.1)
            assert len(heard[0]) == before[0]
        finally:
            first.stop()
            second.stop()

    def test_it_waits_for_the_schema(self, postgresql_url: str) -> None:
        """Before the tables exist nothing is heard and nothing breaks; afterwards it connects by itself."""
        coordinator = postgresql_wakeups(postgresql_url)
        coordinator.start()
        coordinator.notify_new_work(Priority.NORMAL)
        time.sleep(0.3)
        assert not coordinator.connected
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(TABLE)
        assert until(lambda: coordinator.connected)
        coordinator.stop()

    def test_a_message_within_the_callers_transaction(self, installed_url: str) -> None:
        """A commit wakes, once, the caller's own process too; a rollback wakes nobody."""
        coordinator, heard = postgresql_wakeups(installed_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        dialect = PostgresqlDialect(installed_url, Options())
        try:
            assert until(lambda: coordinator.connected and len(heard) > 0)
            before = len(heard)
            with psycopg.connect(installed_url) as connection:
                with dialect.enlist(connection) as session:
                    notify_within(session)
                connection.rollback()
                time.sleep(0.1)
                assert len(heard) == before
                for _ in range(2):
                    with dialect.enlist(connection) as session:
                        notify_within(session)
                time.sleep(0.1)
                assert len(heard) == before
                connection.commit()
                assert heard.within(5, after=before)
                time.sleep(0.1)
                assert len(heard) == before + 1
        finally:
            coordinator.stop()
            dialect.close()

    @pytest.mark.parametrize(("url", "afterwards"), [("installed_url", "off"), ("pgbouncer_url", "on")])
    def test_sending_does_not_wait_for_the_disk(
        self, request: pytest.FixtureRequest, url: str, afterwards: str
    ) -> None:
        """Our own connection never flushes; a pooler's is used by others, and what is set there ends with the message."""
        coordinator = postgresql_wakeups(request.getfixturevalue(url))
        sender = coordinator._medium.sender()
        try:
            sender.send()
            connection: Any = sender._connection  # type: ignore[attr-defined]
            connection.prepare_threshold = None
            assert connection.execute("SHOW synchronous_commit").fetchone() == (afterwards,)
        finally:
            sender.close()

    def test_behind_a_pooler_in_transaction_mode_it_says_so_once(
        self, pgbouncer_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning, no thread that goes on trying, no LISTEN left on a connection that others use."""
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as connection:
            connection.execute(TABLE)
        coordinator, heard = postgresql_wakeups(pgbouncer_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        assert until(lambda: bool(caplog.records) and not waking_threads())
        assert not coordinator.connected
        assert len(heard) == 0
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "pooler in transaction mode" in caplog.text
        assert pooled_channels(pgbouncer_url) == []
        coordinator.stop()

    def test_through_a_pooler_in_transaction_mode_it_can_send(
        self, pgbouncer_url: str, postgresql_server: PostgreSQL
    ) -> None:
        """A submitter behind PgBouncer wakes a worker that has a direct connection."""
        direct = with_database(postgresql_server.url, urlsplit(pgbouncer_url).path[1:])
        with psycopg.connect(direct, autocommit=True) as connection:
            connection.execute(TABLE)
        coordinator, sender, heard = postgresql_wakeups(direct), postgresql_wakeups(pgbouncer_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        try:
            assert until(lambda: coordinator.connected and len(heard) > 0)
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(5, after=before)
        finally:
            sender.stop()
            coordinator.stop()

    def test_through_a_pooler_in_session_mode_it_listens(self, postgresql_server: PostgreSQL) -> None:
        """PgBouncer's default mode keeps the session, so LISTEN works there; own messages are still recognised."""
        with SessionPgBouncer(upstream=postgresql_server.url) as pooler:
            url = pooler.create_database()
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
                connection.execute(TABLE)
            coordinator, sender, heard = postgresql_wakeups(url), postgresql_wakeups(url), Heard()
            coordinator.register_wakeup_listener(heard)
            coordinator.start()
            try:
                assert until(lambda: coordinator.connected and len(heard) > 0)
                before = len(heard)
                coordinator.notify_new_work(Priority.NORMAL)
                time.sleep(0.2)
                assert len(heard) == before
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(5, after=before)
            finally:
                sender.stop()
                coordinator.stop()
            pooler.drop_database(url)


class SessionPgBouncer(PgBouncer):
    """PgBouncer as it comes: a server connection belongs to a client until that one leaves."""

    def prepare(self) -> None:
        super().prepare()
        configuration = self.directory / "pgbouncer.ini"
        assert "pool_mode = transaction" in CONFIGURATION
        configuration.write_text(
            configuration.read_text().replace("pool_mode = transaction", "pool_mode = session")
        )


def pooled_channels(url: str) -> list[str]:
    """What the pooler's server connections listen to; several transactions at once see several of them."""
    connections = [psycopg.connect(url, prepare_threshold=None) for _ in range(5)]
    try:
        return [
            str(row[0])
            for connection in connections
            for row in connection.execute("SELECT pg_listening_channels()").fetchall()
        ]
    finally:
        for connection in connections:
            connection.close()


class TestRedis:
    def test_installations_on_one_server_have_channels_of_their_own(self, redis_url: str) -> None:
        """Another database number, or another name, is another channel."""
        listening, heard = RedisCoordinator(redis_url), Heard()
        listening.register_wakeup_listener(heard)
        listening.start()
        assert until(lambda: listening.connected and len(heard) > 0)
        before = len(heard)
        other = urlsplit(redis_url)._replace(path="/0").geturl()
        for stranger in (RedisCoordinator(other), RedisCoordinator(redis_url, channel="elsewhere")):
            stranger.notify_new_work(Priority.NORMAL)
            stranger.stop()
        time.sleep(0.2)
        assert len(heard) == before
        listening.stop()

    def test_a_bad_url_is_refused_at_once(self) -> None:
        """The error says that it is the Redis URL."""
        with pytest.raises(ConfigurationError, match="Redis URL"):
            RedisCoordinator("http://127.0.0.1:6379/0")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A SQLite file with a write-ahead log, as a store leaves it."""
    path = tmp_path / "jobs & 100% ?.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    return path


@contextmanager
def watching(path: Path) -> Iterator[tuple[SqliteWakeups, Heard]]:
    """A watch that has begun, and its listener."""
    coordinator, heard = SqliteWakeups(path), Heard()
    coordinator.register_wakeup_listener(heard)
    coordinator.start()
    try:
        assert until(lambda: coordinator.connected and len(heard) > 0)
        yield coordinator, heard
    finally:
        coordinator.stop()


WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for _ in range(int(sys.argv[2])):
    connection.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
    print(time.monotonic(), flush=True)
    time.sleep(0.0213)
"""


class TestSqlite:
    def test_a_commit_of_another_process_wakes(self, database: Path) -> None:
        """Another process writes one row and ends; the listener is called."""
        with watching(database) as (_, heard):
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)

    def test_commits_are_seen_in_milliseconds(self, database: Path) -> None:
        """From the commit in one process to the listener in another: 5 ms in the middle while things change."""
        with watching(database) as (_, heard):
            sent = [float(line) for line in finished(python(WRITER, str(database), "100")).split()]
            assert until(lambda: heard.times[-1] >= sent[-1])
            middle, slow = latencies(sent[1:], heard.times)
        log.info("latency: p50 %.2f ms, p99 %.2f ms", middle, slow)
        assert middle < 20  # 3 on a quiet machine; this one may be busy

    def test_nothing_wakes_while_nothing_changes(self, database: Path) -> None:
        """Reads, and transactions that change nothing, wake nobody: an empty poll must not lead to the next one."""
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            for _ in range(20):
                other.execute("BEGIN IMMEDIATE")
                other.execute("UPDATE scheduler_job_queue SET job_id = 'y' WHERE job_id = 'none'")
                other.execute("COMMIT")
                other.execute("SELECT count(*) FROM scheduler_job_queue").fetchall()
                time.sleep(0.01)
            assert len(heard) == before
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)

    def test_it_looks_often_only_while_things_change(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After a change the next one is seen soon; when all has been quiet for a while, looks are rare again."""
        monkeypatch.setattr(sqlite_module, "IDLE_INTERVAL", 1.0)
        monkeypatch.setattr(sqlite_module, "BUSY_FOR", 0.5)
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(0.3, after=before + 1)
            time.sleep(0.7)  # it has just begun a long rest
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert not heard.within(0.3, after=before + 2)
            assert heard.within(5, after=before + 2)

    def test_it_does_not_keep_the_log_from_being_truncated(self, database: Path) -> None:
        """A look leaves no read transaction behind."""
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0

    def test_stop_and_start(self, database: Path) -> None:
        """After stop() nothing is called; twice is once; start() watches again; the file can be removed then."""
        with watching(database) as (coordinator, heard):
            coordinator.start()
            coordinator.stop()
            coordinator.stop()
            assert waking_threads() == []
            assert not coordinator.connected
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            time.sleep(0.1)
            assert len(heard) == before
            coordinator.start()
            assert until(lambda: coordinator.connected)
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)

    def test_a_file_that_cannot_be_opened_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning; it is not created by looking; once it is there it is watched."""
        monkeypatch.setattr(sqlite_module, "RETRY_INTERVAL", 0.02)
        path = tmp_path / "later.db"
        coordinator, heard = SqliteWakeups(path), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        assert until(lambda: bool(caplog.records))
        time.sleep(0.2)
        assert not path.exists()
        assert not coordinator.connected
        assert len(caplog.records) == 1
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(TABLE)
            assert until(lambda: coordinator.connected)
            assert heard.within(5, after=0)
        coordinator.stop()

    def test_a_forked_child_watches_for_itself(self, database: Path) -> None:
        """The child's coordinator is not connected, can start, and leaves its parent's watch alone."""
        with watching(database) as (coordinator, heard):
            assert forked(lambda: watching_child(coordinator)) == 0
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)


def watching_child(coordinator: SqliteWakeups) -> bool:
    was_connected = coordinator.connected
    coordinator.start()
    connected = until(lambda: coordinator.connected, 5)
    coordinator.stop()
    return connected and not was_connected


class TestStores:
    """The coordinators as a store hands them out."""

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql", "postgresql in a schema"])
    def test_two_stores_on_one_database_wake_each_other(
        self, kind: str, tmp_path: Path, postgresql_url: str
    ) -> None:
        """A write through one store, and its notification, call the listener of the other; close() ends it."""
        url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else postgresql_url
        options = Options(schema="Jobs") if kind == "postgresql in a schema" else Options()
        first, second = open_store(url, options), open_store(url, options)
        first.migrate()
        coordinator, heard = first.coordinator(), Heard()
        assert coordinator is not None
        assert coordinator is first.coordinator()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        try:
            assert heard.within(5, after=0)
            before = len(heard)
            second.set_limit("gateway", concurrent=1, now=datetime.now(UTC))
            other = second.coordinator()
            assert other is not None
            other.notify_new_work(Priority.NORMAL)
            assert heard.within(5, after=before)
        finally:
            first.close()
            second.close()
        assert waking_threads() == []

    def test_a_store_in_memory_has_nobody_to_wake(self) -> None:
        """No other process can see it."""
        with closing(open_store("sqlite:///:memory:")) as store:
            assert store.coordinator() is None
        assert MemoryStore().coordinator() is None
