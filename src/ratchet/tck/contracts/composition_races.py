"""
Races between jobs that depend on each other, and between nodes over what they share. Runners start together
at a barrier; nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import BreakerRecord
from ratchet.model.decision import Decision
from ratchet.model.identifiers import new_id
from ratchet.model.job import SignalWait
from ratchet.model.status import JobStatus, JobType
from ratchet.spi.store import JobStore
from ratchet.tck.harness import Harness
from ratchet.tck.race import ROUNDS, results


class TestCompositionRace:
    def test_two_parents_complete_a_join(self, harness: Harness) -> None:
        """Three parents end at the same moment: the join is released once."""
        stores = harness.reopen_many(3)
        for _ in range(ROUNDS):
            parents = harness.specs(3)
            join = harness.child(needs=3, type=JobType.WORKFLOW_JOIN)
            harness.insert(
                [*parents, join], [harness.edge(p, join, position=i) for i, p in enumerate(parents)]
            )
            claims = harness.claim()
            answers = results(
                [partial(harness.complete, c, store=s) for c, s in zip(claims, stores, strict=True)]
            )
            assert [job_id for answer in answers for job_id in answer.released] == [join.job_id]
            harness.end(harness.claim_job(join.job_id))

    def test_success_and_failure_of_two_parents(self, harness: Harness) -> None:
        """One parent fails while the other succeeds: the join is canceled once."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            a, b = harness.specs(2)
            join = harness.child(needs=2)
            harness.insert([a, b, join], [harness.edge(a, join), harness.edge(b, join, position=1)])
            first, second = harness.claim()
            answers = results(
                [
                    partial(harness.complete, first, store=one),
                    partial(harness.complete, second, harness.failure(), store=two),
                ]
            )
            assert [job.job_id for answer in answers for job in answer.canceled] == [join.job_id]
            assert harness.status(join.job_id) is JobStatus.CANCELED

    def test_children_finish_a_batch_once(self, harness: Harness) -> None:
        """Eight nodes end the children of a batch: the counters are exact, and the parent is released once."""
        stores = harness.reopen_many(8)
        for _ in range(4):
            batch, _ = harness.batch_of(24)
            claims = harness.claim()

            def finish(store: JobStore, mine: list[JobClaim]) -> list[UUID]:
                decisions: list[Decision] = [harness.success(), harness.failure(), harness.success()]
                return [
                    batch_id
                    for claim, decision in zip(mine, decisions, strict=True)
                    for batch_id in harness.complete(claim, decision, store=store).finished_batches
                ]

            finished = results([partial(finish, s, claims[i::8]) for i, s in enumerate(stores)])
            assert [b for batch_ids in finished for b in batch_ids] == [batch.batch_id]
            record = harness.store.batch(batch.batch_id)
            assert record is not None
            assert (record.completed, record.failed, record.canceled) == (16, 8, 0)
            harness.end(harness.claim_job(batch.parent.job_id))

    def test_flushes_that_touch_the_same_batches(self, harness: Harness) -> None:
        """
        Two nodes complete children of two batches in opposite order: there is no deadlock, and the counters
        are exact.
        """
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            batches = [harness.batch_of(4)[0] for _ in range(2)]
            claims = harness.claim()
            first, second = claims[::2], claims[1::2][::-1]
            results(
                [
                    partial(one.complete, [harness.completion(c) for c in first], now=harness.now),
                    partial(two.complete, [harness.completion(c) for c in second], now=harness.now),
                ]
            )
            for batch in batches:
                record = harness.store.batch(batch.batch_id)
                assert record is not None
                assert (record.completed, record.finished_at) == (4, harness.now)
            harness.end_all(harness.claim())

    def test_canceling_a_parent_against_completing_it(self, harness: Harness) -> None:
        """The child follows the winner: released after the success, canceled after the cancellation."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            parent, child = harness.spec(), harness.child()
            harness.insert([parent, child], [harness.edge(parent, child)])
            claim = harness.claim_job(parent.job_id)
            runners: list[Callable[[], object]] = [
                partial(harness.complete, claim, store=one),
                partial(two.cancel, parent.job_id, reason="r", now=harness.now),
            ]
            results(runners)
            succeeded = harness.status(parent.job_id) is JobStatus.SUCCEEDED
            assert harness.status(child.job_id) is (JobStatus.PENDING if succeeded else JobStatus.CANCELED)
            harness.end_all(harness.claim())

    def test_an_edge_to_a_parent_that_is_just_ending(self, harness: Harness) -> None:
        """A child that is attached while its parent ends is released, by the insert or by the completion."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            claim = harness.running()
            child = harness.child()
            edge = harness.edge(claim.job_id, child)
            runners: list[Callable[[], object]] = [
                partial(harness.complete, claim, store=one),
                partial(two.insert, [child], now=harness.now, edges=[edge]),
            ]
            results(runners)
            assert harness.status(child.job_id) is JobStatus.PENDING
            harness.end(harness.claim_job(child.job_id))

    def test_appending_against_sealing(self, harness: Harness) -> None:
        """The child is appended and counted, or refused and not stored; the batch finishes either way."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            batch, _ = harness.batch_of(1, sealed=False)
            child = harness.spec(type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
            runners: list[Callable[[], object]] = [
                partial(one.append_children, batch.batch_id, [child], now=harness.now),
                partial(two.seal, batch.batch_id, now=harness.now),
            ]
            appended, sealed = results(runners)
            assert sealed
            assert (harness.store.get(child.job_id) is not None) == appended
            harness.end_all(harness.claim())
            record = harness.store.batch(batch.batch_id)
            assert record is not None
            assert record.total == record.completed == (2 if appended else 1)
            harness.end(harness.claim_job(batch.parent.job_id))

    def test_a_signal_against_the_job_that_waits_for_it(self, harness: Harness) -> None:
        """A signal is sent while the job is submitted: the job is released or consumes the signal, but never misses it."""
        one, two = harness.reopen_many(2)
        for number in range(ROUNDS):
            spec = harness.spec(status=JobStatus.WAITING, signal=SignalWait(key=f"go-{number}"))
            runners: list[Callable[[], object]] = [
                partial(one.insert, [spec], now=harness.now),
                partial(two.send_signal, harness.signal(f"go-{number}"), now=harness.now),
            ]
            results(runners)
            assert harness.status(spec.job_id) is JobStatus.PENDING

    def test_one_signal_two_jobs(self, harness: Harness) -> None:
        """Two jobs arrive at once: one of them consumes the kept signal."""
        one, two = harness.reopen_many(2)
        for number in range(ROUNDS):
            key = f"go-{number}"
            harness.store.send_signal(harness.signal(key), now=harness.now)
            specs = [harness.spec(status=JobStatus.WAITING, signal=SignalWait(key=key)) for _ in range(2)]
            results(
                [
                    partial(one.insert, specs[:1], now=harness.now),
                    partial(two.insert, specs[1:], now=harness.now),
                ]
            )
            statuses = harness.statuses(spec.job_id for spec in specs)
            assert sorted(statuses) == [JobStatus.PENDING, JobStatus.WAITING]


class TestClusterRace:
    def test_one_lock(self, harness: Harness) -> None:
        """One of four nodes gets the lock."""
        stores = harness.reopen_many(4)
        for number in range(ROUNDS):
            name, ttl = f"lock-{number}", timedelta(seconds=30)
            got = results(
                [
                    partial(s.acquire_lock, name, holder="n", token=new_id(), ttl=ttl, now=harness.now)
                    for s in stores
                ]
            )
            assert sum(got) == 1

    def test_one_expired_lock(self, harness: Harness) -> None:
        """One of four nodes that find the lock expired takes it over."""
        stores = harness.reopen_many(4)
        ttl = timedelta(seconds=30)
        for number in range(ROUNDS):
            name = f"lock-{number}"
            assert harness.store.acquire_lock(name, holder="o", token=new_id(), ttl=ttl, now=harness.now)
            harness.advance(seconds=31)
            got = results(
                [
                    partial(s.acquire_lock, name, holder="n", token=new_id(), ttl=ttl, now=harness.now)
                    for s in stores
                ]
            )
            assert sum(got) == 1

    def test_one_fire_time(self, harness: Harness) -> None:
        """Four nodes fire a schedule that is due: there is one run, one record and one advance."""
        stores = harness.reopen_many(4)
        harness.store.upsert_schedule(harness.schedule_spec(overlap="ALLOW"), now=harness.now)
        for number in range(1, ROUNDS + 1):
            at, following = harness.now, harness.after(hours=1)
            answers = results(
                [
                    partial(
                        s.advance,
                        "nightly",
                        expected=at,
                        fires=[harness.fire()],
                        next_fire_at=following,
                        now=at,
                    )
                    for s in stores
                ]
            )
            assert sum(answer is not None for answer in answers) == 1
            assert len(harness.store.fires("nightly")) == number
            assert harness.store.counts()[JobStatus.PENDING] == number
            harness.now = following

    def test_one_declaration(self, harness: Harness) -> None:
        """Four nodes declare the same schedule at start: there is one schedule, and no call fails."""
        stores = harness.reopen_many(4)
        spec = harness.schedule_spec()
        records = results([partial(s.upsert_schedule, spec, now=harness.now) for s in stores])
        assert all(record.spec == spec for record in records)
        assert len(harness.store.schedules()) == 1

    def test_one_breaker(self, harness: Harness) -> None:
        """One of four nodes that saw the same version changes the breaker."""
        stores = harness.reopen_many(4)
        for _ in range(ROUNDS):
            seen = harness.store.breaker("bank")
            version = seen.version if seen else 0
            record = BreakerRecord(service="bank", state="OPEN")
            saved = results(
                [partial(s.save_breaker, record, expected_version=version, now=harness.now) for s in stores]
            )
            assert sum(saved) == 1

    def test_one_signal_sent_twice_at_once(self, harness: Harness) -> None:
        """Two nodes send the same signal at once: the job is released once."""
        one, two = harness.reopen_many(2)
        for number in range(ROUNDS):
            job_id = harness.waiting(signal=SignalWait(key=f"go-{number}"))
            signal = harness.signal(f"go-{number}")
            released = results([partial(s.send_signal, signal, now=harness.now) for s in (one, two)])
            assert [j for batch in released for j in batch] == [job_id]

    def test_beats_are_counted(self, harness: Harness) -> None:
        """Four handles beat for one node at once: no beat is lost."""
        stores = harness.reopen_many(4)
        harness.register()

        def beat(store: JobStore) -> None:
            for _ in range(10):
                assert store.beat("node-1", now=harness.now).alive

        results([partial(beat, store) for store in stores])
        assert harness.beat_of("node-1") == 40
