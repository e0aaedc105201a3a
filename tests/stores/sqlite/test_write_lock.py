"""One writer at a time on SQLite: in order, across processes, and nobody is told that the database is locked."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.errors import ConfigurationError, Conflict, StoreUnavailable
from ratchet.model.options import Options
from ratchet.stores.sql.dialects.sqlite import connections as sqlite_connections
from ratchet.stores.sql.dialects.sqlite.connections import FairLock, write_lock_of
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, claim, insert, spread

QUICK = Options(sqlite_busy_timeout=timedelta(seconds=0.3))


def at(path: Path, options: Options | None = None) -> SqlStore:
    return open_store(f"sqlite:///{path}", options)


class TestFairLock:
    def test_first_come_first_served(self) -> None:
        """Twenty threads that queue up one after the other are served in that order."""
        lock = FairLock()
        assert lock.acquire(1)
        served: list[int] = []

        def wait(number: int) -> None:
            assert lock.acquire(10)
            served.append(number)
            lock.release()

        threads = []
        for number in range(20):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            while len(lock._waiting) <= number:
                time.sleep(0.001)
        lock.release()
        for thread in threads:
            thread.join(10)
        assert served == list(range(20))

    def test_whoever_gives_up_leaves_no_gap(self) -> None:
        """A waiter whose time is over is skipped, and the lock is free in the end."""
        lock = FairLock()
        assert lock.acquire(1)
        assert not lock.acquire(0.01)
        lock.release()
        assert lock.acquire(0)
        lock.release()


class TestGate:
    def test_two_stores_of_one_process_share_it(self, tmp_path: Path) -> None:
        """Also when they spell the path differently: record locks would not keep them apart."""
        (tmp_path / "link").symlink_to(tmp_path)
        assert write_lock_of(tmp_path / "x.db") is write_lock_of(tmp_path / "link" / "x.db")

    def test_waiting_is_bounded(self, tmp_path: Path) -> None:
        """A transaction that does not end makes the others fail with the reason, not hang."""
        with closing(at(tmp_path / "x.db", QUICK)) as one, closing(at(tmp_path / "x.db", QUICK)) as two:
            one.migrate()
            failed: list[BaseException] = []

            def write() -> None:
                try:
                    two.pause_queue("q", now=NOW)
                except BaseException as error:
                    failed.append(error)

            with one.begin():
                writer = threading.Thread(target=write)
                writer.start()
                writer.join(10)
            assert isinstance(failed[0], StoreUnavailable)
            assert "sqlite_busy_timeout" in str(failed[0])
            assert two.pause_queue("q", now=NOW)

    def test_a_program_without_the_lock_file(self, tmp_path: Path) -> None:
        """Somebody else's write lock is waited for, and then named; reads go on."""
        with closing(at(tmp_path / "x.db", QUICK)) as store:
            store.migrate()
            other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another program"):
                store.pause_queue("q", now=NOW)
            assert store.queues() == []
            other.execute("COMMIT")
            other.close()
            assert store.pause_queue("q", now=NOW)

    def test_a_long_block_is_warned_about(self, tmp_path: Path, caplog: Any, monkeypatch: Any) -> None:
        """Whoever keeps all other writers waiting is told so in the log."""
        monkeypatch.setattr("ratchet.stores.sql.dialects.sqlite.dialect._LONG_BLOCK", 0.01)
        with closing(at(tmp_path / "x.db")) as store, caplog.at_level(logging.WARNING):
            with store.begin():
                time.sleep(0.05)
        assert "waiting" in caplog.text


