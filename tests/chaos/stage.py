"""The stage: a store, its server, the workers on it, and everything that is done to them."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ratchet import JobFilter, JobStatus, RatchetError, Scheduler
from ratchet.model.options import Options
from ratchet.stores import open_store
from tests.chaos import diary, jobs, ledger
from tests.cluster.workers import Worker
from tests.services.kinds import server_class
from tests.services.server import Server
from tests.support.waiting import until

APP = "tests.chaos.app:scheduler"
ENDED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)
#: What a node logs if it ends while the database is away.
UNSAID_GOODBYE = "the node could not deregister"
SERVERS = {"postgresql": "postgresql", "mysql": "mariadb", "mongodb": "mongodb"}


@dataclass(frozen=True)
class Blow:
    """A worker was killed or stopped: all of its group, or the one process *pid*."""

    at: float
    group: int
    pid: int | None = None

    def hits(self, entry: diary.Entry) -> bool:
        return entry.group == self.group and self.pid in (None, entry.pid)


class Stage:
    """
    One play's cluster.

    With *url* it plays on a store that somebody else provides; without, it starts a server of its
    own, which it may then hurt.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        url: str | None = None,
        server: Server | None = None,
        options: Options | None = None,
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.book = str(folder / "diary")
        self.server = server
        if url is None and kind == "sqlite":
            url = f"sqlite:///{folder / 'jobs.db'}"
        elif url is None:
            self.server = server or server_class(SERVERS[kind])()
            url = self.server.start().create_database()
        self.url = url
        self.workers: list[Worker] = []  # that should be at work
        self.blows: list[Blow] = []
        self.hurt: Counter[str] = Counter()  # how often each worker may rightly be declared dead, by its name
        self.acknowledged: dict[int, UUID] = {}
        self.refused: list[int] = []  # submissions that raised: nothing is promised for them
        self.refusals: Counter[str] = Counter()  # what they raised
        self.longest_call = 0.0  # seconds that a submission took
        self.poisons: set[int] = set()  # jobs that deserve to be dead letters
        self.recoveries: list[float] = []  # of the database, where a scenario measures it
        self.halts: list[tuple[float, float]] = []  # seconds without a primary, and without a job that ends
        self.notes: list[str] = []
        self.seed = 0
        self.jobs = 0  # where a scenario keeps its own account of them
        self.broken: list[str] = []  # what a scenario itself found against its promise
        self._started: list[Worker] = []
        self._numbers = 0
        self._lock = threading.Lock()
        store = open_store(self.url, Options())
        store.migrate()
        store.close()
        self.scheduler = Scheduler(self.url, allow=["tests.chaos.jobs"], options=options)
        with self.store.begin() as connection:
            ledger.create(connection)

    @property
    def store(self) -> Any:
        """The store itself, for looking at what the scheduler does not show."""
        return self.scheduler._core.store

    def close(self) -> None:
        """End every process that this stage started."""
        for worker in self._started:
            worker.close()
        self.scheduler.close()
        if self.server is not None:
            self.server.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- workers

    def start_worker(
        self, *arguments: str, app: str = APP, url: str | None = None, **environment: str
    ) -> Worker:
        """A new worker under a name that no other has had."""
        name = f"worker-{len(self._started)}"
        worker = Worker(url or self.url, self.folder, name, *arguments, app=app, environment=environment)
        self._started.append(worker)
        self.workers.append(worker)
        return worker

    def start_workers(self, count: int, *arguments: str) -> list[Worker]:
        """Several, all ready."""
        workers = [self.start_worker(*arguments) for _ in range(count)]
        for worker in workers:
            worker.wait_ready(seconds=60)
        return workers

    def left_in_silence(self) -> Counter[str]:
        """How often processes of each worker ended without being able to deregister."""
        return Counter({worker.name: worker.log.count(UNSAID_GOODBYE) for worker in self._started})

    def logs(self) -> str:
        """What all workers have said."""
        return "\n".join(f"--- {worker.name}\n{worker.log}" for worker in self._started)

    # --- blows

    def kill(self, worker: Worker) -> None:
        """Kill -9 for a worker, supervisor and all."""
        self.note_blow(worker)
        worker.kill_group()
        self.workers.remove(worker)

    def kill_child(self, worker: Worker, pid: int) -> None:
        """Kill -9 for one child alone; its supervisor lives and starts another."""
        self.note_blow(worker, pid)
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def frozen(self, worker: Worker, pid: int | None = None) -> Iterator[None]:
        """SIGSTOP for a worker or one of its processes; SIGCONT at the end."""
        self.note_blow(worker, pid)
        stop, go = (os.killpg, os.killpg) if pid is None else (os.kill, os.kill)
        target = worker.process.pid if pid is None else pid
        stop(target, signal.SIGSTOP)
        try:
            yield
        finally:
            go(target, signal.SIGCONT)

    def note_blow(self, worker: Worker, pid: int | None = None) -> None:
        """From now on this worker may be declared dead, once, and its jobs are waited for elsewhere."""
        # Before the blow: a worker that dies before its supervisor could say its name was killed all the same.
        self.hurt[worker.name] += 1
        self.blows.append(Blow(time.monotonic(), worker.process.pid, pid))

    def forget_blow(self) -> None:
        """The last blow is not measured; whoever it hit may still be declared dead for it."""
        self.blows.pop()

    def outage(self, seconds: float) -> None:
        """The database is away for so long; its server is killed, SQLite's write lock is held by a stranger."""
        if self.server is None:
            stranger = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
            stranger.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            stranger.execute("ROLLBACK")
            stranger.close()
            return
        self.server.kill()
        time.sleep(seconds)
        self.server.start()

    # --- jobs

    def submit(
        self,
        target: Callable[..., Any],
        *arguments: Any,
        retries: int = 0,
        delay: float = 0.0,
        by: Scheduler | None = None,
        within: Any = None,
    ) -> int | None:
        """
        One job; its number once it is acknowledged, None if it was refused.

        *by*: another scheduler than the stage's own. *within*: a transaction that the caller commits, or the play is void.
        """
        (number,) = self.take_numbers(1)
        draft = (by or self.scheduler).enqueue(target, self.book, number, *arguments)
        if retries:
            draft = draft.with_max_retries(retries)
        if delay:
            draft = draft.with_delay(delay)
        begun = time.monotonic()
        try:
            handle = draft.submit(within=within)
        except RatchetError as error:
            self.refused.append(number)
            self.refusals[type(error).__name__] += 1
            return None
        finally:
            self.longest_call = max(self.longest_call, time.monotonic() - begun)
        self.acknowledged[number] = handle.id
        return number

    def take_numbers(self, count: int) -> list[int]:
        """Numbers that no other job has."""
        with self._lock:
            first, self._numbers = self._numbers, self._numbers + count
        return list(range(first, first + count))

    def submit_many(self, target: Callable[..., Any], count: int, *arguments: Any) -> list[int]:
        """Many jobs at once; their numbers."""
        numbers = self.take_numbers(count)
        handles = self.scheduler.enqueue_many(target, [(self.book, number, *arguments) for number in numbers])
        self.acknowledged |= {number: handle.id for number, handle in zip(numbers, handles, strict=True)}
        return numbers

    @contextmanager
    def load(self, per_second: float, rest: float, *, hold: float = 0.0, retries: int = 0) -> Iterator[None]:
        """Payments arrive steadily from a thread of this process until the block ends."""
        over = threading.Event()

        def submit() -> None:
            while not over.wait(1 / per_second):
                self.submit(jobs.pay, rest, hold, retries=retries)

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60)

    def wait_for_work(self, worker: Worker, seconds: float = 60.0) -> diary.Entry:
        """A run that has just begun on this worker: whatever is done now is done in the middle of it."""
        found: list[diary.Entry] = []

        def has_begun() -> bool:
            latest = time.monotonic() - 0.5
            runs = diary.unended(self.book)
            found[:] = [run for run in runs if run.group == worker.process.pid and run.at > latest]
            return bool(found)

        until(has_begun, seconds, f"{worker.name} takes no work:\n{worker.log}")
        return found[-1]

    def wait_for_progress(self, seconds: float = 90.0) -> float:
        """Wait for the next run to come to its end; how long that took."""
        before = time.monotonic()
        return until(
            lambda: any(e.verb == "end" and e.at > before for e in diary.read(self.book)),
            seconds,
            f"no job ends any more:\n{self.logs()}",
        )

    def wait_until_taken_over(self, run: diary.Entry, seconds: float = 60.0) -> bool:
        """
        Until another process has started the job of *run*; True then.

        False if the job has ended without: on a busy machine the blow may come after the run's end.
        """
        job_id = self.acknowledged[run.number]

        def is_restarted() -> bool:
            return any(
                e.verb == "start" and e.number == run.number and e.at > run.at for e in diary.read(self.book)
            )

        until(
            lambda: is_restarted() or self.scheduler.jobs.get(job_id).status in ENDED,
            seconds,
            f"job {run.number} was not started again:\n{self.logs()}",
        )
        return is_restarted()

    def wait_until_all_ended(self, seconds: float = 180.0) -> None:
        """Until no job waits or runs; a store that does not answer is asked again."""
        live = JobFilter(statuses=[JobStatus.PENDING, JobStatus.RUNNING])

        def is_over() -> bool:
            try:
                return self.scheduler.jobs.count(live) == 0
            except RatchetError:
                return False

        try:
            until(is_over, seconds, "jobs are stranded")
        except AssertionError as error:
            self.notes.append(str(error))  # the history says which ones
