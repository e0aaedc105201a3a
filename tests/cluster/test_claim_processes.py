"""Eight threads in each of four processes empty one queue: every job is claimed exactly once."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import JobStatus, Priority
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from tests.cluster.claimers import PATIENCE, claim_everything

JOBS = 20_000
PROCESSES = 4
NOW = datetime(2031, 3, 1, 12, tzinfo=UTC)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def submit(store: JobStore) -> set[UUID]:
    """Twenty thousand due jobs over all priorities and two queues."""
    specs = [
        JobSpec(
            job_id=new_id(),
            target="shop.jobs:charge",
            payload="{}",
            scheduled_at=NOW,
            priority=Priority(number % 5),
            stream=StreamKey(queue="emails" if number % 3 == 0 else "default"),
        )
        for number in range(JOBS)
    ]
    for begin in range(0, JOBS, 5000):
        store.insert(specs[begin : begin + 5000], now=NOW)
    return {spec.job_id for spec in specs}


def race(url: str) -> tuple[list[list[tuple[UUID, UUID]]], list[str]]:
    """What each process took, and everybody's errors."""
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(
            target=claim_everything, args=(url, f"node-{number}", NOW, start, answers), daemon=True
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        collected = [answers.get(timeout=PATIENCE) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    taken = [claims for claims, _ in collected]
    return taken, [error for _, errors in collected for error in errors]


def check(store: JobStore, url: str) -> None:
    ids = submit(store)
    taken, errors = race(url)
    assert errors == []
    counted = Counter(job_id for claims in taken for job_id, _ in claims)
    assert set(counted.values()) == {1}
    assert set(counted) == ids
    assert store.counts() == {**dict.fromkeys(JobStatus, 0), JobStatus.RUNNING: JOBS}
    held = [store.claims_of(f"node-{number}") for number in range(PROCESSES)]
    assert sorted(len(claims) for claims in held) == sorted(len(claims) for claims in taken)
    assert {pair for claims in held for pair in claims.items()} == {
        pair for claims in taken for pair in claims
    }
    assert all(taken), "one process got nothing: the race was none"


def test_sqlite(tmp_path: Path) -> None:
    """One file, 32 threads, 20,000 jobs: each claimed once, and nobody is told "database is locked"."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    store = open_store(url)
    store.migrate()
    try:
        check(store, url)
    finally:
        store.close()


def test_postgresql(postgresql_url: str) -> None:
    """One server, 32 threads, 20,000 jobs: each claimed once, and nobody fails."""
    store = open_store(postgresql_url)
    store.migrate()
    try:
        check(store, postgresql_url)
    finally:
        store.close()


def test_mysql(mysql_url: str) -> None:
    """The same: no deadlock and no lock wait reaches anybody."""
    store = open_store(mysql_url)
    store.migrate()
    try:
        check(store, mysql_url)
    finally:
        store.close()
