"""Quotas: what is too much is refused where it is submitted, on every store, and nothing is stored of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    ConfigurationError,
    JobFilter,
    JobStatus,
    ManualClock,
    Quota,
    QuotaExceeded,
    Scheduler,
)
from ratchet.api.submit import quotas as module
from ratchet.api.submit.quotas import Quotas
from ratchet.model.job import JobSpec
from ratchet.stores.memory import MemoryStore
from ratchet.tck.steps import Steps
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.integration.conftest import Stores
from tests.integration.people_samples import work

MINUTE = timedelta(minutes=1)


@pytest.fixture
def fresh_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No count is used twice, so that each answer is what the store has."""
    monkeypatch.setattr(module, "KEPT_AT_MOST", 0.0)


def made(stores: Stores, clock: ManualClock, *quotas: Quota) -> ManualScheduler:
    return ManualScheduler(store=stores.open(), clock=clock, allow=["tests"], quotas=quotas)


@pytest.mark.usefixtures("fresh_counts")
class TestOnEveryStore:
    def test_pending_jobs_of_a_queue(self, stores: Stores, clock: ManualClock) -> None:
        """Two may wait; a third is refused, whoever submits it; there is room again when one has run. Other queues are not concerned."""
        scheduler = made(stores, clock, Quota(queue="q", pending=2))
        other = made(stores, clock, Quota(queue="q", pending=2))
        clock.advance(MINUTE)  # or the ids of both would be the same
        scheduler.enqueue(work, 1).with_queue("q").submit()
        scheduler.enqueue(work, 1).with_queue("q").await_signal("go").submit()
        clock.advance(MINUTE)
        with pytest.raises(QuotaExceeded, match="queue 'q' has 2 pending jobs, its quota is 2") as refused:
            other.enqueue(work, 1).with_queue("q").submit()
        assert (refused.value.kind, refused.value.used, refused.value.limit) == ("pending", 2, 2)
        other.enqueue(work, 1).submit()
        assert other.jobs.count() == 3
        scheduler.drain()
        other.enqueue(work, 1).with_queue("q").submit()

    def test_submissions_per_minute_of_each_caller(self, stores: Stores, clock: ManualClock) -> None:
        """Jobs that have ended count too, and a caller's quota is no other's; a minute later there is room."""
        scheduler = made(stores, clock, Quota(caller="*", per_minute=2))
        with scheduler.acting_as("ann"):
            scheduler.enqueue_now(work, 1)
            scheduler.enqueue_now(work, 1)
            scheduler.drain()
            with pytest.raises(QuotaExceeded, match="caller 'ann' has 2 submissions in the last minute"):
                scheduler.enqueue_now(work, 1)
        with scheduler.acting_as("bob"):
            scheduler.enqueue_now(work, 1)
        for _ in range(3):
            scheduler.enqueue_now(work, 1)  # nobody's
        clock.advance(timedelta(seconds=61))
        with scheduler.acting_as("ann"):
            scheduler.enqueue_now(work, 1)

    def test_what_does_not_fit_is_not_stored_at_all(self, stores: Stores, clock: ManualClock) -> None:
        """Many at once, batches, chains and chunks: all or none; also in the caller's own transaction."""
        scheduler = made(stores, clock, Quota(pending=5))
        too_much: list[Callable[[], Any]] = [
            lambda: scheduler.enqueue_many(work, [(n,) for n in range(6)]),
            lambda: scheduler.enqueue_batch("b").for_each(range(6), work).submit(),
            lambda: scheduler.submit_all([scheduler.enqueue(work, n) for n in range(6)]),
            lambda: (
                scheduler.enqueue(work, 1)
                .then(work, 2)
                .then(work, 3)
                .then(work, 4)
                .then(work, 5)
                .then(work, 6)
                .submit()
            ),
        ]
        for submit in too_much:
            with pytest.raises(QuotaExceeded, match="would add 6"):
                submit()
        assert scheduler.jobs.count() == 0
        with scheduler.store.begin() as mine:
            scheduler.enqueue(work, 1).submit(within=mine)
            with pytest.raises(QuotaExceeded):
                scheduler.enqueue_many(work, [(n,) for n in range(6)], within=mine)
        assert scheduler.jobs.count() == 1


