"""How processes wake each other, whatever carries the message, all against the real thing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ratchet.defaults import redis_coordinator as redis_module
from ratchet.defaults.redis_coordinator import RedisCoordinator
from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options
from ratchet.model.status import Priority
from ratchet.spi import broadcast
from ratchet.spi.broadcast import BroadcastCoordinator
from ratchet.stores.memory.store import MemoryStore
from ratchet.stores.sql.dialects.postgresql import wakeups as postgresql_module
from ratchet.stores.sql.store import open_store
from tests.stores.wakeup_rigs import (
    Heard,
    PostgresqlRig,
    Proxy,
    RedisRig,
    Rig,
    finished,
    forked,
    latencies,
    log,
    python,
    repeating,
    threads_end,
    waking_threads,
)
from tests.support.waiting import happens, until


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with threads_end():
        yield


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
            until(lambda: heard.times[-1] >= sent[-1])
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
            until(lambda: heard.times[-1] >= ended)
            time.sleep(0.05)
            assert len(heard) - before <= (ended - began) / broadcast.SEND_GAP + 3
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
            until(lambda: not coordinator.connected)
            rig.server.start()
            until(lambda: coordinator.connected)
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
            until(lambda: "woken for new work again" in caplog.text)

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
        until(lambda: coordinator.connected)
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
                until(lambda: not coordinator.connected)
                until(lambda: coordinator.connected)
                assert heard.within(5, after=before + 1)
                before = len(heard)
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(5, after=before)
        finally:
            proxy.close()

    def test_stop_delivers_nothing_more_and_start_works_again(self, rig: Rig) -> None:
        """After stop() there is no thread, no connection and no call; twice is once; start() begins anew."""
        until(lambda: rig.connections() == 0)
        with rig.listening() as (coordinator, heard), rig.sending() as sender:
            coordinator.start()
            sender.notify_new_work(Priority.NORMAL)
            until(lambda: rig.connections() >= 2)
            coordinator.stop()
            coordinator.stop()
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            sender.stop()
            assert waking_threads() == []
            until(lambda: rig.connections() == 0)
            assert len(heard) == before
            assert not coordinator.connected
            coordinator.start()
            until(lambda: coordinator.connected)
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
            until(lambda: not coordinator.connected and "ratchet-wakeups-listen" not in waking_threads())

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


def child_of(coordinator: BroadcastCoordinator) -> bool:
    """In the child: it has nothing of its parent's, can send, and hears its parent."""
    was_connected = coordinator.connected
    coordinator.notify_new_work(Priority.NORMAL)
    coordinator.stop()
    heard = Heard()
    coordinator.register_wakeup_listener(heard)
    coordinator.start()
    heard_parent = happens(lambda: coordinator.connected, 5) and heard.within(5, after=2)
    coordinator.stop()
    return heard_parent and not was_connected


class TestRedis:
    def test_installations_on_one_server_have_channels_of_their_own(self, redis_url: str) -> None:
        """Another database number, or another name, is another channel."""
        listening, heard = RedisCoordinator(redis_url), Heard()
        listening.register_wakeup_listener(heard)
        listening.start()
        until(lambda: listening.connected and len(heard) > 0)
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