WORKER = """
import json, sys, threading, time
from tests.stores.backlog import NOW, request
from ratchet.stores.sql.store import open_store
url, number, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(url)
claimed, errors, waits = [], [], []
def work(name):
    try:
        while True:
            started = time.monotonic()
            found = store.claim_next_batch(request(25, node_id=name), now=NOW)
            waits.append(time.monotonic() - started)
            if not found:
                return
            claimed.extend(str(job.claim.job_id) for job in found)
            store.pause_queue(name, now=NOW)
    except BaseException as error:
        errors.append(repr(error))
print("ready", flush=True)
sys.stdin.readline()
workers = [threading.Thread(target=work, args=(f"{number}-{i}",)) for i in range(threads)]
for worker in workers: worker.start()
for worker in workers: worker.join()
store.close()
print(json.dumps([claimed, errors, max(waits)]))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_four_processes_of_eight_threads(kind: str, request: Any, tmp_path: Path) -> None:
    """They claim 20,000 jobs: each exactly once, no error reaches anybody, and nobody starves."""
    url = (
        request.getfixturevalue("postgresql_url")
        if kind == "postgresql"
        else f"sqlite:///{tmp_path / 'x.db'}"
    )
    store = open_store(url)
    store.migrate()
    ids: set[str] = set()
    for seed in range(4):
        ids |= {str(job_id) for job_id in insert(store, spread(5000, seed=seed, queues=3))}
    store.close()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(number), "8"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, complaints = process.communicate(timeout=100)
        assert process.returncode == 0, complaints
        answers.append(json.loads(output))
    claimed = [job_id for found, _, _ in answers for job_id in found]
    assert [errors for _, errors, _ in answers] == [[], [], [], []]
    assert len(claimed) == len(ids)
    assert set(claimed) == ids
    assert max(wait for _, _, wait in answers) < 10


class TestFork:
    def test_a_forked_child_uses_connections_of_its_own(self, tmp_path: Path) -> None:
        """
        Parent and child go on writing side by side, though the fork came while another thread was writing,
        and the child's end takes nothing from the parent.
        """
        with closing(at(tmp_path / "x.db")) as store:
            insert(store, spread(40))
            parent_writer = store.database.dialect._connections.writer()  # type: ignore[attr-defined]
            inside = threading.Event()

            def write() -> None:
                with store.begin():
                    inside.set()
                    time.sleep(0.3)

            thread = threading.Thread(target=write)
            thread.start()
            assert inside.wait(10)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # Python 3.12 warns of forks beside threads
                child = os.fork()
            if child == 0:
                status = 1
                try:
                    found = claim(store, 20)
                    mine = store.database.dialect._connections.writer()  # type: ignore[attr-defined]
                    status = 0 if len(found) == 20 and mine is not parent_writer else 2
                finally:
                    os._exit(status)
            thread.join()
            _, code = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(code) == 0
            assert len(claim(store, 40)) == 20
            assert store.database.dialect._connections.writer() is parent_writer  # type: ignore[attr-defined]


class TestFiles:
    def test_a_missing_directory(self, tmp_path: Path) -> None:
        """The message names it; once it exists the same store works."""
        with closing(at(tmp_path / "no" / "such" / "x.db")) as store:
            with pytest.raises(StoreUnavailable, match="does not exist"):
                store.queues()
            (tmp_path / "no" / "such").mkdir(parents=True)
            assert store.queues() == []

    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        """It is left as it is."""
        file = tmp_path / "notes.txt"
        file.write_text("these are my notes, and they are longer than a header " * 50)
        with closing(at(file)) as store, pytest.raises(StoreUnavailable, match=r"notes\.txt"):
            store.queues()
        assert file.read_text().startswith("these are my notes")

    def test_durability(self, tmp_path: Path) -> None:
        """Write-ahead logging, and every commit waits for the disk unless told otherwise."""
        for name, level in (("FULL", 2), ("NORMAL", 1)):
            with closing(at(tmp_path / f"{name}.db", Options(sqlite_synchronous=name))) as store:
                store.migrate()
                writer = store.database.dialect._connections.writer()  # type: ignore[attr-defined]
                assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
                assert writer.execute("PRAGMA synchronous").fetchone() == (level,)

    def test_the_log_stays_small_under_steady_reading(self, tmp_path: Path, monkeypatch: Any) -> None:
        """Overlapping readers keep SQLite from resetting its log by itself; ours is reset nevertheless."""
        monkeypatch.setattr(sqlite_connections, "_WAL_LIMIT", 4 * 1024 * 1024)
        options = Options(sqlite_synchronous="NORMAL")
        with closing(at(tmp_path / "x.db", options)) as store:
            insert(store, spread(200))
            stop = threading.Event()

            def read() -> None:
                while not stop.is_set():
                    with store.database.dialect.reading() as session:
                        session.rows("SELECT count(*) AS n FROM scheduler_job")
                        time.sleep(0.005)

            readers = [threading.Thread(target=read) for _ in range(4)]
            for reader in readers:
                reader.start()
            largest = 0
            text = "UPDATE scheduler_job SET payload = :filler"
            for number in range(400):
                filler = {"filler": chr(97 + number % 26) * 200}
                store.database.run(lambda session, f=filler: session.execute(text, f))
                largest = max(largest, Path(f"{tmp_path / 'x.db'}-wal").stat().st_size)
            stop.set()
            for reader in readers:
                reader.join()
        assert largest < 16 * 1024 * 1024

    def test_in_memory_each_store_is_its_own(self) -> None:
        """Nothing is shared between two, and closing one does not empty it."""
        one, two = open_store("sqlite:///:memory:"), open_store("sqlite:///:memory:")
        assert one.pause_queue("q", now=NOW)
        assert two.queues() == []
        one.close()
        assert [queue.name for queue in one.queues()] == ["q"]

    @pytest.mark.parametrize("url", ["sqlite://x.db", "sqlite:///x.db?mode=ro", "sqlite:///x.db#a"])
    def test_urls_that_say_something_else(self, url: str) -> None:
        """Two slashes name a host, and parameters are not understood: both are refused with the right form."""
        with pytest.raises(ConfigurationError, match="three slashes"):
            open_store(url)


def test_reads_in_memory_inside_a_transaction(tmp_path: Path) -> None:
    """The thread that has the one connection in a transaction can read through it."""
    store = open_store("sqlite:///:memory:")
    with store.begin() as connection:
        connection.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')")  # type: ignore[attr-defined]
        assert [queue.name for queue in store.queues()] == ["q"]


def test_a_busy_database_is_a_conflict_that_is_tried_again(tmp_path: Path) -> None:
    """`Database.run` tries again after a conflict, with a new transaction each time, and gives up in the end."""
    with closing(at(tmp_path / "x.db")) as store:
        store.migrate()
        tries: list[int] = []

        def work(session: Any) -> int:
            tries.append(session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')"))
            if len(tries) < 4:
                raise Conflict("somebody was faster")
            return len(tries)

        assert store.database.run(work) == 4
        assert len(store.queues()) == 1

        def never(session: Any) -> None:
            tries.append(0)
            raise Conflict("always")

        with pytest.raises(Conflict, match="always"):
            store.database.run(never)
        assert len(tries) == 4 + store.database.TRIES
