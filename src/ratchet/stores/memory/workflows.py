"""Edges between jobs, in memory."""

from __future__ import annotations

from uuid import UUID

from ratchet.model.composition import Edge, Graph, GraphNode
from ratchet.stores.memory.changes import outgoing
from ratchet.stores.memory.state import Part, State, atomic


class MemoryWorkflows(Part):
    """Edges and graphs; `finish` settles edges."""

    @atomic
    def conditions_of(self, parent_id: UUID) -> list[Edge]:
        found = [
            (edge.condition.order, edge.position, edge.child_id.int, edge)
            for edge in outgoing(self._state, parent_id)
            if edge.condition is not None
        ]
        return [edge for *_, edge in sorted(found, key=lambda item: item[:3])]

    @atomic
    def edges_of(self, job_id: UUID) -> list[Edge]:
        return [*_incoming(self._state, job_id), *outgoing(self._state, job_id)]

    @atomic
    def parents_of(self, child_id: UUID) -> list[UUID]:
        return [edge.parent_id for edge in _incoming(self._state, child_id)]

    @atomic
    def graph(self, root_id: UUID) -> Graph:
        state = self._state
        rows = sorted(
            (state.jobs[job_id] for job_id in state.by_root.of(root_id)), key=lambda row: row.job_id.int
        )
        inside = {row.job_id for row in rows}
        nodes = tuple(
            GraphNode(
                job_id=row.job_id,
                target=row.spec.target,
                status=row.status,
                type=row.spec.type,
                canceled_reason=row.canceled_reason,
            )
            for row in rows
        )
        edges = (edge for row in rows for edge in outgoing(state, row.job_id) if edge.child_id in inside)
        return Graph(nodes=nodes, edges=tuple(edges))


def _incoming(state: State, child_id: UUID) -> list[Edge]:
    edges = [state.edges[key] for key in state.edges_in.of(child_id)]
    return sorted(edges, key=lambda edge: (edge.position, edge.parent_id.int))
