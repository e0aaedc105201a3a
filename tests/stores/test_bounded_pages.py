"""A search that no index serves looks at so many jobs for a page, and its pages together have all that match."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.clock import ManualClock
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter, JobSpec, SortBy, StreamKey
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.spi.store import JobStore
from ratchet.stores import listing, open_store
from tests.support.store_urls import KINDS, fresh_url

START = datetime(2026, 1, 1, tzinfo=UTC)
JOBS = 60
#: Jobs that a page looks at.
STRETCHES = (3, 5, 12)
PENDING, CANCELED = JobStatus.PENDING, JobStatus.CANCELED


@pytest.fixture(params=KINDS)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobStore]:
    """Sixty jobs, of which every seventh is of another queue, target and tag, and every fifth is canceled."""
    opened = open_store(fresh_url(request.param, request, tmp_path), Options())
    opened.migrate()
    clock = ManualClock(START)
    ids = IdFactory.seeded(clock, 7)
    for number in range(JOBS):
        clock.advance(timedelta(minutes=1))
        rare = number % 7 == 0
        job_id = ids()
        spec = JobSpec(
            job_id=job_id,
            target="shop:rare" if rare else "shop:usual",
            payload='{"args":[],"kwargs":{}}',
            scheduled_at=clock.now(),
            stream=StreamKey(queue="rare" if rare else "usual"),
            tags=("rare",) if rare else (),
        )
        opened.insert([spec], now=clock.now())
        if number % 5 == 0:
            opened.cancel(job_id, reason="test", now=clock.now())
    monkeypatch.setattr(listing, "STRETCHES", STRETCHES)
    yield opened
    opened.close()


def pages(store: JobStore, where: JobFilter, *, descending: bool = True, limit: int = 4) -> list[list[UUID]]:
    """All pages of a search, each as ids."""
    found, cursor = [], None
    while True:
        page = store.find(where, limit=limit, cursor=cursor, descending=descending)
        found.append([job.job_id for job in page])
        cursor = page.next_cursor
        if cursor is None:
            return found


CRITERIA: list[tuple[dict[str, Any], Callable[[int], bool]]] = [
    ({"targets": ["shop:rare"]}, lambda number: number % 7 == 0),
    ({"queue": "rare"}, lambda number: number % 7 == 0),
    ({"statuses": [CANCELED]}, lambda number: number % 5 == 0),
    ({"statuses": [PENDING]}, lambda number: number % 5 != 0),
    ({"statuses": [PENDING], "queue": "rare"}, lambda number: number % 7 == 0 and number % 5 != 0),
    ({"statuses": [PENDING, CANCELED], "targets": ["shop:rare"]}, lambda number: number % 7 == 0),
    ({"tags": ["rare"]}, lambda number: number % 7 == 0),
    ({"tags": ["rare"], "statuses": [CANCELED]}, lambda number: number % 35 == 0),
    ({"tags": ["rare"], "statuses": [PENDING]}, lambda number: number % 7 == 0 and number % 5 != 0),
    ({"targets": ["shop:nothing"]}, lambda number: False),
    ({"queue": "nobody"}, lambda number: False),
    *(
        ({"statuses": [one]}, lambda number: False)
        for one in (JobStatus.PAUSED, JobStatus.RUNNING, JobStatus.FAILED)
    ),
]


def test_pages_have_all_that_match(store: JobStore) -> None:
    """Once each and in order, though a page may be empty; jobs in the archive too, where they are asked for."""
    now = START + timedelta(days=30)
    assert store.archive(before=now, limit=8, now=now) == 8
    (everything,) = pages(store, JobFilter(include_archived=True), descending=False, limit=1000)
    live = set(pages(store, JobFilter(), limit=1000)[0])
    assert (len(everything), len(live)) == (JOBS, JOBS - 8)
    for (criteria, matches), archived, descending in product(CRITERIA, (True, False), (True, False)):
        expected = [
            job_id
            for number, job_id in enumerate(everything)
            if matches(number) and (archived or job_id in live)
        ]
        found = pages(store, JobFilter(include_archived=archived, **criteria), descending=descending)
        assert all(len(page) <= 4 for page in found)
        ids = [job_id for page in found for job_id in page]
        assert ids == (expected[::-1] if descending else expected), (criteria, archived, descending)


def test_a_page_looks_at_no_more(store: JobStore) -> None:
    """Where nothing matches, it ends after so many jobs, with a cursor that goes on behind them."""
    page = store.find(JobFilter(targets=["shop:nothing"]), limit=4)
    assert (list(page), page.next_cursor is not None) == ([], True)
    assert len(pages(store, JobFilter(targets=["shop:nothing"]))) == JOBS // sum(STRETCHES) + 1
    unused = store.find(JobFilter(queue="nobody"), limit=4)
    assert (list(unused), unused.next_cursor) == ([], None)


def test_a_sorted_listing(store: JobStore) -> None:
    """It lists matching jobs by another time than that of their creation, with criteria that no index serves."""
    page = store.find(JobFilter(targets=["shop:rare"]), limit=100, sort=SortBy.SCHEDULED)
    due = [job.scheduled_at for job in page]
    assert due == sorted(due, reverse=True)
    assert len(due) == len(range(0, JOBS, 7))
