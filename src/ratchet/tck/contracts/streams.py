"""Streams and queues: where claims look for jobs, and what can be paused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ratchet.model.cluster import BreakerRecord, QueueRecord
from ratchet.model.job import StreamKey
from ratchet.model.status import JobStatus, Lane, Priority
from ratchet.spi.store import JobStore
from ratchet.tck.harness import Harness, needs


def queue(harness: Harness, name: str) -> QueueRecord:
    """The row of one queue."""
    return next(record for record in harness.store.queues() if record.name == name)


class TestStreams:
    def test_jobs_with_equal_gates_share_a_stream(self, harness: Harness) -> None:
        """There is one stream per combination of gates, however many jobs it has."""
        keys = [
            StreamKey(),
            StreamKey(queue="emails"),
            StreamKey(lane=Lane.ASYNC),
            StreamKey(resource="gateway"),
            StreamKey(breaker="bank"),
            StreamKey(limit_key="tenant-7"),
            StreamKey(fairness_key="ann"),
            StreamKey(resource="gateway", breaker="bank"),
        ]
        for key in keys * 2:
            harness.submit(stream=key)
        streams = harness.store.streams()
        assert [s.key for s in streams if s.key in keys] == keys
        assert [s.stream_id for s in streams] == sorted({s.stream_id for s in streams})

    def test_absent_is_not_a_name(self, harness: Harness) -> None:
        """A resource that happens to be called "None", "null" or "-" is not the absence of one."""
        keys = [StreamKey(), *(StreamKey(resource=name) for name in ("None", "null", "NULL", "-", "default"))]
        keys += [StreamKey(breaker="None"), StreamKey(limit_key="None"), StreamKey(fairness_key="None")]
        for key in keys:
            harness.submit(stream=key)
        assert [s.key for s in harness.store.streams() if s.key in keys] == keys

    def test_a_claim_names_its_stream(self, harness: Harness) -> None:
        """A claim names the stream of its job."""
        claim = harness.running(queue="emails", resource="gateway")
        keys = {s.stream_id: s.key for s in harness.store.streams()}
        assert keys[claim.stream_id] == StreamKey(queue="emails", resource="gateway")


class TestParkedTargets:
    def test_each_once(self, harness: Harness) -> None:
        """Each parked target is listed once, by name, however many streams it has."""
        assert harness.store.parked_targets() == []
        for queue_name, target in (("a", "shop:new"), ("b", "shop:new"), ("a", "shop:later")):
            assert harness.store.park(harness.running(queue=queue_name), target, now=harness.now)
        assert harness.store.parked_targets() == ["shop:later", "shop:new"]


#: More keys than any store reads one by one.
MANY = 130


def use_many_keys(harness: Harness, kind: str = "limit_key") -> None:
    """Submit one job under each of many keys and end them all: the keys are known, but have no jobs."""
    harness.insert([harness.spec(**{kind: f"customer-{number}"}) for number in range(MANY)])
    harness.end_all(harness.claim())
    assert harness.claim() == []


class TestManyKeys:
    def test_the_order_is_that_of_a_few(self, harness: Harness) -> None:
        """Two nodes claim jobs of known and new keys in all priorities: highest priority first, then by due time."""
        use_many_keys(harness)
        other = harness.reopen()
        specs = [
            harness.spec(
                stream=StreamKey(limit_key=f"customer-{number * 37 % (2 * MANY)}"),
                priority=Priority(number % 5),
                scheduled_at=harness.now - timedelta(seconds=number * 7 % 60),
            )
            for number in range(60)
        ]
        harness.insert(specs)
        specs.sort(key=lambda spec: (-spec.priority, spec.scheduled_at, spec.job_id))
        found = [
            claim.job_id
            for number in range(10)
            for claim in harness.claim(7, store=other if number % 2 else None, boost_interval=None)
        ]
        assert found == [spec.job_id for spec in specs]

    def test_a_key_without_jobs_is_seen_when_it_has_some(self, harness: Harness) -> None:
        """`next_due_at` and the claim see a new job of a key at once, however long the key had no jobs."""
        use_many_keys(harness)
        for key in (StreamKey(limit_key="customer-3"), StreamKey(limit_key="never-seen")):
            assert harness.store.next_due_at(harness.request(), now=harness.now) is None
            job_id = harness.submit(stream=key, scheduled_at=harness.after(hours=1))
            assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=1)
            assert harness.claim() == []
            harness.advance(hours=1)
            claims = harness.claim()
            assert [claim.job_id for claim in claims] == [job_id]
            harness.end_all(claims)

    def test_gates_hold_as_among_a_few(self, harness: Harness) -> None:
        """Limits, paused queues and explanations work as they do with few keys."""
        use_many_keys(harness)
        harness.store.set_limit("customer-5", concurrent=1, now=harness.now)
        first, second = harness.submit_many(2, limit_key="customer-5")
        free = harness.submit(limit_key="customer-6")
        harness.submit(queue="emails", limit_key="customer-7")
        harness.store.pause_queue("emails", now=harness.now)
        claims = harness.claim()
        assert {claim.job_id for claim in claims} == {first, free}
        assert [code for code, _, _ in harness.store.explain(second, now=harness.now)] == ["no_permit"]
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None
        harness.end_all(claims)
        assert [claim.job_id for claim in harness.claim()] == [second]

    def test_fair_ones_take_turns(self, harness: Harness) -> None:
        """Keys that have work take turns, among many keys that have none."""
        use_many_keys(harness, "fairness_key")
        large = harness.submit_many(4, fairness_key="customer-1")
        small = harness.submit_many(2, fairness_key="never-seen")
        found = [claim.job_id for claim in harness.claim(3)] + [claim.job_id for claim in harness.claim()]
        assert found[:2] in ([large[0], small[0]], [small[0], large[0]])
        assert sorted(found) == sorted(large + small)
        assert [job_id for job_id in found if job_id in large] == large


KEPT = timedelta(days=3)


def purge_jobs(harness: Harness) -> None:
    """Move every ended job to the archive, then purge the archive."""
    harness.advance(days=1)
    harness.store.archive(before=harness.now, limit=1000, now=harness.now)
    harness.advance(days=1)
    harness.store.purge_archive(before=harness.now, limit=1000)


def purge_streams(harness: Harness, store: JobStore | None = None) -> int:
    """Let four days pass, then purge the streams that were not used for three."""
    harness.advance(days=4)
    return (store or harness.store).purge_streams(before=harness.now - KEPT, limit=100, now=harness.now)


def stream_ids(harness: Harness) -> dict[StreamKey, int]:
    """The newest stream of each key."""
    return {stream.key: stream.stream_id for stream in harness.store.streams()}


class TestUnusedStreams:
    def test_what_no_job_has_is_deleted(self, harness: Harness) -> None:
        """
        Unused streams are set aside first and deleted days later; a new job of such a key gets a new stream
        with a higher number.
        """
        keys = [StreamKey(limit_key=f"order-{number}") for number in range(3)]
        for key in keys:
            harness.succeeded(stream=key)
        harness.submit(queue="last")
        purge_jobs(harness)
        before = stream_ids(harness)
        assert purge_streams(harness) == len(keys)
        assert stream_ids(harness) == before
        assert purge_streams(harness) == len(keys)
        assert stream_ids(harness).keys() == before.keys() - set(keys)
        assert purge_streams(harness) == 0
        again = harness.submit(stream=keys[1], scheduled_at=harness.now)
        assert stream_ids(harness)[keys[1]] > max(before.values())
        assert again in {claim.job_id for claim in harness.claim()}

    def test_a_number_is_not_used_again(self, harness: Harness) -> None:
        """The number of a deleted stream is not used again, not even the highest one."""
        for number in range(3):
            harness.succeeded(limit_key=f"order-{number}")
        purge_jobs(harness)
        before = stream_ids(harness)
        for _ in range(3):
            purge_streams(harness)
        harness.submit(limit_key="order-9")
        assert stream_ids(harness)[StreamKey(limit_key="order-9")] > max(before.values())

    def test_at_most_so_many(self, harness: Harness) -> None:
        """Each call handles at most the limit, until nothing is left."""
        harness.insert([harness.spec(limit_key=f"order-{number}") for number in range(7)])
        harness.end_all(harness.claim())
        harness.submit(queue="last")
        purge_jobs(harness)

        def purge() -> int:
            return harness.store.purge_streams(before=harness.now - KEPT, limit=3, now=harness.now)

        harness.advance(days=4)
        assert [purge() for _ in range(4)] == [3, 3, 1, 0]
        harness.advance(days=4)
        assert [purge() for _ in range(4)] == [3, 3, 1, 0]

    def test_what_was_used_lately_is_kept(self, harness: Harness) -> None:
        """A stream that was used lately is kept, although no job has it any more."""
        harness.succeeded(limit_key="order-1")
        harness.submit(queue="last")
        purge_jobs(harness)
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        assert harness.store.purge_streams(before=long_ago, limit=100, now=harness.now) == 0

    def test_what_a_job_has_is_kept(self, harness: Harness) -> None:
        """
        A stream that a job has is kept, whatever the job's state: its record shows the stream, and jobs
        that can run are claimed.
        """
        running = harness.running(queue="running")
        jobs = {
            "pending": harness.submit(queue="pending", scheduled_at=harness.after(days=365)),
            "running": running.job_id,
            "paused": harness.paused(queue="paused"),
            "failed": harness.failed(queue="failed"),
            "waiting": harness.waiting(queue="waiting"),
            "succeeded": harness.succeeded(queue="succeeded"),
        }
        harness.advance(days=1)
        jobs["archived"] = harness.succeeded(queue="archived")
        harness.store.archive(before=harness.after(seconds=1), limit=1000, now=harness.now)
        jobs["late"] = harness.succeeded(queue="late")
        harness.submit(queue="last", scheduled_at=harness.after(days=365))
        for _ in range(3):
            purge_streams(harness)
        other = harness.reopen()
        for name, job_id in jobs.items():
            record = other.get(job_id)
            assert record is not None
            assert record.stream.queue == name
        assert harness.store.retry(jobs["failed"], now=harness.now)
        assert harness.store.resume(jobs["paused"], now=harness.now)
        harness.end(running, harness.another_try(harness.now))
        found = {claim.job_id for claim in harness.claim()}
        assert found >= {jobs["failed"], jobs["paused"], jobs["running"]}

    def test_two_streams_of_one_key_are_one_gate(self, harness: Harness) -> None:
        """A RUNNING job of the stream that was set aside counts against the limit of the new stream."""
        harness.store.set_limit("order-1", concurrent=1, now=harness.now)
        claim = harness.running(limit_key="order-1")
        harness.submit(queue="last", scheduled_at=harness.after(days=365))
        assert purge_streams(harness) == 1
        second = harness.submit(limit_key="order-1", scheduled_at=harness.now)
        assert stream_ids(harness)[StreamKey(limit_key="order-1")] != claim.stream_id
        assert harness.claim() == []
        harness.end(claim)
        assert [found.job_id for found in harness.claim()] == [second]

    def test_a_job_that_comes_into_a_deleted_one_is_not_lost(self, harness: Harness) -> None:
        """
        A submitter trusts its cache for much too long and uses a deleted stream: the stream is restored,
        and the job runs.
        """
        other = harness.reopen()
        harness.succeeded(limit_key="order-1")
        harness.submit(queue="last", scheduled_at=harness.after(days=365))
        purge_jobs(harness)
        assert [purge_streams(harness, other) for _ in range(2)] == [1, 1]
        late = harness.submit(limit_key="order-1", scheduled_at=harness.now)
        purge_streams(harness, other)
        assert [claim.job_id for claim in harness.claim()] == [late]
        assert harness.record(late).status is JobStatus.RUNNING

    @needs("transactions", "within", "concurrent_writers")
    def test_a_transaction_that_was_open_all_the_time(self, harness: Harness) -> None:
        """Its stream is deleted before the transaction commits: the job still runs, though perhaps not at once."""
        other = harness.reopen()
        harness.succeeded(limit_key="order-1")
        harness.submit(queue="last", scheduled_at=harness.after(days=365))
        purge_jobs(harness)
        spec = harness.spec(limit_key="order-1", scheduled_at=harness.now)
        with harness.store.begin() as connection:
            harness.store.insert([spec], now=harness.now, within=connection)
            assert [purge_streams(harness, other) for _ in range(2)] == [1, 1]
        purge_streams(harness, other)
        assert [claim.job_id for claim in harness.claim()] == [spec.job_id]

    def test_stopped_between_the_steps(self, harness: Harness) -> None:
        """A purge may stop after any step: another one continues, and nothing is done twice."""
        harness.succeeded(limit_key="order-1")
        harness.succeeded(limit_key="order-2")
        harness.submit(queue="last", scheduled_at=harness.after(days=365))
        purge_jobs(harness)
        for _ in range(2):
            harness.advance(days=4)
            before = harness.now - KEPT
            done = [harness.reopen().purge_streams(before=before, limit=1, now=harness.now) for _ in range(3)]
            assert done == [1, 1, 0]
        assert [stream.key.queue for stream in harness.store.streams()] == ["last"]


class TestLanesTogether:
    def test_each_request_gets_its_own_answer(self, harness: Harness) -> None:
        """`next_due_of` answers each request as `next_due_at` does, across lanes and for suspects."""
        for number in range(2):
            node = harness.register(f"crashed-{number}")
            if not number:
                harness.submit(lane=Lane.ASYNC)
            assert harness.claim(node_id=node, lane=Lane.ASYNC)
            harness.rescue(node)
        harness.submit(lane=Lane.ASYNC, scheduled_at=harness.after(hours=2))
        harness.submit(lane=Lane.PROCESS, scheduled_at=harness.after(hours=1))
        wanted = [(lane, suspects) for suspects in (True, False) for lane in reversed(Lane)]
        requests = [harness.request(lane=lane, suspects=suspects) for lane, suspects in wanted]
        found = harness.store.next_due_of(requests, now=harness.now)
        assert found == [harness.store.next_due_at(request, now=harness.now) for request in requests]
        due = {asked: at for asked, at in zip(wanted, found, strict=True) if at is not None}
        assert due.keys() == {(Lane.ASYNC, True), (Lane.ASYNC, False), (Lane.PROCESS, False)}
        assert due[Lane.ASYNC, True] <= harness.now
        assert due[Lane.ASYNC, False] == harness.after(hours=2)
        assert due[Lane.PROCESS, False] == harness.after(hours=1)
        assert harness.store.next_due_of([], now=harness.now) == []

    def test_limits_hold_back_those_behind_them(self, harness: Harness) -> None:
        """
        A request behind a full limit gets None, because nobody knows when a permit is freed; other lanes
        are not affected.
        """
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        for lane in (Lane.THREAD, Lane.PROCESS):
            harness.submit(lane=lane, resource="gateway")
        harness.submit(lane=Lane.ASYNC)
        requests = [harness.request(lane=lane) for lane in (Lane.THREAD, Lane.ASYNC, Lane.PROCESS)]
        assert harness.store.next_due_of(requests, now=harness.now) == [harness.now] * 3
        assert harness.claim(lane=Lane.THREAD)
        assert harness.store.next_due_of(requests, now=harness.now) == [None, harness.now, None]

    def test_a_full_limit_is_asked_for_again(self, harness: Harness) -> None:
        """With ``ask_again_after`` a request behind a full limit is told when to look again; no claim takes more by it."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        harness.submit_many(2, resource="gateway")
        (held,) = harness.claim()
        again = harness.request(ask_again_after=timedelta(seconds=5))
        assert harness.store.next_due_of([again], now=harness.now) == [harness.after(seconds=5)]
        assert harness.store.claim_next_batch(again, now=harness.now) == []
        harness.submit(resource="gateway", lane=Lane.ASYNC, scheduled_at=harness.after(hours=1))
        later = harness.request(lane=Lane.ASYNC, ask_again_after=timedelta(seconds=5))
        assert harness.store.next_due_of([later], now=harness.now) == [harness.after(hours=1)]
        harness.store.release_permits([held])
        assert harness.store.next_due_of([again], now=harness.now) == [harness.now]


