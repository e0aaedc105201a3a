"""A result is whole or refused: what was too large to keep reaches nobody as if it were the result."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from ratchet import RESULT, RESULTS, JobResult, JobStatus, ResultTruncated
from ratchet.testing import ManualScheduler

SIZE, LIMIT = 288_891, 65_536

received: list[object] = []


def numbers(count: int) -> list[int]:
    return list(range(count))


def take(value: object, other: object = None) -> int:
    received.append(value)
    return 1


def is_long(result: list[int]) -> bool:
    received.append(result)
    return len(result) > 10


def has_items(ended: JobResult) -> bool:
    return bool(ended.result)


def is_quick(ended: JobResult) -> bool:
    return ended.succeeded and ended.duration is not None and ended.duration < timedelta(hours=1)


@pytest.fixture(autouse=True)
def _nothing_received() -> None:
    received.clear()


def test_asking_for_it(scheduler: ManualScheduler) -> None:
    """Handles and batches raise the error with job, size and limit; people see the beginning."""
    handle = scheduler.enqueue_now(numbers, 50_000)
    batch = scheduler.enqueue_batch("b").for_each([3, 50_000], numbers).submit()
    scheduler.drain()
    with pytest.raises(ResultTruncated) as refused:
        handle.result()
    assert (refused.value.job_id, refused.value.size, refused.value.limit) == (handle.id, SIZE, LIMIT)
    with pytest.raises(ResultTruncated, match="288,891 bytes"):
        asyncio.run(handle.aio.result())
    with pytest.raises(ResultTruncated, match="288,891 bytes"):
        batch.results()
    assert handle.wait() is JobStatus.SUCCEEDED
    assert handle.job().result_truncated
    assert handle.job().result.startswith("[0,1,2,")


def test_a_step_that_was_to_take_it_is_a_dead_letter(scheduler: ManualScheduler) -> None:
    """It is never called; it is not retried, because no attempt would get more; what follows it is canceled."""
    handle = (
        scheduler.enqueue(numbers, 50_000).then(take, RESULT).with_max_retries(5).then(take, RESULT).submit()
    )
    scheduler.drain()
    large, step, after = (one.job() for one in handle.steps)
    assert [large.status, step.status, after.status] == [
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
        JobStatus.CANCELED,
    ]
    (letter,) = scheduler.dead_letters.find()
    assert (letter.job_id, letter.reason, letter.attempts) == (step.id, "result truncated", 1)
    assert step.error_type == "ResultTruncated"
    assert step.error is not None
    assert f"job {large.id} takes 288,891 bytes as JSON, more than the limit of 65,536" in step.error
    assert received == []


def test_a_join_that_was_to_take_it_is_a_dead_letter(scheduler: ManualScheduler) -> None:
    """One cut result among many is enough, at any depth of the arguments."""
    parts = [scheduler.enqueue_now(numbers, count) for count in (1, 50_000, 2)]
    joined = scheduler.join(parts).then(take, {"all": RESULTS}).submit()
    scheduler.drain()
    assert (joined.job().status, joined.job().error_type) == (JobStatus.FAILED, "ResultTruncated")
    assert str(parts[1].id) in (joined.job().error or "")
    assert received == []


def test_a_step_that_does_not_take_it_runs(scheduler: ManualScheduler) -> None:
    """What does not name the result, or names only a whole one, is not affected."""
    chain = scheduler.enqueue(numbers, 50_000).then(take, "no result").submit()
    parts = [scheduler.enqueue_now(numbers, count) for count in (3, 50_000)]
    joined = scheduler.join(parts).then(take, RESULT).submit()
    scheduler.drain()
    assert (chain.last.result(), joined.result()) == (1, 1)
    assert sorted(received, key=str) == sorted(["no result", [0, 1, 2]], key=str)


def test_conditions_never_see_a_part_of_it(scheduler: ManualScheduler) -> None:
    """A condition on the result fails its branch; one that asks for something else is answered."""
    handle = (
        scheduler.enqueue(numbers, 50_000)
        .when_result(is_long, take, "long")
        .when(has_items, take, "items")
        .when(is_quick, take, "quick")
        .submit()
    )
    scheduler.drain()
    parent, long, items, quick = (one.job() for one in handle.steps)
    assert parent.status is JobStatus.SUCCEEDED
    for branch in (long, items):
        assert (branch.status, branch.error_type) == (JobStatus.FAILED, "ConditionFailed")
        assert "ResultTruncated: the result of job" in (branch.error or "")
    assert quick.status is JobStatus.SUCCEEDED
    assert received == ["quick"]
