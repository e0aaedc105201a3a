"""A bit of everything through a running scheduler, the same on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet import RESULT, RESULTS, JobFilter, JobStatus, Options, Scheduler
from tests.support.running_jobs import HERE, add, add_one, failing, nap, slow_add, total
from tests.support.store_urls import KINDS, fresh_url


@pytest.fixture(params=["sqlite in memory", *KINDS])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler with real threads, which is not running yet."""
    in_memory = request.param == "sqlite in memory"
    url = "sqlite:///:memory:" if in_memory else fresh_url(request.param, request, tmp_path)
    made = Scheduler(url, allow=[HERE], options=Options(auto_migrate=True))
    yield made
    made.close()


def test_the_same_on_every_store(stored: Scheduler) -> None:
    """Single jobs, chains, joins, batches, schedules, signals and control verbs, with real threads."""
    later = stored.schedule(3600, add, 1, 2).with_tags("later").with_business_key("k").submit()
    with stored:
        chain = stored.enqueue(add, 1, 2).then(add, RESULT, 10).then_on_failure(failing).submit()
        many = stored.enqueue_many(add, [(number, 1) for number in range(50)])
        joined = stored.join([chain, many[3]]).then(total, RESULTS).submit()
        batch = stored.enqueue_batch("b").for_each([1, 2, 3], add_one).then_on_batch_success(nap, 0).submit()
        bad = stored.enqueue_now(failing)
        waiting = stored.enqueue(add, 5, 5).await_signal("go").submit()
        schedule = stored.schedule_recurring("0 0 1 1 *", add_one, 1, name="yearly")
        assert chain.last.result(timeout=30) == 13
        assert [handle.result(timeout=30) for handle in many] == [number + 1 for number in range(50)]
        assert joined.result(timeout=30) == 7
        assert batch.wait(timeout=30).completed_items == 3
        assert batch.results() == [2, 3, 4]
        assert bad.wait(timeout=30) is JobStatus.FAILED
        assert stored.signal("go") == 1
        assert waiting.result(timeout=30) == 10
        assert schedule.trigger().result(timeout=30) == 2
        assert asyncio.run(slow_add(1, 1)) == 2
        assert asyncio.run(stored.enqueue_now(slow_add, 4, 4).aio.result(timeout=30)) == 8
    assert [reason.code for reason in later.explain()] == ["not_due"]
    replacement = stored.replace(later.id, add, 3, 4)
    assert replacement is not None
    assert (replacement.pause(), replacement.resume(), replacement.cancel()) == (True, True, True)
    assert [letter.job_id for letter in stored.dead_letters.find()] == [bad.id]
    assert stored.jobs.find(JobFilter(tags=["later"])).items[0].superseded_by == replacement.id
    assert stored.health()["reachable"]
