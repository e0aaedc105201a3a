"""A move beside nodes that work and processes that submit: nothing is lost, nothing runs twice."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from ratchet import JobStatus, Options, Scheduler, new_id
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeSpec
from ratchet.model.errors import StoreMoved
from ratchet.model.moves import MoveRefused
from ratchet.moving import give_up, move
from ratchet.stores import open_store
from tests.moves import live_jobs
from tests.moves.conftest import MakeUrl
from tests.support.store_urls import KINDS
from tests.support.waiting import until

ALLOWED = ["tests.moves.live_jobs"]
OPTIONS = Options(concurrency=4, auto_migrate=True)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    live_jobs.ledger.clear()
    live_jobs.gate.clear()


def worker(url: str) -> Scheduler:
    return Scheduler(url, allow=ALLOWED, options=OPTIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_and_nothing_runs_twice(kind: str, make_url: MakeUrl) -> None:
    """
    A node works and a thread submits until it is refused, while the jobs are moved: each acknowledged job runs once, on one side or the
    other; a job that was running ends where it began; no node can join the old store.
    """
    there, here = make_url(kind), make_url("sqlite" if kind != "sqlite" else "postgresql")
    source, target = worker(there), worker(here)
    acknowledged: list[int] = []
    refused: list[StoreMoved] = []

    def submit() -> None:
        number = 0
        while not refused:
            try:
                source.enqueue_now(live_jobs.record, "job", number)
            except StoreMoved as error:
                refused.append(error)
            else:
                acknowledged.append(number)
                number += 1

    submitter = threading.Thread(target=submit)
    with source:
        submitter.start()
        until(lambda: len(live_jobs.ledger) > 20)  # job 0 is running all the time
        # It ends only when the move waits for it: nothing can be claimed from then on.
        opener = threading.Thread(target=lambda: _open_when_fenced(there))
        opener.start()
        report = move(there, here, wait=timedelta(seconds=120))
        submitter.join(60)
        opener.join(60)
    assert "moved to" in str(refused[0])
    with pytest.raises(StoreMoved):
        source.start()
    before = len(live_jobs.ledger)
    assert ("job", 0) in live_jobs.ledger
    with target:
        until(lambda: len(live_jobs.ledger) >= len(acknowledged))
        until(lambda: target.jobs.counts()[JobStatus.SUCCEEDED] == len(acknowledged))
    assert sorted(number for _, number in live_jobs.ledger) == acknowledged
    assert report.jobs == len(acknowledged)
    assert before <= len(acknowledged)
    source.close()
    target.close()


def _open_when_fenced(url: str) -> None:
    """Let the job go on as soon as nobody can claim; a claim that gets through is an error of the fence."""
    store = open_store(url, Options())
    try:
        until(lambda: _is_fenced(store))
    finally:
        live_jobs.gate.set()
        store.close()


def _is_fenced(store: object) -> bool:
    record = store.move_record()  # type: ignore[attr-defined]
    return record is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_fence(kind: str, make_url: MakeUrl) -> None:
    """
    A handle that was open before can claim nothing behind the fence, but can end what it runs and submit; given up, all is as
    before.
    """
    there, here = make_url(kind), make_url("sqlite")
    scheduler = worker(there)
    store = scheduler.store
    scheduler.migrate()
    now = store.database_time()
    node = NodeSpec(
        node_id="node",
        name="node",
        host="host",
        pid=1,
        version="0.1.0",
        beat_interval=timedelta(seconds=10),
        silence=timedelta(seconds=60),
    )
    store.register(node, now=now)
    scheduler.enqueue_now(live_jobs.record, "a", 1)
    scheduler.enqueue_now(live_jobs.record, "b", 2)

    def claim() -> list[object]:
        request = ClaimRequest(node_id="node", claim_id=new_id(), limit=1)
        return list(store.claim_next_batch(request, now=now + timedelta(hours=1)))

    [held] = claim()
    with pytest.raises(MoveRefused, match="--hand-back"):
        move(there, here, wait=0.2)
    with pytest.raises(StoreMoved, match="moved to"):
        claim()
    scheduler.enqueue_now(
        live_jobs.record, "c", 3
    )  # what runs may submit, and so may others until it has ended
    with pytest.raises(StoreMoved):
        scheduler.start()
    assert give_up(there)
    assert not give_up(there)
    assert len(claim()) == 1
    assert held
    with pytest.raises(MoveRefused, match="2 runs have not ended"):
        move(there, here, wait=0.2)
    report = move(there, here, wait=0.2, hand_back=True)
    assert report.handed_back == 2
    assert report.jobs == 3
    found = open_store(here, Options())
    assert found.counts()[JobStatus.PENDING] == 3
    assert {found.get(job.job_id).attempts for job in found.find(_all(), limit=10).items} == {0}  # type: ignore[union-attr]
    found.close()
    scheduler.close()


def _all() -> object:
    from ratchet import JobFilter

    return JobFilter()
