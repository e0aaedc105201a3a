"""Waiting for results: one question to the store for everybody who waits in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from uuid import UUID

from ratchet.model.clock import Clock
from ratchet.model.errors import JobNotFound, StoreUnavailable
from ratchet.model.job import JobResultRow
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.shield import undisturbed
from ratchet.spi.store.jobs import JobCrudStore

#: How often the store is asked: soon at first, then more and more rarely.
FIRST_PAUSE = 0.002
LONGEST_PAUSE = 0.25

#: Seconds after which a job that cannot be seen is taken for gone: the transaction it was submitted in, in another
#: process, may be about to commit.
UNSEEN_FOR = 5.0


class ResultWaiter:
    """
    Answers "has this job ended?" for any number of waiting threads with one query at a time.

    Jobs that end in this process are noticed at once; for the others the store is asked at growing
    intervals. The thread exists only while somebody waits.
    """

    def __init__(self, store: JobCrudStore, clock: Clock, executor: ExecutorProvider) -> None:
        self._store = store
        self._clock = clock
        self._executor = executor
        self._lock = threading.Lock()
        self._waiting: dict[UUID, list[_Wait]] = {}
        self._wakeup = threading.Event()
        self._thread: threading.Thread | None = None

    def wait(self, job_id: UUID, timeout: float | None = None, *, uncommitted: bool = False) -> JobResultRow:
        """
        The job's end; `TimeoutError` if it has not ended in time, `JobNotFound` if it is gone.

        A job that has been seen and cannot be seen any more is gone, and so is one that could not be seen for
        `UNSEEN_FOR` seconds. The latter is not said of an *uncommitted* job: its transaction may still be open.
        """
        row = self._ask([job_id]).get(job_id)
        if row is not None and row.status.is_terminal:
            return row
        wait = _Wait(job_id, uncommitted=uncommitted, seen=row is not None)
        with undisturbed():
            with self._lock:
                self._waiting.setdefault(job_id, []).append(wait)
                self._ensure_thread()
            self._wakeup.set()
        try:
            if not wait.done.wait(timeout):
                raise TimeoutError(f"job {job_id} has not ended after {timeout:g} s")
        finally:
            self._forget(job_id, wait)
        if wait.row is None:
            raise JobNotFound(job_id)
        return wait.row

    def notice(self, job_ids: Iterable[UUID]) -> None:
        """These jobs have just ended in this process."""
        if self._waiting and not self._waiting.keys().isdisjoint(job_ids):
            self._wakeup.set()

    def _forget(self, job_id: UUID, wait: _Wait) -> None:
        with self._lock:
            waits = self._waiting.get(job_id)
            if waits is not None and wait in waits:
                waits.remove(wait)
                if not waits:
                    del self._waiting[job_id]

    def _ensure_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = self._executor.thread(self._run, name="ratchet-waiter")
            self._thread.start()

    def _ask(self, job_ids: list[UUID]) -> dict[UUID, JobResultRow]:
        return self._store.results(job_ids)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        known: set[UUID] = set()
        unseen: dict[UUID, float] = {}  # since when
        while True:
            self._wakeup.clear()
            with self._lock:
                # Who comes later may have seen what the answer to this question does not show yet.
                waited = {job_id: tuple(waits) for job_id, waits in self._waiting.items()}
                if not waited:
                    self._thread = None
                    return
            if not known.issuperset(waited):
                pause = FIRST_PAUSE  # a new job is waited for: look soon and often again
            known = set(waited)
            try:
                rows = self._ask(list(waited))
                self._deliver(rows)
                at = self._clock.monotonic()
                unseen = {job_id: unseen.get(job_id, at) for job_id in waited if job_id not in rows}
                for job_id, since in unseen.items():
                    self._give_up(waited[job_id], is_gone=at - since >= UNSEEN_FOR)
            except StoreUnavailable:
                pause = LONGEST_PAUSE
            if self._wakeup.wait(pause):
                pause = FIRST_PAUSE
            else:
                pause = min(LONGEST_PAUSE, pause * 1.5)

    def _deliver(self, rows: dict[UUID, JobResultRow]) -> None:
        for job_id, row in rows.items():
            if not row.status.is_terminal:
                for wait in self._waiting.get(job_id, ()):
                    wait.seen = True
                continue
            with self._lock:
                waits = self._waiting.pop(job_id, [])
            for wait in waits:
                wait.row = row
                wait.done.set()

    def _give_up(self, waits: Iterable[_Wait], *, is_gone: bool) -> None:
        """The job cannot be seen: tell those who have seen it; *is_gone*: and those who do not wait for a commit."""
        for wait in waits:
            if wait.seen or (is_gone and not wait.uncommitted):
                self._forget(wait.job_id, wait)
                wait.done.set()


class _Wait:
    """Somebody who waits for a job. When it is ``done`` without a row, the job is gone."""

    __slots__ = ("done", "job_id", "row", "seen", "uncommitted")

    def __init__(self, job_id: UUID, *, uncommitted: bool, seen: bool = False) -> None:
        self.job_id = job_id
        self.done = threading.Event()
        self.row: JobResultRow | None = None
        self.uncommitted = uncommitted  # its transaction may still be open
        self.seen = seen
