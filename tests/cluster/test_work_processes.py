"""Eight threads in each of four processes submit, claim and complete at once: every job ends exactly once."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.status import Busy, JobStatus
from ratchet.stores import open_store
from tests.cluster.measured import is_quiet, record
from tests.cluster.toilers import PATIENCE, Toiled, toil

#: Every submission is a transaction of its own, which MongoDB takes its time for. `make rates` sets
#: ``RATCHET_TOIL_JOBS=20000`` for all, and has the rates written down (see `measured`).
JOBS = {"postgresql": 20_000, "mysql": 20_000, "mongodb": 4_000}
PROCESSES = 4
NOW = datetime(2031, 3, 1, 12, tzinfo=UTC)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", list(JOBS))
def test_every_job_is_counted_once(kind: str, request: pytest.FixtureRequest) -> None:
    """Thousands of jobs with and without keys: nobody hears of a deadlock or a conflict, and no key stays taken."""
    jobs = int(os.environ.get("RATCHET_TOIL_JOBS", JOBS[kind]))
    url, quiet = request.getfixturevalue(f"{kind}_url"), is_quiet()
    store = open_store(url)
    store.migrate()
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(
            target=toil,
            args=(url, f"node-{number}", jobs // PROCESSES, NOW, start, answers),
            daemon=True,
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        collected: list[Toiled] = [answers.get(timeout=PATIENCE) for _ in processes]
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    assert [error for one in collected for error in one.errors] == []
    stored = [job_id for one in collected for job_id in one.stored]
    finished = Counter(job_id for one in collected for job_id in one.finished)
    assert len(set(stored)) == jobs
    assert set(finished) == set(stored)
    assert set(finished.values()) == {1}
    assert store.counts() == {**dict.fromkeys(JobStatus, 0), JobStatus.SUCCEEDED: jobs}
    keys = {record.business_key for record in store.find(JobFilter(), limit=200)} - {None}
    assert keys
    again = [replace(_job(), business_key=key, busy=Busy.RAISE) for key in sorted(keys, key=str)]
    assert all(answer.created for answer in store.insert(again, now=NOW))
    store.close()
    seconds = max(one.ended for one in collected) - min(one.begun for one in collected)
    record("work", kind, jobs=jobs, rate=round(jobs / seconds), quiet=quiet)


def _job() -> JobSpec:
    return JobSpec(job_id=new_id(), target="shop.jobs:charge", payload="{}", scheduled_at=NOW)
