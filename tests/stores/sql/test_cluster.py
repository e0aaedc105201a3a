"""Nodes and locks in SQL: what the conformance kit does not reach, and races on real databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import NodeState, Rescue
from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus, JobFilter
from ratchet.model.payload import decode_value
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.sql.rows.keys_and_permits import STILL_RUNNING
from tests.stores.sql_stores import SqlSteps, at_once, claim_all, times

ROUNDS = 12


class TestRegister:
    def test_sent_again_it_changes_nothing(self, steps: SqlSteps) -> None:
        """A registration whose answer was lost is repeated; the beats since then stay."""
        steps.register()
        steps.store.beat("node-1", now=steps.now)
        steps.register()
        assert steps.beat_of("node-1") == 1

    def test_it_does_not_wake_the_dead(self, steps: SqlSteps) -> None:
        """Declared dead meanwhile, the incarnation stays dead and learns it with its beat."""
        steps.register()
        steps.rescue()
        steps.register()
        assert not steps.store.beat("node-1", now=steps.now).alive

    def test_dead_is_no_state_to_set(self, steps: SqlSteps) -> None:
        """Setting it by hand would strand the node's jobs."""
        steps.register()
        with pytest.raises(ValueError, match="rescue"):
            steps.store.set_node_state("node-1", NodeState.DEAD, now=steps.now)


class TestRescueRaces:
    def test_beat_against_rescue(self, steps: SqlSteps) -> None:
        """Either the node beats and is left alone, or it is rescued and its beat finds no row."""
        other = steps.another()
        for number in range(ROUNDS):
            node = f"node-{number}"
            (claim,) = claim_all(steps, node, 1)

            def rescue(node: str = node) -> bool:
                found = other.rescue(node, seen_beat=0, by="r", max_crashes=3, now=steps.now)
                return found is not None

            def beat(node: str = node) -> bool:
                return steps.store.beat(node, now=steps.now).alive

            rescued, alive = at_once(rescue, beat)
            assert rescued != alive
            assert steps.complete(claim).won == alive
            if rescued:
                steps.end(steps.claim_job(claim.job_id, node_id="rescuer"))

    def test_completion_against_rescue(self, steps: SqlSteps) -> None:
        """Of every job exactly one wins: it is completed, or it is requeued; never both, never neither."""
        other = steps.another()
        for number in range(ROUNDS):
            claims = claim_all(steps, f"node-{number}", 8)

            def rescue(node: str = f"node-{number}") -> set[object]:
                found = other.rescue(node, seen_beat=0, by="r", max_crashes=9, now=steps.now)
                assert found is not None
                return {*found.requeued, *found.suspects}

            def complete(claims: list[JobClaim] = claims) -> set[object]:
                ended = steps.end_all(claims[:4]) + steps.end_all(claims[4:])
                return {answer.job_id for answer in ended if answer.won}

            requeued, completed = at_once(rescue, complete)
            assert requeued | completed == {claim.job_id for claim in claims}
            assert not requeued & completed
            for claim in claims:
                expected = JobStatus.SUCCEEDED if claim.job_id in completed else JobStatus.PENDING
                assert steps.status(claim.job_id) is expected
            steps.end_all(steps.claim())

    def test_two_rescuers(self, steps: SqlSteps) -> None:
        """One of them declares the node dead; each job counts one crash and has one CRASHED run."""
        handles = [steps.store, steps.another(), steps.another(), steps.another()]
        for number in range(ROUNDS):
            (claim,) = claim_all(steps, f"node-{number}", 1)

            def rescue(handle: object, node: str = f"node-{number}") -> Rescue | None:
                return handle.rescue(node, seen_beat=0, by="r", max_crashes=9, now=steps.now)  # type: ignore[attr-defined, no-any-return]

            answers = at_once(*[lambda handle=handle: rescue(handle) for handle in handles])  # type: ignore[misc]
            assert len([answer for answer in answers if answer is not None]) == 1
            assert steps.record(claim.job_id).crashes == 1
            runs = steps.store.executions(claim.job_id, uncounted=True)
            assert [run.status for run in runs] == [ExecutionStatus.CRASHED]
            steps.end(steps.claim_job(claim.job_id))

    def test_rescue_against_cancel(self, steps: SqlSteps) -> None:
        """However they interleave the job is CANCELED, and neither its key nor its permit stays taken."""
        other = steps.another()
        steps.store.set_limit("gateway", concurrent=99, now=steps.now)
        for number in range(ROUNDS):
            node, key = f"node-{number}", f"key-{number}"
            steps.register(node)
            claim = steps.running(node=node, business_key=key, resource="gateway")

            def rescue(node: str = node) -> None:
                assert other.rescue(node, seen_beat=0, by="r", max_crashes=3, now=steps.now) is not None

            def cancel(claim: JobClaim = claim) -> None:
                assert steps.store.cancel(claim.job_id, reason="r", now=steps.now)

            at_once(rescue, cancel)
            assert steps.status(claim.job_id) is JobStatus.CANCELED
            assert steps.sql("SELECT job_id FROM scheduler_business_key_reservation") == []
            assert steps.sql("SELECT job_id FROM scheduler_resource_permit") == []
            assert not steps.complete(claim).won

    def test_deregister_against_completion(self, steps: SqlSteps) -> None:
        """A goodbye hands back what was not completed, uncounted."""
        other = steps.another()
        for number in range(ROUNDS):
            claims = claim_all(steps, f"node-{number}", 4)

            def leave(node: str = f"node-{number}") -> int:
                return other.deregister(node, now=steps.now)

            def complete(claims: list[JobClaim] = claims) -> int:
                return sum(answer.won for answer in steps.end_all(claims))

            handed_back, completed = at_once(leave, complete)
            assert handed_back + completed == 4
            assert all(steps.record(claim.job_id).crashes == 0 for claim in claims)
            steps.end_all(steps.claim())


