"""Signals in SQL: nothing is lost between a signal and a waiter that do not see each other yet."""

from __future__ import annotations

import threading
from uuid import UUID

from msgspec import json

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, SignalWait
from ratchet.model.status import JobStatus
from tests.stores.sql_stores import SqlSteps, at_once

ROUNDS = 20


def waiter(steps: SqlSteps, *keys: str) -> list[JobSpec]:
    """Jobs that wait for these keys."""
    return [steps.spec(status=JobStatus.WAITING, signal=SignalWait(key=key)) for key in keys]


class TestRaces:
    def test_a_signal_against_its_waiter(self, steps: SqlSteps) -> None:
        """Whoever is first, the job is released, once, with the signal on it."""
        other = steps.another()
        for number in range(ROUNDS):
            key = f"key-{number}"
            (job,) = waiter(steps, key)
            signal = steps.signal(key, payload='"go"')

            def submit(job: JobSpec = job) -> list[UUID]:
                steps.store.insert([job], now=steps.now)
                return []

            at_once(submit, lambda signal=signal: other.send_signal(signal, now=steps.now))  # type: ignore[misc]
            assert steps.status(job.job_id) is JobStatus.PENDING, number
            (taken,) = steps.take()
            assert taken.body.signal is not None
            assert json.decode(taken.body.signal)["payload"] == '"go"'
            assert steps.status(steps.waiting(signal=SignalWait(key=key))) is JobStatus.WAITING

    def test_a_kept_signal_goes_to_one_of_many(self, steps: SqlSteps) -> None:
        """Six submissions race for one kept signal: one job is released, five wait."""
        handles = [steps.store, steps.another(), steps.another()]
        for number in range(ROUNDS // 2):
            key = f"key-{number}"
            steps.store.send_signal(steps.signal(key), now=steps.now)
            jobs = waiter(steps, *[key] * 6)
            at_once(
                *[
                    lambda job=job, handle=handle: handle.insert([job], now=steps.now)  # type: ignore[misc]
                    for job, handle in zip(jobs, handles * 2, strict=True)
                ]
            )
            statuses = steps.statuses(job.job_id for job in jobs)
            assert statuses.count(JobStatus.PENDING) == 1
            assert statuses.count(JobStatus.WAITING) == 5

    def test_many_keys_in_any_order(self, steps: SqlSteps) -> None:
        """Bulk submissions of the same keys in opposite orders, and signals between them: nobody is stuck or lost."""
        keys = [f"key-{number}" for number in range(30)]
        forth, back = waiter(steps, *keys), waiter(steps, *reversed(keys))
        one, two = steps.another(), steps.another()

        def send() -> None:
            for key in keys:
                steps.store.send_signal(steps.signal(key), now=steps.now)

        at_once(lambda: one.insert(forth, now=steps.now), lambda: two.insert(back, now=steps.now), send)
        released = [steps.status(job.job_id) for job in (*forth, *back)].count(JobStatus.PENDING)
        # a signal that came before both serves one of the two
        assert 30 <= released <= 60

    def test_a_waiter_that_is_not_committed_yet(self, postgresql: SqlSteps) -> None:
        """The signal waits for the submission's transaction and then finds the job."""
        steps = postgresql
        (job,) = waiter(steps, "go")
        released: list[list[UUID]] = []
        other = steps.another()
        sender = threading.Thread(
            target=lambda: released.append(other.send_signal(steps.signal("go"), now=steps.now))
        )
        with steps.store.begin() as connection:
            steps.store.insert([job], now=steps.now, within=connection)
            sender.start()
            sender.join(timeout=0.3)
            assert sender.is_alive()
        sender.join(timeout=20)
        assert released == [[job.job_id]]

    def test_the_same_signal_from_many_senders(self, steps: SqlSteps) -> None:
        """Sent by three threads at once it is delivered once."""
        handles = [steps.store, steps.another(), steps.another()]
        for number in range(ROUNDS // 2):
            job_id = steps.waiting(signal=SignalWait(key=f"key-{number}"))
            signal = steps.signal(f"key-{number}")
            answers = at_once(
                *[lambda h=handle, s=signal: h.send_signal(s, now=steps.now) for handle in handles]
            )  # type: ignore[misc]
            assert sorted(answers, key=len) == [[], [], [job_id]]


class TestWhatIsStored:
    def test_the_document(self, steps: SqlSteps) -> None:
        """Key, payload as it was sent, refusal and time, for the job to read."""
        steps.waiting(signal=SignalWait(key="go"))
        steps.store.send_signal(steps.signal("go", payload='{"by":"ann"}', rejected="no"), now=steps.now)
        (job,) = steps.take()
        assert job.body.signal is not None
        document = json.decode(job.body.signal)
        assert (document["key"], document["payload"], document["rejected"]) == ("go", '{"by":"ann"}', "no")
        assert json.decode(json.encode(document["delivered_at"]), type=type(steps.now)) == steps.now

    def test_a_signal_is_stored_where_edges_are_still_open(self, steps: SqlSteps) -> None:
        """The job has got the signal and keeps it, and is released by its parent."""
        parent = steps.spec()
        child = steps.child(signal=SignalWait(key="go"))
        steps.insert([parent, child], [steps.edge(parent, child)])
        assert steps.store.send_signal(steps.signal("go"), now=steps.now) == [child.job_id]
        assert steps.status(child.job_id) is JobStatus.WAITING
        assert steps.store.waiting_for("go") == []
        answer = steps.end(steps.claim_job(parent.job_id))
        assert answer.released == (child.job_id,)

    def test_without_a_time_to_keep_it_is_not_kept(self, steps: SqlSteps) -> None:
        """It released nobody and is gone; its id is remembered for an hour."""
        signal = steps.signal("go", keep_until=None)
        assert steps.store.send_signal(signal, now=steps.now) == []
        assert steps.status(steps.waiting(signal=SignalWait(key="go"))) is JobStatus.WAITING
        assert steps.store.send_signal(signal, now=steps.now) == []
        assert steps.store.purge_signals(now=steps.after(minutes=59), limit=9) == 0
        assert steps.store.purge_signals(now=steps.after(minutes=61), limit=9) == 1

    def test_gates_are_purged_and_made_again(self, postgresql: SqlSteps) -> None:
        """Old gates leave the table without being counted, and the key works as before."""
        steps = postgresql
        for _ in range(2):
            steps.store.send_signal(steps.signal("go"), now=steps.now)
            steps.advance(hours=2)
            assert steps.store.purge_signals(now=steps.now, limit=9) == 1
            assert steps.sql("SELECT count(*) AS left_over FROM scheduler_signal") == [(0,)]
        job_id = steps.waiting(signal=SignalWait(key="go"))
        assert steps.store.send_signal(steps.signal("go"), now=steps.now) == [job_id]

    def test_a_signal_for_a_job_that_does_not_exist(self, steps: SqlSteps) -> None:
        """Kept for that job alone."""
        assert steps.store.send_signal(steps.signal("go", job_id=new_id()), now=steps.now) == []
        assert steps.status(steps.waiting(signal=SignalWait(key="go"))) is JobStatus.WAITING
