"""Edges between jobs in MongoDB; how ends settle them is decided by the rules of `ratchet.stores.memory.finish`."""

from __future__ import annotations

from operator import itemgetter
from uuid import UUID

from ratchet.model.composition import Edge, Graph, GraphNode
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import EDGES, Document
from ratchet.stores.mongo.schema import Names
from ratchet.stores.unreadable import readable

_NODE = {"target": 1, "status": 1, "type": 1, "canceled_reason": 1}


class MongoWorkflows(MongoPart):
    """Reads edges, conditions and graphs."""

    def conditions_of(self, parent_id: UUID) -> list[Edge]:
        """The outgoing edges of a job that have a condition, by (order, position)."""
        edges = self._find({"_id.parent_id": parent_id, "condition": {"$exists": True}})
        found = [
            (edge.condition.order, edge.position, edge.child_id.int, edge) for edge in edges if edge.condition
        ]
        return [edge for *_, edge in sorted(found, key=lambda item: item[:3])]

    def edges_of(self, job_id: UUID) -> list[Edge]:
        """Every edge into or out of a job."""
        incoming = self._find({"_id.child_id": job_id})
        outgoing = self._find({"_id.parent_id": job_id})
        return [*sorted(incoming, key=_by_parent), *sorted(outgoing, key=_by_child)]

    def parents_of(self, child_id: UUID) -> list[UUID]:
        """The parents of a job, in definition order."""
        return [edge.parent_id for edge in sorted(self._find({"_id.child_id": child_id}), key=_by_parent)]

    def graph(self, root_id: UUID) -> Graph:
        """Every job that shares this root, also in the archive, with the edges between them."""

        def ask(collections: Collections) -> Graph:
            nodes = {
                one["_id"]: _node(one)
                for name in (Names.ARCHIVE, Names.JOBS)
                for one in collections[name].find(
                    {"$or": [{"_id": root_id}, {"links": link(Link.ROOT, root_id)}]}, _NODE
                )
            }
            ids = sorted(nodes, key=lambda job_id: job_id.int)
            found = collections[Names.DEPENDENCIES].find({"_id.child_id": {"$in": ids}})
            edges = [edge for edge in map(EDGES.value, found) if edge.parent_id in nodes]
            edges.sort(key=lambda edge: (edge.parent_id.int, *_by_child(edge)))
            return Graph(nodes=tuple(nodes[job_id] for job_id in ids), edges=tuple(edges))

        return self.database.read(ask)

    def _find(self, query: Document) -> list[Edge]:
        return self.database.read(
            lambda c: readable(
                c[Names.DEPENDENCIES].find(query), EDGES.value, Names.DEPENDENCIES, itemgetter("_id")
            )
        )


def _by_parent(edge: Edge) -> tuple[int, int]:
    return edge.position, edge.parent_id.int


def _by_child(edge: Edge) -> tuple[int, int]:
    return edge.position, edge.child_id.int


def _node(document: Document) -> GraphNode:
    return GraphNode(
        job_id=document["_id"],
        target=document["target"],
        status=JobStatus(document["status"]),
        type=JobType(document.get("type", JobType.SINGLE.value)),
        canceled_reason=document.get("canceled_reason"),
    )
