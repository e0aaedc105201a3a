"""Holders: which jobs hold the permits of a resource."""

from __future__ import annotations

from ratchet.tck.harness import Harness


class TestHolders:
    def test_jobs_and_their_nodes(self, harness: Harness) -> None:
        """Holders are listed longest first, up to the limit; a job that has ended is not listed."""
        harness.store.set_limit("gateway", concurrent=3, now=harness.now)
        ids = harness.submit_many(4, resource="gateway")
        first = harness.claim(1, node_id="node-1")
        second = harness.claim(2, node_id="node-2")
        assert [
            (one.resource, one.job_id, one.node_id) for one in harness.store.holders("gateway", limit=9)
        ] == [
            ("gateway", ids[0], "node-1"),
            ("gateway", ids[1], "node-2"),
            ("gateway", ids[2], "node-2"),
        ]
        (longest,) = harness.store.holders("gateway", limit=1)
        assert (longest.job_id, longest.claim_id) == (first[0].job_id, first[0].claim_id)
        harness.end_all([*first, *second])
        assert harness.store.holders("gateway", limit=9) == []
        assert harness.store.holders("nothing", limit=9) == []

    def test_the_explanation_names_them(self, harness: Harness) -> None:
        """The explanation of a job that waits for a permit names the job that holds it and that job's node."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        holder = harness.running(resource="gateway", node="node-7")
        waiting = harness.submit(resource="gateway")
        ((code, text, _),) = harness.store.explain(waiting, now=harness.now)
        assert code == "no_permit"
        assert f"job {holder.job_id} on node node-7" in text

    def test_of_a_limit_that_was_removed(self, harness: Harness) -> None:
        """Jobs that held permits when the limit was removed are listed until they end."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        holder = harness.running(resource="gateway")
        harness.store.remove_limit("gateway", now=harness.now)
        assert [one.job_id for one in harness.store.holders("gateway", limit=9)] == [holder.job_id]
        harness.end(holder)
        assert harness.store.holders("gateway", limit=9) == []
