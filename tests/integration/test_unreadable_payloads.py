"""A payload that cannot be read makes one dead letter, on every store, and spoils neither a queue nor a page."""

from __future__ import annotations

import json

import pytest

from ratchet import JobStatus
from ratchet.model.job import JobSpec
from ratchet.model.payload import bounds
from ratchet.testing import ManualScheduler

MODULUS = 2**61 - 1
ran: list[int] = []

DEEP = "[" * 2_000 + "]" * 2_000
LESS_DEEP = "[" * 500 + "]" * 500
COLLIDING = json.dumps(
    {"$": "set", "v": [{"$": "int", "v": hex(index * MODULUS)} for index in range(1, 3_001)]}
)
PAYLOADS = {
    "deep": f'{{"args":[{DEEP}],"kwargs":{{}}}}',
    "less deep": f'{{"args":[{LESS_DEEP}],"kwargs":{{}}}}',
    "colliding": f'{{"args":[{COLLIDING}],"kwargs":{{}}}}',
    "no JSON": "not json",
    "damaged tag": '{"args":[{"$":"datetime","v":"2026-01-01T00:00:00","z":"America"}],"kwargs":{}}',
}


def count(number: object) -> None:
    assert isinstance(number, int)
    ran.append(number)


def take(value: object) -> None:
    """Anything will do."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def test_it_is_a_dead_letter_and_the_others_run(scheduler: ManualScheduler) -> None:
    """Each has the reason `unreadable` after one attempt, whatever its retries; every other job succeeds."""
    now = scheduler.backend.now()
    bad = {
        name: JobSpec(
            job_id=scheduler.backend.ids(),
            target=f"{__name__}:count",
            payload=payload,
            scheduled_at=now,
            max_retries=5,
        )
        for name, payload in PAYLOADS.items()
    }
    handles = [scheduler.enqueue_now(count, number) for number in range(3)]
    scheduler.store.insert(list(bad.values()), now=now)
    handles += [scheduler.enqueue_now(count, number) for number in range(3, 6)]

    assert len(scheduler.jobs.find(limit=100)) == len(bad) + 6  # a page of a listing, before
    scheduler.drain()
    assert sorted(ran) == [0, 1, 2, 3, 4, 5]
    assert {handle.status() for handle in handles} == {JobStatus.SUCCEEDED}
    letters = {letter.job_id: letter for letter in scheduler.dead_letters.find()}
    assert set(letters) == {spec.job_id for spec in bad.values()}
    for letter in letters.values():
        assert (letter.reason, letter.attempts, letter.error_type) == ("unreadable", 1, "UnreadablePayload")

    shown = {job.id: job for job in scheduler.jobs.find(limit=100)}  # and after
    assert len(shown) == len(bad) + 6
    for name in ("deep", "less deep", "colliding"):
        repr(shown[bad[name].job_id])
    assert shown[bad["no JSON"].job_id].args == ("not json",)
    assert shown[bad["deep"].job_id].args[0].startswith('{"args":[[[[')


def test_it_runs_once_it_can_be_read(scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead letter keeps its row: a retry by hand reads it again, and runs it where it can be read now."""
    now = scheduler.backend.now()
    spec = JobSpec(
        job_id=scheduler.backend.ids(),
        target=f"{__name__}:take",
        payload=PAYLOADS["less deep"],
        scheduled_at=now,
    )
    scheduler.store.insert([spec], now=now)
    scheduler.drain()
    assert scheduler.retry_job(spec.job_id)
    scheduler.drain()
    (letter,) = scheduler.dead_letters.find()
    assert letter.reason == "unreadable"
    monkeypatch.setattr(bounds, "MOST_JSON_LEVELS", 600)
    assert scheduler.retry_job(spec.job_id)
    scheduler.drain()
    assert scheduler.jobs.get(spec.job_id).status is JobStatus.SUCCEEDED