class TestQueues:
    def test_what_is_in_them(self, harness: Harness) -> None:
        """Each queue that was used is listed with its PENDING and RUNNING jobs, over all its streams."""
        harness.running(queue="emails")
        harness.submit_many(2, queue="emails", resource="gateway", scheduled_at=harness.after(hours=1))
        harness.succeeded(queue="emails")
        harness.submit()
        emails = queue(harness, "emails")
        assert (emails.paused, emails.pending, emails.running, emails.paused_at) == (False, 2, 1, None)
        assert (queue(harness, "default").pending, queue(harness, "default").running) == (1, 0)

    def test_pausing_and_resuming(self, harness: Harness) -> None:
        """The answer is True if this call made the change."""
        harness.submit(queue="emails")
        assert [harness.store.pause_queue("emails", now=harness.now) for _ in range(2)] == [True, False]
        assert (queue(harness, "emails").paused, queue(harness, "emails").paused_at) == (True, harness.now)
        assert [harness.store.resume_queue("emails", now=harness.now) for _ in range(2)] == [True, False]
        assert (queue(harness, "emails").paused, queue(harness, "emails").paused_at) == (False, None)

    def test_a_pause_with_a_time_ends_by_itself(self, harness: Harness) -> None:
        """Until then no job is claimed, and `explain` and `next_due_at` name the time; from then on, without a write, they are."""
        until = harness.after(hours=2, microseconds=5)
        job_id, other = harness.submit(queue="emails"), harness.reopen()
        assert harness.store.pause_queue("emails", now=harness.now, until=until)
        assert (queue(harness, "emails").paused_at, queue(harness, "emails").paused_until) == (
            harness.now,
            until,
        )
        assert harness.claim(store=other) == []
        ((code, text, at),) = harness.store.explain(job_id, now=harness.now)
        assert (code, at) == ("queue_paused", until)
        assert until.isoformat() in text
        assert other.next_due_at(harness.request(), now=harness.now) == until
        harness.now = until - timedelta(microseconds=1)
        assert harness.claim(store=other) == []
        harness.now = until
        assert harness.store.explain(job_id, now=harness.now) == []
        assert other.next_due_at(harness.request(), now=harness.now) is not None
        assert [claim.job_id for claim in harness.claim(store=other)] == [job_id]

    def test_the_later_of_its_gates_counts(self, harness: Harness) -> None:
        """A job behind a pause and a breaker, or due later still, is due when the last of them lets it through."""
        harness.submit(queue="emails", breaker="bank")
        harness.store.pause_queue("emails", now=harness.now, until=harness.after(hours=1))
        record = BreakerRecord(service="bank", state="OPEN", until=harness.after(hours=2))
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=2)
        harness.submit(queue="emails", scheduled_at=harness.after(minutes=90))
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(minutes=90)
        harness.store.pause_queue("emails", now=harness.now, until=harness.after(hours=3))
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=3)
        harness.store.pause_queue("emails", now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None

    def test_the_time_of_a_pause_can_be_changed(self, harness: Harness) -> None:
        """To another time, or to none; the same again changes nothing. What has ended by itself can be paused again."""
        first, second = harness.after(hours=1), harness.after(hours=2)
        harness.submit_many(2, queue="emails")

        def paused(until: datetime | None) -> bool:
            return harness.store.pause_queue("emails", now=harness.now, until=until)

        assert [paused(at) for at in (first, first, second, None, None)] == [True, False, True, True, False]
        assert queue(harness, "emails").paused_until is None
        harness.now = second
        assert harness.claim() == []
        assert paused(harness.after(hours=1))
        harness.advance(hours=1)
        assert len(harness.claim(1)) == 1
        harness.advance(hours=1)
        assert paused(None)
        assert harness.claim(1) == []
        assert harness.store.resume_queue("emails", now=harness.now)
        assert (queue(harness, "emails").paused, queue(harness, "emails").paused_until) == (False, None)
        assert len(harness.claim(1)) == 1

    def test_resumed_before_its_time(self, harness: Harness) -> None:
        """The queue is open at once, and a later pause without a time does not end at the time of the earlier one."""
        harness.submit_many(2, queue="emails")
        harness.store.pause_queue("emails", now=harness.now, until=harness.after(hours=1))
        assert harness.store.resume_queue("emails", now=harness.now)
        assert len(harness.claim(1)) == 1
        harness.store.pause_queue("emails", now=harness.now)
        harness.advance(hours=2)
        assert harness.claim() == []

    def test_a_queue_can_be_paused_before_its_first_job(self, harness: Harness) -> None:
        """The first job of a paused queue is not claimed."""
        assert harness.store.pause_queue("emails", now=harness.now)
        harness.submit(queue="emails")
        assert harness.claim() == []
        assert queue(harness, "emails").paused
        assert not harness.store.resume_queue("never-seen", now=harness.now)

    def test_another_node_learns_of_it_at_once(self, harness: Harness) -> None:
        """The next claim of any node respects the pause: a node must not rely on an old copy of the queue's state."""
        other = harness.reopen()
        harness.submit_many(2, queue="emails")
        assert len(harness.claim(1, store=other)) == 1
        harness.store.pause_queue("emails", now=harness.now)
        assert harness.claim(store=other) == []
        harness.store.resume_queue("emails", now=harness.now)
        assert len(harness.claim(store=other)) == 1

    def test_what_runs_goes_on(self, harness: Harness) -> None:
        """Pausing a queue stops claims, not runs."""
        claim = harness.running(queue="emails")
        harness.store.pause_queue("emails", now=harness.now)
        harness.end(claim)

    def test_released_retried_and_resumed_jobs_stay_behind_it(self, harness: Harness) -> None:
        """However a job comes into a paused queue, it is not claimed."""
        claim = harness.running(queue="emails")
        paused, failed = harness.paused(queue="emails"), harness.failed(queue="emails")
        parent, child = harness.spec(), harness.child(queue="emails")
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.store.pause_queue("emails", now=harness.now)
        harness.end(claim, harness.another_try())
        assert harness.store.resume(paused, now=harness.now)
        assert harness.store.retry(failed, now=harness.now)
        harness.end(harness.claim_job(parent.job_id))
        assert harness.claim() == []
        assert queue(harness, "emails").pending == 4
