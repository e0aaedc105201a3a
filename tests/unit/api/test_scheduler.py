"""The scheduler as a whole: configured, started, running, stopped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    BusinessKeyBusy,
    Busy,
    ConfigurationError,
    InvalidJob,
    JobCanceledError,
    JobStarted,
    JobStatus,
    MissingDriver,
    Options,
    RatchetError,
    Scheduler,
    SchemaOutOfDate,
    TargetNotAllowed,
)
from ratchet.config import resolve_allow, resolve_options, resolve_url
from ratchet.stores.memory import MemoryStore
from tests.support.running_jobs import (
    HERE,
    add,
    add_one,
    endless,
    nap,
    slow_add,
    started,
)
from tests.support.waiting import until


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    started.clear()
    made = Scheduler(store=MemoryStore(), allow=[HERE])
    yield made
    made.close()


class TestConfiguration:
    def test_the_url(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """Code wins over RATCHET_URL, which wins over a file in the current directory, whose full path is logged."""
        assert resolve_url("sqlite:///a.db", {"RATCHET_URL": "sqlite:///b.db"}) == "sqlite:///a.db"
        assert resolve_url(None, {"RATCHET_URL": "sqlite:///b.db"}) == "sqlite:///b.db"
        with caplog.at_level(logging.INFO, "ratchet"):
            assert resolve_url(None, {}) == f"sqlite:///{Path.cwd() / 'ratchet.db'}"
        assert str(Path.cwd() / "ratchet.db") in caplog.text

    def test_options(self, tmp_path: Path) -> None:
        """Code wins over variables, which win over the file, option by option."""
        file = tmp_path / "ratchet.toml"
        file.write_text("[ratchet]\nconcurrency = 1\nmax_crashes = 1\nasync_concurrency = 1\n")
        environ = {
            "RATCHET_CONFIG": str(file),
            "RATCHET_CONCURRENCY": "2",
            "RATCHET_MAX_CRASHES": "2",
        }
        options = resolve_options(Options(concurrency=3), environ)
        assert (options.concurrency, options.max_crashes, options.async_concurrency) == (3, 2, 1)
        filed = resolve_options(Options.from_toml(file).replace(async_concurrency=4), environ)
        assert (filed.concurrency, filed.max_crashes, filed.async_concurrency) == (2, 2, 4)

    def test_allow(self) -> None:
        """Code wins over RATCHET_ALLOW."""
        assert list(resolve_allow(None, {"RATCHET_ALLOW": "shop, billing.jobs"})) == ["shop", "billing.jobs"]
        assert list(resolve_allow(["own"], {"RATCHET_ALLOW": "shop"})) == ["own"]

    @pytest.mark.parametrize(
        ("given", "error", "says"),
        [
            ({"url": "gopher://x"}, ConfigurationError, "gopher"),
            ({"url": "ratchet.db"}, ConfigurationError, "scheme"),
            ({"store": MemoryStore(), "allow": "shop"}, ConfigurationError, r"allow=\['shop'\]"),
            ({"store": MemoryStore(), "url": "sqlite:///x"}, InvalidJob, "one store"),
            (
                {"store": MemoryStore(), "allow": ["shop"], "target_policy": object()},
                ConfigurationError,
                "both given",
            ),
        ],
    )
    def test_settings_that_make_no_sense(
        self, given: dict[str, Any], error: type[Exception], says: str
    ) -> None:
        """A scheduler that could not work is refused when it is made."""
        with pytest.raises(error, match=says):
            Scheduler(**given)

    def test_the_driver_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A store whose driver is not installed says which extra brings it."""
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(MissingDriver, match=r"ratchet-jobs\[postgresql\]"):
            Scheduler("postgresql://localhost/x").jobs.counts()


class Gate(MemoryStore):
    """A memory store that pretends to have a schema."""

    def __init__(self, *, missing: bool, migrates_itself: bool = False) -> None:
        super().__init__()
        self.capabilities.migrates_itself = migrates_itself
        self.missing = missing
        self.calls: list[str] = []

    def migrate(self) -> list[str]:
        self.calls.append("migrate")
        self.missing = False
        return ["V001"]

    def check_schema(self) -> None:
        self.calls.append("check")
        if self.missing:
            raise SchemaOutOfDate("the schema is missing; run `ratchet db upgrade`")


class TestSchema:
    def test_other_stores_are_checked_and_not_changed(self) -> None:
        """A missing schema is an error that says what to do, each time; ``migrate()`` mends it."""
        store = Gate(missing=True)
        scheduler = Scheduler(store=store, allow=[HERE])
        for _ in range(2):
            with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
                scheduler.enqueue_now(add, 1, 2)
        assert store.calls == ["check", "check"]
        health = scheduler.health()
        assert (health.ok, health["reachable"], health["schema_ok"]) == (False, True, False)
        assert scheduler.migrate() == ["V001"]
        scheduler.enqueue_now(add, 1, 2)
        assert scheduler.health().ok is False  # a due job, and no node

    @pytest.mark.parametrize(
        ("migrates_itself", "options"), [(True, Options()), (False, Options(auto_migrate=True))]
    )
    def test_who_migrates_by_itself(self, migrates_itself: bool, options: Options) -> None:
        """A store that says so always does, others when the option says so; once."""
        store = Gate(missing=True, migrates_itself=migrates_itself)
        scheduler = Scheduler(store=store, allow=[HERE], options=options)
        scheduler.enqueue_many(add, [(1, 2)])
        scheduler.jobs.counts()
        assert store.calls == ["check", "migrate"]


