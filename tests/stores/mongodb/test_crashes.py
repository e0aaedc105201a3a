"""MongoDB and its clients die: nothing acknowledged is lost, nothing is done twice, nobody waits for the dead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from ratchet.model.claim import ClaimRequest
from ratchet.model.decision import Completion, Succeed
from ratchet.model.errors import StoreError, SubmissionBlocked
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects
from ratchet.stores.memory.finish import cancel
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.mongo.transaction.work import Work
from tests.services.mongodb import MongoDB
from tests.stores.mongo_store import MongoSteps, opened
from tests.support.waiting import until

PATIENT = Options(connect_timeout=30)


@pytest.fixture
def steps(mongodb_url: str) -> Iterator[MongoSteps]:
    with opened(mongodb_url) as found:
        yield found


def spec(**changes: str) -> JobSpec:
    """A job that is due."""
    return JobSpec(job_id=new_id(), target="a:b", payload="[]", scheduled_at=datetime.now(UTC), **changes)


class Load:
    """Threads that submit, and threads that claim and complete, through whatever happens to the server."""

    def __init__(self, store: MongoStore) -> None:
        self.store = store
        self.acknowledged: set[UUID] = set()
        self.won: list[UUID] = []
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,)) for work in (self._submit, self._drain) * 2
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _guard(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            self.errors.append(error)

    def _submit(self) -> None:
        number = 0
        while not self.stopping.is_set():
            number += 1
            keys = {"idempotency_key": str(new_id())} if number % 2 else {}
            job = spec(**keys)
            while True:  # what every caller does who was not told
                try:
                    (answer,) = self.store.insert([job], now=datetime.now(UTC))
                except (StoreError, SubmissionBlocked):
                    time.sleep(0.05)
                    continue
                assert (answer.job_id, answer.created) == (job.job_id, True)
                self.acknowledged.add(job.job_id)
                break

    def _drain(self) -> None:
        node = str(new_id())
        while not self.stopping.is_set():
            request = ClaimRequest(node_id=node, claim_id=new_id(), limit=20)
            try:
                jobs = self.store.claim_next_batch(request, now=datetime.now(UTC))
            except StoreError:
                self._hand_back(node)
                continue
            self._complete(
                [
                    Completion(claim=job.claim, decision=Succeed(), started_at=job.claim.claimed_at)
                    for job in jobs
                ]
            )
        self._hand_back(node)

    def _complete(self, completions: list[Completion]) -> None:
        while completions:
            try:
                answers = self.store.complete(completions, now=datetime.now(UTC))
            except StoreError:
                time.sleep(0.05)
                continue
            self.won += [answer.job_id for answer in answers if answer.won]
            return

    def _hand_back(self, node: str) -> None:
        while True:
            try:
                self.store.hand_back_unknown(node, [], now=datetime.now(UTC))
                return
            except StoreError:
                time.sleep(0.05)


@pytest.mark.slow
def test_the_server_is_killed_under_load() -> None:
    """SIGKILL, recovery, twice: every acknowledged job is there, every job ended is ended once, all go on by themselves."""
    with MongoDB() as server:
        store = MongoStore(server.create_database(), PATIENT)
        store.migrate()
        with Load(store) as load:
            for _ in range(2):
                time.sleep(1.5)
                server.kill()
                server.start()
                before = len(load.won)
                until(lambda before=before: len(load.won) > before, 40, "nobody went on after the restart")
        assert load.errors == []
        counts = store.counts()
        assert sum(counts.values()) == len(load.acknowledged)
        assert counts[JobStatus.RUNNING] == 0
        assert counts[JobStatus.SUCCEEDED] == len(load.won) == len(set(load.won))
        assert set(store.results(list(load.acknowledged))) == load.acknowledged
        for job_id in load.won[:200]:
            assert len(store.executions(job_id, uncounted=True)) == 1
        store.close()


def _die_in_a_transaction(url: str, job_id: UUID) -> None:
    store = MongoStore(url)

    def work(work: Work) -> None:
        cancel(work, work.jobs[job_id], Effects(), reason="r", now=datetime.now(UTC))
        work.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    store.database.run(work)


def test_a_client_that_dies_holds_nobody_up(steps: MongoSteps) -> None:
    """A process is killed between its writes and its commit: others go on within seconds, not after the server's minute."""
    job_id = steps.submit()
    child = multiprocessing.get_context("spawn").Process(
        target=_die_in_a_transaction, args=(steps.url, job_id)
    )
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    begin = time.monotonic()
    assert steps.store.pause(job_id, now=steps.now)
    assert time.monotonic() - begin < 8
    assert steps.status(job_id) is JobStatus.PAUSED


def test_a_caller_s_open_transaction_is_left_alone(steps: MongoSteps) -> None:
    """Users' code may take its time: whoever meets its jobs waits or gives up, and its commit stands."""
    steps.store.database.RETRY_FOR = 6.0
    spec = steps.spec(idempotency_key="k")
    with steps.store.begin() as session:
        steps.store.insert([spec], now=steps.now, within=session)
        time.sleep(steps.store.database.ABANDONED)
        with pytest.raises(SubmissionBlocked):
            steps.another().insert([steps.spec(idempotency_key="k")], now=steps.now)
    assert steps.status(spec.job_id) is JobStatus.PENDING