class TestRescue:
    def test_what_still_runs_is_freed(self, steps: SqlSteps) -> None:
        """Keys and permits that waited for code on the dead node, and retries that were held back for it."""
        steps.register()
        steps.store.set_limit("gateway", concurrent=9, now=steps.now)
        canceled = steps.running(business_key="k", resource="gateway")
        steps.store.cancel(canceled.job_id, reason="r", now=steps.now)
        retried = steps.running(max_retries=1)
        steps.end(retried, steps.another_try(), still_running=True)
        assert retried.job_id not in steps.claimable(node_id="node-2")
        rescue = steps.rescue()
        assert (rescue.requeued, rescue.dead_lettered) == ((), ())
        assert steps.sql("SELECT job_id FROM scheduler_business_key_reservation") == []
        assert steps.sql("SELECT job_id FROM scheduler_resource_permit") == []
        assert retried.job_id in steps.claimable(node_id="node-2")

    def test_a_dead_letter_calls_its_on_failure(self, steps: SqlSteps) -> None:
        """A CALLBACK job with the facts, as a worker would have made it; none for jobs without a callback."""
        steps.register()
        job = steps.running(
            on_failure="shop.jobs:alert", params='{"region":"eu"}', queue="emails", max_retries=5
        )
        plain = steps.running(queue="emails")
        rescue = steps.rescue(max_crashes=1)
        assert set(rescue.dead_lettered) == {job.job_id, plain.job_id}
        (callback,) = steps.store.find(JobFilter(types=[JobType.CALLBACK]))
        assert (callback.target, callback.parent_id, callback.status) == (
            "shop.jobs:alert",
            job.job_id,
            JobStatus.PENDING,
        )
        assert (callback.params, callback.stream.queue) == ('{"region":"eu"}', "emails")
        (facts,) = decode_value(callback.payload, name="payload")["args"]
        assert facts["reason"] == "crashed 1 times"
        assert facts["message"] == steps.record(job.job_id).error
        assert callback.job_id in steps.claimable()

    def test_many_jobs_at_once(self, steps: SqlSteps) -> None:
        """A node that ran six hundred jobs is rescued in one transaction."""
        claims = claim_all(steps, "node-1", 600)
        rescue = steps.rescue()
        assert set(rescue.requeued) == {claim.job_id for claim in claims}
        assert len(steps.store.executions(claims[0].job_id, uncounted=True)) == 1