class TestRunning:
    def test_a_job_runs_while_the_scheduler_does(self, scheduler: Scheduler) -> None:
        """Inside ``with`` jobs run, plain and async; before and after they can be submitted and asked about."""
        early = scheduler.enqueue_now(add, 1, 2)
        assert early.status() is JobStatus.PENDING
        with scheduler:
            assert scheduler.running
            assert early.result(timeout=10) == 3
            assert scheduler.enqueue_now(slow_add, 3, 4).result(timeout=10) == 7
            assert [node.state for node in scheduler.nodes.list()] == ["ACTIVE"]
            health = scheduler.health()
            assert (health.ok, health["nodes"]) == (True, 1)
        assert not scheduler.running
        late = scheduler.enqueue_now(add, 5, 6)
        assert late.status() is JobStatus.PENDING
        assert scheduler.nodes.list() == []

    def test_starting_again_is_a_new_incarnation(self, scheduler: Scheduler) -> None:
        """stop() is idempotent; a second start() while running is refused; a later one registers anew."""
        assert scheduler.stop()
        with scheduler:
            first = scheduler.nodes.list()[0].node_id
            with pytest.raises(RatchetError, match="already running"):
                scheduler.start()
        assert scheduler.stop()
        with scheduler:
            assert scheduler.nodes.list()[0].node_id != first
            assert scheduler.enqueue_now(add, 1, 1).result(timeout=10) == 2

    def test_a_node_that_could_run_nothing(self) -> None:
        """No prefix and no declared job: start() fails at once and says what to add."""
        scheduler = Scheduler(store=MemoryStore())
        with pytest.raises(ConfigurationError, match=r"allow=\['shop'\]"):
            scheduler.start()
        scheduler.job(name="front.door")(add_one)
        with scheduler:
            assert scheduler.enqueue_now(add_one, 1).result(timeout=10) == 2
            with pytest.raises(TargetNotAllowed):
                scheduler.enqueue_now(add, 1, 2)

    def test_cancel_stops_a_run_of_this_process_at_once(self, scheduler: Scheduler) -> None:
        """The code is interrupted without waiting for a beat, and the waiter hears of it."""
        with scheduler:
            handle = scheduler.enqueue_now(endless)
            assert started.wait(10)
            begun = time.monotonic()
            assert handle.cancel()
            with pytest.raises(JobCanceledError):
                handle.result(timeout=10)
            node = scheduler._core.node
            assert node is not None
            until(lambda: node.is_idle, begun + 4 - time.monotonic(), "the run was not interrupted")

    def test_replacing_a_running_job_stops_it(self, scheduler: Scheduler) -> None:
        """Busy.REPLACE cancels a RUNNING holder and interrupts it here; the key comes free when its code has ended."""
        with scheduler:
            first = scheduler.enqueue(endless).with_business_key("k").submit()
            assert started.wait(10)
            with pytest.raises(BusinessKeyBusy) as busy:
                scheduler.enqueue(add, 1, 2).with_business_key("k", busy=Busy.REPLACE).submit()
            assert busy.value.holder == first.id
            second, deadline = None, time.monotonic() + 10
            while second is None:
                assert time.monotonic() < deadline
                with suppress(BusinessKeyBusy):
                    second = scheduler.enqueue(add, 1, 2).with_business_key("k", busy=Busy.REPLACE).submit()
            assert second.result(timeout=10) == 3
            assert first.status() is JobStatus.CANCELED

    def test_stop_waits_for_running_jobs(self, scheduler: Scheduler) -> None:
        """A drain lets a running job finish; its result is there afterwards."""
        heard: list[JobStarted] = []
        scheduler.on(JobStarted)(heard.append)
        scheduler.start()
        handle = scheduler.enqueue_now(nap, 0.3)
        until(lambda: handle.status() is JobStatus.RUNNING)
        assert scheduler.stop(drain=True, timeout=10)
        assert handle.result(timeout=0) == "rested"

    def test_run_ends_with_a_signal(self, tmp_path: Path) -> None:
        """``scheduler.run()`` stays in the foreground, drains on SIGTERM and exits cleanly."""
        script = tmp_path / "worker.py"
        script.write_text(
            textwrap.dedent("""
                import sys, time
                from ratchet import Scheduler
                from ratchet.stores.memory import MemoryStore

                scheduler = Scheduler(store=MemoryStore())

                @scheduler.job
                def work():
                    print("working", flush=True)
                    time.sleep(0.5)
                    return "done"

                handle = scheduler.enqueue_now(work)
                ended = scheduler.run()
                print(ended, handle.status(), flush=True)
            """)
        )
        worker = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline().strip() == "working"
            os.kill(worker.pid, signal.SIGTERM)
            output, _ = worker.communicate(timeout=30)
        finally:
            worker.kill()
            worker.wait()
        assert output.strip() == "True SUCCEEDED"
        assert worker.returncode == 0
