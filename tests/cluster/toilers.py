"""A process of eight threads that submit, claim and complete at once; what each finished, and what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from multiprocessing.synchronize import Barrier
from typing import NamedTuple, Protocol
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.decision import Completion, Succeed
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import Priority
from ratchet.spi.store import JobStore
from ratchet.stores import open_store

THREADS = 8
BATCH = 25
PATIENCE = 500.0


class Toiled(NamedTuple):
    """What one process stored and finished, what went wrong, and from when to when it was at work."""

    stored: list[UUID]
    finished: list[UUID]
    errors: list[str]
    begun: float  # by the clock that all processes of a machine share
    ended: float


class Answers(Protocol):
    """Where a process puts what it has to say."""

    def put(self, answer: Toiled) -> None: ...


def toil(url: str, node: str, jobs: int, now: datetime, start: Barrier, answers: Answers) -> None:
    """The life of one process: what it has to say is put into *answers*."""
    store = open_store(url)
    store.counts()  # connected before the race begins
    stored: list[UUID] = []
    finished: list[UUID] = []
    errors: list[str] = []
    start.wait(PATIENCE)
    begun = time.monotonic()
    threads = [
        threading.Thread(
            target=guarded(lambda: _toil(store, node, jobs // THREADS, now, stored, finished), errors)
        )
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.monotonic()
    store.close()
    answers.put(Toiled(stored, finished, errors, begun, ended))


def _toil(
    store: JobStore, node: str, jobs: int, now: datetime, stored: list[UUID], finished: list[UUID]
) -> None:
    left, waiting = jobs, True
    while left or waiting:
        if left:
            specs = [_spec(number, now) for number in range(min(left, BATCH))]
            stored.extend(answer.job_id for answer in store.insert(specs, now=now))
            left -= len(specs)
        request = ClaimRequest(node_id=node, claim_id=new_id(), limit=BATCH)
        claims = [found.claim for found in store.claim_next_batch(request, now=now)]
        # an empty claim may only have lost a race for the same jobs
        waiting = bool(claims) or store.next_due_at(request, now=now) is not None
        ends = [Completion(claim=claim, decision=Succeed(result="1"), started_at=now) for claim in claims]
        finished.extend(answer.job_id for answer in store.complete(ends, now=now) if answer.won)


def _spec(number: int, now: datetime) -> JobSpec:
    job_id = new_id()
    return JobSpec(
        job_id=job_id,
        target="shop.jobs:charge",
        payload="{}",
        scheduled_at=now,
        priority=Priority(number % 5),
        stream=StreamKey(queue="emails" if number % 3 == 0 else "default"),
        idempotency_key=str(job_id) if number % 5 == 0 else None,
        business_key=f"key-{job_id}" if number % 7 == 0 else None,
    )


def guarded(work: Callable[[], None], errors: list[str]) -> Callable[[], None]:
    """The same work for a thread; what it raises is noted in *errors*."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    return run
