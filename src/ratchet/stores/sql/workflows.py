"""Edges and conditions in SQL; what the end of a job means for them is in `dependants.edges`."""

from __future__ import annotations

from operator import itemgetter
from uuid import UUID

from ratchet.model.composition import Condition, Edge, EdgeKind, EdgeState, Graph, GraphNode
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.unreadable import readable

_EDGES = """
    SELECT d.parent_id, d.child_id, d.kind, d.position, d.state, c.kind AS condition_kind, c.predicate, c.argument,
           c.eval_order, c.description
      FROM scheduler_dependency d
      LEFT JOIN scheduler_workflow_condition c ON c.parent_id = d.parent_id AND c.child_id = d.child_id
"""

FIND_CONDITIONS = f"""{_EDGES}
     WHERE d.parent_id = :job_id AND c.kind IS NOT NULL
     ORDER BY c.eval_order, d.position, d.child_id
"""

FIND_EDGES_OUT = f"{_EDGES} WHERE d.parent_id = :job_id"

FIND_EDGES_IN = f"{_EDGES} WHERE d.child_id = :job_id"

FIND_EDGES_BETWEEN = f"""{_EDGES}
     WHERE d.child_id {{in ids uuid}}
     ORDER BY d.parent_id, d.position, d.child_id
"""

FIND_PARENTS = """
    SELECT parent_id FROM scheduler_dependency WHERE child_id = :job_id ORDER BY position, parent_id
"""

FIND_GRAPH = """
    SELECT j.job_id, j.target, coalesce(q.status, j.status) AS status, j.job_type, j.canceled_reason
      FROM scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
     WHERE j.job_id = :root_id OR (j.root_id = :root_id AND j.root_id <> j.job_id)
"""

FIND_ARCHIVED_GRAPH = """
    SELECT job_id, target, status, job_type, canceled_reason FROM scheduler_job_archive WHERE root_id = :root_id
"""


_TABLE = "scheduler_dependency"


class SqlWorkflows(SqlPart):
    """Reads edges, conditions and graphs."""

    def conditions_of(self, parent_id: UUID) -> list[Edge]:
        """The outgoing edges of a job that have a condition, by (order, position)."""
        rows = self.database.read(lambda session: session.rows(FIND_CONDITIONS, {"job_id": parent_id}))
        return [_edge(row) for row in rows]

    def edges_of(self, job_id: UUID) -> list[Edge]:
        """Every edge into or out of a job."""

        def find(session: Session) -> list[Row]:
            values = {"job_id": job_id}
            return [*session.rows(FIND_EDGES_IN, values), *session.rows(FIND_EDGES_OUT, values)]

        edges = readable(self.database.read(find), _edge, _TABLE, itemgetter(slice(2)))
        return sorted(
            edges, key=lambda edge: (edge.child_id != job_id, edge.position, edge.parent_id, edge.child_id)
        )

    def parents_of(self, child_id: UUID) -> list[UUID]:
        """The parents of a job, in definition order."""
        rows = self.database.read(lambda session: session.rows(FIND_PARENTS, {"job_id": child_id}))
        return [parent_id for (parent_id,) in rows]

    def graph(self, root_id: UUID) -> Graph:
        """Every job that shares this root, also in the archive, with the edges between them."""

        def find(session: Session) -> Graph:
            values = {"root_id": root_id}
            rows = [*session.rows(FIND_GRAPH, values), *session.rows(FIND_ARCHIVED_GRAPH, values)]
            rows.sort(key=lambda row: str(row[0]))
            nodes = {node.job_id: node for node in readable(rows, _node, "scheduler_job", itemgetter(0))}
            edges = session.rows(FIND_EDGES_BETWEEN, {"ids": list(nodes)}) if nodes else []
            known = readable(edges, _edge, _TABLE, itemgetter(slice(2)))
            return Graph(
                nodes=tuple(nodes.values()), edges=tuple(edge for edge in known if edge.parent_id in nodes)
            )

        return self.database.read(find)


def _edge(row: Row) -> Edge:
    parent_id, child_id, kind, position, state, condition, predicate, argument, order, description = row
    return Edge(
        parent_id=parent_id,
        child_id=child_id,
        kind=EdgeKind(kind),
        position=position,
        state=EdgeState(state),
        condition=None
        if condition is None
        else Condition(
            kind=condition, predicate=predicate, argument=argument, order=order, description=description
        ),
    )


def _node(row: Row) -> GraphNode:
    job_id, target, status, job_type, canceled_reason = row
    return GraphNode(
        job_id=job_id,
        target=target,
        status=JobStatus(status),
        type=JobType(job_type),
        canceled_reason=canceled_reason,
    )