class TestClaimsOfTheDead:
    def claim_late(self, steps: SqlSteps) -> JobClaim:
        """A claim that was in flight while its node was declared dead, and commits afterwards."""
        steps.register()
        job_id = steps.submit()
        steps.rescue()
        return steps.claim_job(job_id)

    def test_the_row_stays_while_jobs_run_under_its_name(self, steps: SqlSteps) -> None:
        """They show in the list of nodes, and no purge hides them."""
        self.claim_late(steps)
        assert steps.store.purge_nodes(before=steps.after(days=1)) == 0
        (node,) = steps.store.nodes()
        assert (node.state, node.running) == (NodeState.DEAD, 1)

    def test_absent_nodes_are_found_and_settled(self, steps: SqlSteps) -> None:
        """Jobs, keys and permits under a name that nobody beats for; handed back there are none."""
        steps.store.set_limit("gateway", concurrent=9, now=steps.now)
        claim = self.claim_late(steps)
        canceled = steps.running(business_key="k", resource="gateway")
        steps.store.cancel(canceled.job_id, reason="r", now=steps.now)
        steps.register("node-2")
        alive = steps.running(node="node-2", resource="gateway")
        assert steps.store.absent_nodes() == ["node-1"]
        assert steps.store.hand_back_unknown("node-1", (), now=steps.now) == [claim.job_id]
        assert steps.store.absent_nodes() == []
        assert steps.sql("SELECT job_id FROM scheduler_business_key_reservation") == []
        assert steps.sql("SELECT job_id FROM scheduler_resource_permit") == [(alive.job_id,)]
        assert steps.record(claim.job_id).crashes == 0

    def test_absent_nodes_between_the_living(self, steps: SqlSteps) -> None:
        """Before, between and behind the names of living nodes, and beside each other; dead or without a row."""
        for name in ("b-alive", "d-alive", "f-alive"):
            claim_all(steps, name, 2)
        names = ["a-gone", "c-dead", "c-gone", "e-dead", "g-gone", "h-gone"]
        for name in names:
            claim_all(steps, name, 2)
            if name.endswith("dead"):
                steps.write("UPDATE scheduler_node SET state = 'DEAD' WHERE node_id = :name", name=name)
            else:
                steps.write("DELETE FROM scheduler_node WHERE node_id = :name", name=name)
        steps.register("z-idle")
        assert steps.store.absent_nodes() == names
        for name in names[1:4]:
            assert len(steps.store.hand_back_unknown(name, (), now=steps.now)) == 2
        assert steps.store.absent_nodes() == ["a-gone", "g-gone", "h-gone"]
        steps.write("DELETE FROM scheduler_node")
        assert steps.store.absent_nodes() == ["a-gone", "b-alive", "d-alive", "f-alive", "g-gone", "h-gone"]

    def test_what_a_living_node_knows_stays(self, steps: SqlSteps) -> None:
        """It hands back what it does not know; the keys, permits and held-back retries of known runs stay."""
        steps.register()
        steps.store.set_limit("gateway", concurrent=9, now=steps.now)
        known, unknown = [steps.running(business_key=key, resource="gateway") for key in ("known", "unknown")]
        for claim in (known, unknown):
            steps.end(claim, steps.failure(), still_running=True)
        retried = steps.running(max_retries=1)
        steps.end(retried, steps.another_try(), still_running=True)
        tokens = [known.claim_id, retried.claim_id]
        assert steps.store.hand_back_unknown("node-1", tokens, now=steps.now) == []
        assert steps.sql("SELECT business_key FROM scheduler_business_key_reservation") == [("known",)]
        held = "SELECT resource, job_id FROM scheduler_resource_permit ORDER BY resource"
        assert steps.sql(held) == [(STILL_RUNNING, retried.job_id), ("gateway", known.job_id)]
        assert retried.job_id not in steps.claimable(node_id="node-2")

    def test_a_goodbye_for_the_dead_hands_them_back(self, steps: SqlSteps) -> None:
        """Whoever sees them can return them to the queue."""
        claim = self.claim_late(steps)
        assert steps.store.deregister("node-1", now=steps.now) == 1
        assert not steps.complete(claim).won
        assert steps.claimable(node_id="node-2") == {claim.job_id}
        assert steps.store.nodes() == []


class TestLocks:
    def test_one_of_many_gets_it(self, steps: SqlSteps) -> None:
        """Eight tokens, one free lock, then one expired lock: one holder each time."""
        handles = [steps.store, steps.another()]

        def acquire() -> object:
            token = new_id()
            ttl = timedelta(seconds=30)
            handle = handles[token.int % 2]
            return (
                token
                if handle.acquire_lock("sweep", holder="h", token=token, ttl=ttl, now=steps.now)
                else None
            )

        for _ in range(ROUNDS):
            (winner,) = [token for token in at_once(*times(8, acquire)) if token is not None]
            lock = steps.store.lock("sweep")
            assert lock is not None
            assert lock.token == winner
            steps.advance(minutes=1)

    def test_a_renewal_keeps_the_time_it_was_taken(self, steps: SqlSteps) -> None:
        """How long somebody has held it can be seen."""
        token, taken_at, ttl = new_id(), steps.now, timedelta(seconds=30)
        assert steps.store.acquire_lock("sweep", holder="h", token=token, ttl=ttl, now=steps.now)
        steps.advance(seconds=10)
        assert steps.store.acquire_lock("sweep", holder="h", token=token, ttl=ttl, now=steps.now)
        lock = steps.store.lock("sweep")
        assert lock is not None
        assert (lock.locked_at, lock.expires_at) == (taken_at, steps.now + ttl)