class TestCounting:
    def test_a_count_is_used_for_a_while(self, clock: ManualClock) -> None:
        """A hundred submissions do not count a hundred times, and what this process submits meanwhile is not forgotten."""
        ticks = Ticks()
        store = CountingStore(clock, ticks)
        quotas = Quotas([Quota(pending=100)], clock=ticks)
        spec = one_spec()
        for _ in range(100):
            quotas.admit(store, [spec], clock.now())
        assert store.asked == 2  # of what is in the queue, and of what is held
        with pytest.raises(QuotaExceeded):
            quotas.admit(store, [spec], clock.now())
        ticks.now += module.KEPT_AT_MOST
        quotas.admit(store, [spec], clock.now())  # none of them is stored
        assert store.asked == 4

    def test_a_refusal_takes_nothing_from_other_quotas(self, clock: ManualClock) -> None:
        """The first of two quotas has room and the second has not: the first still has it."""
        ticks = Ticks()
        store = CountingStore(clock, ticks)
        quotas = Quotas([Quota(pending=2), Quota(queue="full", pending=1)], clock=ticks)
        with pytest.raises(QuotaExceeded, match="queue 'full'"):
            quotas.admit(store, [one_spec("full"), one_spec("full")], clock.now())
        quotas.admit(store, [one_spec(), one_spec()], clock.now())
        with pytest.raises(QuotaExceeded, match="this installation"):
            quotas.admit(store, [one_spec()], clock.now())

    def test_threads_share_the_room(self, clock: ManualClock) -> None:
        """Eight threads that submit at once get exactly as much as there is."""
        ticks = Ticks()
        store = CountingStore(clock, ticks)
        quotas = Quotas([Quota(pending=50)], clock=ticks)
        admitted: list[int] = []
        barrier = threading.Barrier(8)

        def submit() -> None:
            barrier.wait()
            for _ in range(20):
                try:
                    quotas.admit(store, [one_spec()], clock.now())
                except QuotaExceeded:
                    continue
                admitted.append(1)

        threads = [threading.Thread(target=submit) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(admitted) == 50

    def test_without_quotas_nothing_is_asked(self) -> None:
        """The usual scheduler does not even have the object."""
        assert manual_scheduler().backend.quotas is None
        assert manual_scheduler(quotas=[]).backend.quotas is None


@pytest.mark.usefixtures("fresh_counts")
def test_awaited_submissions_have_quotas_too() -> None:
    """The await face asks the same."""
    with Scheduler("sqlite:///:memory:", allow=["tests"], quotas=[Quota(pending=1)]) as scheduler:
        scheduler.queues.pause("held")

        async def submit() -> None:
            await scheduler.aio.enqueue(work, 1).with_queue("held").submit()
            with pytest.raises(QuotaExceeded):
                await scheduler.aio.enqueue_now(work, 1)

        asyncio.run(submit())
        assert scheduler.jobs.count(JobFilter(statuses=[JobStatus.PENDING])) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: Quota(), "limits something"),
        (lambda: Quota(pending=0), "whole number from 1 on"),
        (lambda: Quota(per_minute=True), "whole number from 1 on"),
        (lambda: Quota(queue="", pending=1), "is a name"),
        (lambda: Quota(caller=5, pending=1), "is a name"),  # type: ignore[arg-type]
        (lambda: manual_scheduler(quotas=Quota(pending=1)), "quotas is a list"),
        (lambda: manual_scheduler(quotas=[5]), "quotas is a list of Quota"),
        (lambda: manual_scheduler(quotas=5), "quotas is a list of Quota"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(given: Callable[[], object], said: str) -> None:
    """When it is made, and with what is accepted."""
    with pytest.raises(ConfigurationError, match=said):
        given()


class Ticks:
    """A clock that moves only by counting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class CountingStore(MemoryStore):
    """Remembers how often it was asked; each time takes half a second of *ticks*."""

    def __init__(self, clock: ManualClock, ticks: Ticks) -> None:
        super().__init__(clock.now)
        self.asked = 0
        self._ticks = ticks

    def count(self, where: JobFilter, *, at_most: int | None = None) -> int:
        self.asked += 1
        self._ticks.now += 0.5
        return super().count(where, at_most=at_most)


def one_spec(queue: str = "default") -> JobSpec:
    return Steps().spec(queue=queue)
