"""Workflows: edges between jobs, and the conditions on them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from ratchet.model.composition import Edge, Graph


class WorkflowConditionStore(Protocol):
    """
    Keeps edges and conditions. How a parent's end settles its outgoing edges:

    - SUCCEEDED: SUCCESS edges are satisfied, FAILURE edges are broken.
    - FAILED: FAILURE edges are satisfied, SUCCESS edges are broken.
    - Both: the completion's verdicts decide CONDITION edges; one without a verdict counts as not taken.
    - CANCELED: every edge but END is broken. An END edge is satisfied by any end.

    A WAITING child is released (PENDING, due at the later of now and its own due time) when
    ``needs`` of its edges are satisfied. When that has become impossible, it is CANCELED with reason
    ``parent_failed``, ``parent_canceled`` or ``not_taken``, and records the job whose end caused it. If the
    retry of a parent makes the child reachable again, it is revived; if the child still waits, the retried
    parent counts again. A verdict ERROR fails the child (dead letter, `ConditionFailed`), whatever its other
    edges say. Both cascade to the child's own edges.

    Edges are settled level by level: first the jobs that wait for the jobs that a call ends, then the jobs that
    wait for those. So the cause of a child's end is the parent nearest to the ended job; of several on one level
    it is the one with the lowest id, in whatever order the call names them. Answers list jobs depth-first.
    """

    def conditions_of(self, parent_id: UUID) -> list[Edge]:
        """The outgoing edges of a job that have a condition, by (order, position)."""
        ...

    def edges_of(self, job_id: UUID) -> list[Edge]:
        """Every edge into or out of a job."""
        ...

    def parents_of(self, child_id: UUID) -> list[UUID]:
        """The parents of a job, in definition order (for RESULT and RESULTS)."""
        ...

    def graph(self, root_id: UUID) -> Graph:
        """Every job that shares this root, with their edges; empty if there is none."""
        ...
