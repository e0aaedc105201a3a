"""Limits that were made for the keys of submissions, and go when no job has such a key any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from ratchet.model.status import JobStatus
from ratchet.spi.store import JobStore
from ratchet.tck.harness import Harness
from ratchet.tck.race import ROUNDS, results

KEPT = timedelta(days=3)


def ask(harness: Harness, name: str = "order-1", **values: Any) -> None:
    """What a submission does before it stores a job that has the key."""
    harness.store.ensure_limit(name, **(values or {"concurrent": 1}), now=harness.now)


def names(harness: Harness) -> list[str]:
    """All limits there are."""
    return [limit.name for limit in harness.store.limits()]


def purge(harness: Harness, store: JobStore | None = None, *, limit: int = 100) -> int:
    """What housekeeping does with limits."""
    store = harness.store if store is None else store
    return store.purge_limits(before=harness.now - KEPT, limit=limit, now=harness.now)


def keep_house(harness: Harness, *, rounds: int = 3) -> None:
    """Let so many times four days pass; each time streams are purged, then limits."""
    for _ in range(rounds):
        harness.advance(days=4)
        harness.store.purge_streams(before=harness.now - KEPT, limit=100, now=harness.now)
        purge(harness)


def end_all(harness: Harness) -> None:
    """Every job that is due succeeds and is archived; a newer stream is there too."""
    harness.end_all(harness.claim())
    harness.submit(queue="last", scheduled_at=harness.after(days=3650))
    harness.advance(days=1)
    harness.store.archive(before=harness.now, limit=1000, now=harness.now)


class TestUnusedLimits:
    def test_what_no_job_has_is_removed(self, harness: Harness) -> None:
        """A limit goes when all jobs of its key are in the archive; the next submission makes it anew, and it holds."""
        for number in range(3):
            ask(harness, f"order-{number}")
            harness.submit(limit_key=f"order-{number}")
        ask(harness, "rate:order-9", rate=5, period=timedelta(seconds=1))
        harness.submit(limit_key="rate:order-9")
        end_all(harness)
        assert len(names(harness)) == 4
        keep_house(harness)
        assert names(harness) == []
        ask(harness)
        harness.submit_many(2, limit_key="order-1", scheduled_at=harness.now)
        assert len(harness.claim()) == 1

    def test_what_a_person_has_set_is_kept(self, harness: Harness) -> None:
        """Whether it was set before or after a submission asked for it; asking for it changes its number, not whose it is."""
        harness.store.set_limit("gateway", concurrent=3, now=harness.now)
        harness.store.set_limit("before", concurrent=3, now=harness.now)
        ask(harness, "before", concurrent=2)
        ask(harness, "after", concurrent=2)
        harness.store.set_limit("after", rate=5, period=timedelta(seconds=1), now=harness.now)
        ask(harness, "removed", concurrent=2)
        assert harness.store.remove_limit("removed", now=harness.now)
        harness.store.set_limit("removed", concurrent=7, now=harness.now)
        keep_house(harness)
        kept = {limit.name: (limit.concurrent, limit.rate) for limit in harness.store.limits()}
        assert kept == {"gateway": (3, None), "before": (2, None), "after": (2, 5), "removed": (7, None)}

    def test_what_a_job_has_is_kept(self, harness: Harness) -> None:
        """Whatever the job waits for, and for however long; a job that comes back finds its limit."""
        states = ("pending", "running", "paused", "failed", "waiting")
        for name in states:
            ask(harness, name)
            ask(harness, f"resource of {name}")
        running = harness.running(limit_key="running", resource="resource of running")
        failed = harness.failed(limit_key="failed", resource="resource of failed")
        paused = harness.paused(limit_key="paused", resource="resource of paused")
        waiting = harness.waiting(limit_key="waiting", resource="resource of waiting")
        pending = harness.submit(
            limit_key="pending", resource="resource of pending", scheduled_at=harness.after(days=365)
        )
        harness.submit(queue="last", scheduled_at=harness.after(days=3650))
        keep_house(harness, rounds=5)
        assert names(harness) == sorted([*states, *(f"resource of {name}" for name in states)])
        assert harness.record(pending).status is JobStatus.PENDING
        assert harness.record(waiting).status is JobStatus.WAITING
        assert harness.store.retry(failed, now=harness.now)
        assert harness.store.resume(paused, now=harness.now)
        harness.end(running)
        for name in ("failed", "paused", "running"):
            harness.submit_many(2, limit_key=name, scheduled_at=harness.now)
        found = harness.claim()
        assert len(found) == 3
        assert all(limit.held <= 1 for limit in harness.store.limits())

    def test_a_job_of_another_queue_counts(self, harness: Harness) -> None:
        """Streams of other queues and lanes with the same key count, also one that was made after another was set aside."""
        ask(harness)
        harness.submit(limit_key="order-1")
        end_all(harness)
        harness.submit(limit_key="order-1", queue="emails", scheduled_at=harness.after(days=365))
        harness.submit(queue="still later", scheduled_at=harness.after(days=3650))
        keep_house(harness)
        assert names(harness) == ["order-1"]

    def test_what_holds_starts_back_is_kept(self, harness: Harness) -> None:
        """A rate whose period has not passed since the last start stays: a new one would let through too many."""
        ask(harness, "rate:order-1", rate=2, period=timedelta(days=30))
        harness.submit(limit_key="rate:order-1")
        end_all(harness)
        keep_house(harness)
        assert names(harness) == ["rate:order-1"]
        keep_house(harness, rounds=8)
        assert names(harness) == []

    def test_what_is_asked_for_is_kept(self, harness: Harness) -> None:
        """A submission has asked for it within the last days and may store its job any moment now, or may store none."""
        ask(harness)
        for _ in range(6):
            harness.advance(days=2)
            ask(harness)
            purge(harness)
            assert names(harness) == ["order-1"]
        harness.advance(days=4)
        purge(harness)
        assert names(harness) == []

    def test_at_most_so_many(self, harness: Harness) -> None:
        """Each call handles at most the limit; those that are still needed do not hold up the others."""
        for number in range(7):
            ask(harness, f"order-{number}")
        for number in range(3):
            harness.submit(limit_key=f"order-{number}", scheduled_at=harness.after(days=3650))
        harness.advance(days=4)
        assert [purge(harness, limit=3) for _ in range(4)] == [3, 3, 1, 0]
        assert names(harness) == ["order-0", "order-1", "order-2"]

    def test_a_submission_at_that_moment(self, harness: Harness) -> None:
        """
        Housekeeping removes a limit while two submissions ask for it: whoever comes first, the limit is there when they go
        on, and it holds.
        """
        stores = harness.reopen_many(3)
        for number in range(ROUNDS):
            name = f"order-{number}"
            ask(harness, name)
            harness.advance(days=4)

            def submit(store: JobStore, name: str = name) -> int:
                store.ensure_limit(name, concurrent=1, now=harness.now)
                spec = harness.spec(limit_key=name, scheduled_at=harness.now)
                return len(store.insert([spec], now=harness.now))

            runners: list[Callable[[], int]] = [partial(submit, store) for store in stores[:2]]
            runners.append(partial(purge, harness, stores[2]))
            results(runners)
            assert name in names(harness)
            assert len(harness.claim()) == 1
            harness.advance(seconds=1)
