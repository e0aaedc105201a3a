"""Workflows: edges between jobs and the conditions on them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from ratchet.model.composition import Edge, Graph


class WorkflowConditionStore(Protocol):
    """
    Keeps edges and conditions. How a parent's end settles its outgoing edges:

    - SUCCEEDED: SUCCESS edges are satisfied, FAILURE edges broken.
    - FAILED: FAILURE edges are satisfied, SUCCESS edges broken.
    - both: CONDITION edges go by the completion's verdicts; one without a verdict counts as not taken.
    - CANCELED: every edge is broken, but for END edges, which any end satisfies.

    A WAITING child is released (PENDING, due at the later of now and its own due time) when
    ``needs`` of its edges are satisfied. When that has become impossible it is CANCELED, with reason
    ``parent_failed``, ``parent_canceled`` or ``not_taken``, and remembers the job whose end caused
    it: the retry of a parent that makes it reachable again revives it, and a parent that is retried
    while it still waits counts again. A verdict ERROR fails the child (dead letter,
    `ConditionFailed`), whatever its other edges say. Both cascade to the child's own edges.

    Level by level: first what waits for the jobs that a call ends, then what waits for those that ended thereby.
    So the parent that is nearest to the beginning is a child's cause, and of several on one level the one with
    the lowest id, in whatever order the call names them. Answers tell of it depth-first.
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
