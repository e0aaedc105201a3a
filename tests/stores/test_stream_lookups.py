"""What it costs a process that has not met the queues of a store to show their jobs: a dashboard beside the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet import JobFilter, JobStatus, Scheduler
from tests.stores.counting import Statements
from tests.support.running_jobs import add

QUEUES = 30


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler on a store with one job in each of many queues, all submitted by another."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    owner = Scheduler(url, allow=["tests.support"])
    owner.migrate()
    for number in range(QUEUES):
        owner.enqueue(add, number, 1).with_queue(f"queue-{number}").submit()
    owner.close()
    made = Scheduler(url, allow=["tests.support"])
    made.jobs.find(JobFilter(statuses=[JobStatus.FAILED]))  # connections and settings
    yield made
    made.close()


def lookups(sent: list[str]) -> int:
    """How many of the statements read the keys of streams."""
    return sum("FROM scheduler_stream" in text or text.startswith("SELECT stream_id, queue") for text in sent)


def test_statistics(stranger: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """All queues are looked up at once, the first time; then they are known."""
    statements = Statements(monkeypatch)
    first = statements.of(stranger.jobs.statistics)
    again = statements.of(stranger.jobs.statistics)
    assert len(first) - len(again) == 1
    assert lookups(again) < lookups(first) <= 2
    assert {flow.name for flow in stranger.jobs.statistics().queues} == {f"queue-{n}" for n in range(QUEUES)}


def test_a_page_of_jobs(stranger: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page costs the same number of statements, whether its jobs are in one queue or in many."""
    statements = Statements(monkeypatch)
    many = statements.of(lambda: stranger.jobs.find(limit=QUEUES))
    one = statements.of(lambda: stranger.jobs.find(limit=1))
    assert len(many) == len(one)
    assert [job.queue for job in stranger.jobs.find(limit=3)] == ["queue-29", "queue-28", "queue-27"]


def test_counting_what_waits(stranger: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the queue alone says how many there are, no job is looked up; with other criteria they are."""
    statements = Statements(monkeypatch)
    pending = JobFilter(statuses=[JobStatus.PENDING])
    (alone,) = statements.of(lambda: stranger.jobs.count(pending, at_most=100))
    assert "JOIN" not in alone
    assert stranger.jobs.count(pending, at_most=100) == QUEUES
    assert stranger.jobs.count(pending, at_most=7) == 7
    tagged = JobFilter(statuses=[JobStatus.PENDING], tags=["none"])
    assert stranger.jobs.count(tagged, at_most=100) == 0
    queue = JobFilter(statuses=[JobStatus.PENDING], queue="queue-4")
    assert stranger.jobs.count(queue, at_most=100) == 1
