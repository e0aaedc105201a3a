"""The jobs that belong to one root, and the edges between them."""

from __future__ import annotations

from ratchet.model.composition import Condition, EdgeKind
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from ratchet.tck.contracts.workflows.edges import C, finish
from ratchet.tck.harness import Harness


class TestGraph:
    def test_conditions_by_order_then_position(self, harness: Harness) -> None:
        """Conditions come by order, then by position; edges without a condition are left out."""
        parent = harness.spec()
        children = [harness.child() for _ in range(4)]
        orders = [1, 0, 0]
        edges = [
            harness.edge(
                parent,
                child,
                EdgeKind.CONDITION,
                position=i,
                condition=Condition(
                    kind="result", predicate="a:b", argument="[1]", order=order, description="dé"
                ),
            )
            for i, (child, order) in enumerate(zip(children, orders, strict=False))
        ]
        harness.insert([parent, *children], [*edges, harness.edge(parent, children[3], position=3)])
        found = harness.store.conditions_of(parent.job_id)
        assert found == [edges[1], edges[2], edges[0]]
        assert harness.store.conditions_of(children[0].job_id) == []

    def test_edges_in_and_out(self, harness: Harness) -> None:
        """All edges into and out of a job, with their state."""
        specs = [harness.spec(), harness.child(), harness.child()]
        edges = [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2], EdgeKind.END, position=2)]
        harness.insert(specs, edges)
        assert set(harness.store.edges_of(specs[1].job_id)) == set(edges)
        assert harness.store.edges_of(specs[0].job_id) == edges[:1]
        assert harness.store.edges_of(new_id()) == []

    def test_parents_in_definition_order(self, harness: Harness) -> None:
        """Parents come in the order of the edges, not of the ids: RESULTS depends on it."""
        parents = harness.specs(4)
        child = harness.child(needs=4)
        order = [parents[2], parents[0], parents[3], parents[1]]
        edges = [harness.edge(parent, child, position=i) for i, parent in enumerate(order)]
        harness.insert([*parents, child], edges[::-1])
        assert harness.store.parents_of(child.job_id) == [spec.job_id for spec in order]
        assert harness.store.parents_of(parents[0].job_id) == []

    def test_the_jobs_of_one_root(self, harness: Harness) -> None:
        """Every job that shares the root, with edges and states, and no other job."""
        root = harness.spec()
        step = harness.child(root_id=root.job_id)
        stranger = harness.spec()
        edge = harness.edge(root, step)
        harness.insert([root, step, stranger], [edge])
        finish(harness, root.job_id, "failure")
        graph = harness.store.graph(root.job_id)
        assert {(n.job_id, n.status, n.canceled_reason) for n in graph.nodes} == {
            (root.job_id, JobStatus.FAILED, None),
            (step.job_id, C, "parent_failed"),
        }
        assert [(e.parent_id, e.child_id) for e in graph.edges] == [(root.job_id, step.job_id)]

    def test_a_claimed_step_knows_its_root(self, harness: Harness) -> None:
        """The first job is its own root; the step that it releases names that root, in the claim's body and in `bodies`."""
        root = harness.spec()
        step = harness.child(root_id=root.job_id)
        harness.insert([root, step], [harness.edge(root, step)])
        for job_id in (root.job_id, step.job_id):
            (job,) = harness.take()
            read = harness.store.bodies([job.claim])
            assert (job.claim.job_id, job.body.root_id) == (job_id, root.job_id)
            assert read[job_id].root_id == root.job_id
            harness.end(job.claim)

    def test_of_an_unknown_root(self, harness: Harness) -> None:
        """The graph is empty."""
        graph = harness.store.graph(new_id())
        assert (graph.nodes, graph.edges) == ((), ())
