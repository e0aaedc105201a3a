"""Streams and queues: what the claim walks, and what can be paused."""

from __future__ import annotations

from ratchet.model.cluster import QueueRecord
from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.tck.harness import Harness


def queue(harness: Harness, name: str) -> QueueRecord:
    """One queue's row."""
    return next(record for record in harness.store.queues() if record.name == name)


class TestStreams:
    def test_jobs_with_equal_gates_share_a_stream(self, harness: Harness) -> None:
        """One stream per combination of gates, however many jobs."""
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
        """The stream of a claim is the job's."""
        claim = harness.running(queue="emails", resource="gateway")
        keys = {s.stream_id: s.key for s in harness.store.streams()}
        assert keys[claim.stream_id] == StreamKey(queue="emails", resource="gateway")


class TestLanesTogether:
    def test_each_request_gets_its_own_answer(self, harness: Harness) -> None:
        """What `next_due_of` says of many requests, `next_due_at` says of each: lanes, and suspects among them."""
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
        due = {place: at for place, at in zip(wanted, found, strict=True) if at is not None}
        assert due.keys() == {(Lane.ASYNC, True), (Lane.ASYNC, False), (Lane.PROCESS, False)}
        assert due[Lane.ASYNC, True] <= harness.now
        assert due[Lane.ASYNC, False] == harness.after(hours=2)
        assert due[Lane.PROCESS, False] == harness.after(hours=1)
        assert harness.store.next_due_of([], now=harness.now) == []

    def test_limits_hold_back_those_behind_them(self, harness: Harness) -> None:
        """Nobody knows when a permit is freed; the other lanes are not concerned."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        for lane in (Lane.THREAD, Lane.PROCESS):
            harness.submit(lane=lane, resource="gateway")
        harness.submit(lane=Lane.ASYNC)
        requests = [harness.request(lane=lane) for lane in (Lane.THREAD, Lane.ASYNC, Lane.PROCESS)]
        assert harness.store.next_due_of(requests, now=harness.now) == [harness.now] * 3
        assert harness.claim(lane=Lane.THREAD)
        assert harness.store.next_due_of(requests, now=harness.now) == [None, harness.now, None]


class TestQueues:
    def test_what_is_in_them(self, harness: Harness) -> None:
        """Every queue that was used, with what is PENDING and RUNNING in it, over all its streams."""
        harness.running(queue="emails")
        harness.submit_many(2, queue="emails", resource="gateway", scheduled_at=harness.after(hours=1))
        harness.succeeded(queue="emails")
        harness.submit()
        emails = queue(harness, "emails")
        assert (emails.paused, emails.pending, emails.running, emails.paused_at) == (False, 2, 1, None)
        assert (queue(harness, "default").pending, queue(harness, "default").running) == (1, 0)

    def test_pausing_and_resuming(self, harness: Harness) -> None:
        """True where this call made the change."""
        harness.submit(queue="emails")
        assert [harness.store.pause_queue("emails", now=harness.now) for _ in range(2)] == [True, False]
        assert (queue(harness, "emails").paused, queue(harness, "emails").paused_at) == (True, harness.now)
        assert [harness.store.resume_queue("emails", now=harness.now) for _ in range(2)] == [True, False]
        assert (queue(harness, "emails").paused, queue(harness, "emails").paused_at) == (False, None)

    def test_a_queue_can_be_paused_before_its_first_job(self, harness: Harness) -> None:
        """Nobody slips through."""
        assert harness.store.pause_queue("emails", now=harness.now)
        harness.submit(queue="emails")
        assert harness.claim() == []
        assert queue(harness, "emails").paused
        assert not harness.store.resume_queue("never-seen", now=harness.now)

    def test_another_node_learns_of_it_at_once(self, harness: Harness) -> None:
        """The next claim of any node keeps to it: what a node remembers of queues must not be stale."""
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
        """Whatever way a job comes into a paused queue, it is not claimed."""
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
