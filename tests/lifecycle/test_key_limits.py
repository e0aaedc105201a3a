"""Limits that come with a job: a rate for its key, and a weight for its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ratchet import InvalidJob, JobBuilder, JobStatus, Options, Scheduler
from tests.lifecycle import jobs
from tests.support.waiting import until


@pytest.fixture
def one_by_one(url: str) -> Iterator[Scheduler]:
    """A node that runs one job at a time, so that jobs start in the order in which they were claimed."""
    jobs.calls.clear()
    made = Scheduler(url, allow=["tests.lifecycle"], options=Options(concurrency=1))
    yield made
    made.close()


def served(scheduler: Scheduler, name: str) -> JobBuilder[str]:
    return scheduler.enqueue(jobs.serve, name)


class TestRate:
    def test_each_key_has_its_own(self, one_by_one: Scheduler) -> None:
        """Two of each key start within the period, the others wait and say why, and jobs without a key pass them."""
        scheduler = one_by_one
        limited = scheduler.submit_all(
            served(scheduler, key).with_rate_key(key, 2, per=3600) for key in ("ann", "bob") for _ in range(4)
        )
        with scheduler:
            assert served(scheduler, "free").submit().result(timeout=60) == "free"
            until(lambda: Counter(jobs.calls) == {"ann": 2, "bob": 2, "free": 1}, 60)
            assert served(scheduler, "last").submit().result(timeout=60) == "last"
        assert Counter(jobs.calls) == {"ann": 2, "bob": 2, "free": 1, "last": 1}
        reasons = {
            reason.text for handle in limited for reason in handle.explain() if reason.code == "rate_limited"
        }
        assert any("jobs with the rate key 'ann' have started" in text for text in reasons)
        assert {limit.name for limit in scheduler.limits.list()} == {"rate:ann", "rate:bob"}

    def test_it_can_be_changed_by_the_next_submission(self, one_by_one: Scheduler) -> None:
        """A higher rate lets what waits start; a resource and a concurrency key of the same name are other limits."""
        scheduler = one_by_one
        scheduler.limits.set("ann", concurrent=0)
        waiting = [served(scheduler, "ann").with_rate_key("ann", 1, per=3600).submit() for _ in range(2)]
        with scheduler:
            until(lambda: jobs.calls == ["ann"], 60)
            third = served(scheduler, "ann").with_rate_key("ann", 100, per=0.1).submit()
            assert [handle.result(timeout=60) for handle in (*waiting, third)] == ["ann"] * 3

    @pytest.mark.parametrize("other", ["resource", "concurrency"])
    def test_beside_another_limit(self, one_by_one: Scheduler, other: str) -> None:
        """Both hold: two may start, and none while the other limit has no room."""
        scheduler = one_by_one
        scheduler.limits.set("press", concurrent=0)

        def made() -> JobBuilder[str]:
            job = served(scheduler, "ann").with_rate_key("ann", 2, per=3600)
            return (
                job.with_resource("press")
                if other == "resource"
                else job.with_concurrency_key("bob", limit=1)
            )

        first = made().submit()
        scheduler.limits.set("bob", concurrent=0)
        rest = [made().submit() for _ in range(2)]
        with scheduler:
            assert served(scheduler, "free").submit().result(timeout=60) == "free"
            assert jobs.calls == ["free"]
            assert "no_permit" in {reason.code for reason in first.explain()}
            scheduler.limits.set("press", concurrent=1)
            scheduler.limits.set("bob", concurrent=1)
            until(lambda: Counter(jobs.calls) == {"free": 1, "ann": 2}, 60)
            assert served(scheduler, "free").submit().result(timeout=60) == "free"
        assert Counter(jobs.calls)["ann"] == 2
        assert sum(handle.status() is JobStatus.PENDING for handle in (first, *rest)) == 1


class TestWeight:
    def test_turns_follow_the_weights(self, one_by_one: Scheduler) -> None:
        """Weights 1, 3 and 6: while all have jobs, each gets its share of the starts."""
        scheduler = one_by_one
        weights = {"one": 1, "three": 3, "six": 6}
        scheduler.submit_all(
            served(scheduler, key).with_fairness_key(key, weight=weight)
            for key, weight in weights.items()
            for _ in range(60)
        )
        with scheduler:
            until(lambda: len(jobs.calls) == 180, 60)
        assert Counter(jobs.calls[:90]) == {"one": 9, "three": 27, "six": 54}


def test_what_cannot_be_is_refused(one_by_one: Scheduler) -> None:
    """Three limits for one job, names that are taken, numbers that are none: each says what to do."""
    job = served(one_by_one, "ann")
    for wrong, says in (
        (lambda: job.with_rate_key("ann", 0), "the rate of a key must be at least 1"),
        (lambda: job.with_rate_key("ann", 1, per=0), "the period of a rate"),
        (lambda: job.with_rate_key(" ", 1), "a rate key must not be empty"),
        (lambda: job.with_rate_key("a" * 251, 1), "a rate key has 251 characters"),
        (lambda: job.with_concurrency_key("rate:ann", limit=1), "are the rate keys' own"),
        (lambda: job.with_fairness_key("ann", weight=0), "the weight of a fairness key must be at least 1"),
        (lambda: job.with_fairness_key("ann", weight=101), "at most 100"),
    ):
        with pytest.raises(InvalidJob, match=says):
            wrong()
    three = job.with_resource("press").with_concurrency_key("ann", limit=1).with_rate_key("ann", 1)
    with pytest.raises(InvalidJob, match="a job passes two limits at most"):
        three.submit()
