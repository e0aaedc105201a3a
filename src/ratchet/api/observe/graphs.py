"""`JobGraph`: the jobs that were submitted together, and what waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ratchet.model.composition import Edge, EdgeKind, Graph, GraphNode

_ARROWS = {
    EdgeKind.SUCCESS: "",
    EdgeKind.FAILURE: "on failure",
    EdgeKind.CONDITION: "if",
    EdgeKind.END: "after",
}


class JobGraph:
    """Jobs and the edges between them, with the states they were in when asked."""

    __slots__ = ("_by_id", "_out", "edges", "nodes")

    def __init__(self, graph: Graph) -> None:
        self.nodes: tuple[GraphNode, ...] = tuple(sorted(graph.nodes, key=lambda node: node.job_id))
        self.edges: tuple[Edge, ...] = tuple(
            sorted(graph.edges, key=lambda edge: (edge.parent_id, edge.position, edge.child_id))
        )
        self._by_id = {node.job_id: node for node in self.nodes}
        self._out: dict[UUID, list[Edge]] = {}
        for edge in self.edges:
            self._out.setdefault(edge.parent_id, []).append(edge)

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, job_id: UUID) -> GraphNode | None:
        """One job of the graph; None if it is not part of it."""
        return self._by_id.get(job_id)

    def children(self, job_id: UUID) -> list[Edge]:
        """The edges that leave a job, in definition order."""
        return list(self._out.get(job_id, ()))

    def __str__(self) -> str:
        """A tree for people; a job with several parents is shown under each, once in full."""
        below = {edge.child_id for edge in self.edges if self.node(edge.parent_id) is not None}
        lines: list[str] = []
        seen: set[UUID] = set()
        # Written with a stack of its own: chains may be a thousand steps deep.
        stack = [(node, 0, "") for node in reversed(self.nodes) if node.job_id not in below]
        while stack:
            node, depth, label = stack.pop()
            again = " (see above)" if node.job_id in seen else ""
            lines.append("  " * depth + f"{label}{node.target} {node.status}{_reason(node)}{again}")
            if again:
                continue
            seen.add(node.job_id)
            for edge in reversed(self.children(node.job_id)):
                child = self.node(edge.child_id)
                if child is not None:
                    stack.append((child, depth + 1, _label(edge)))
        return "\n".join(lines)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        names = {node.job_id: f"j{index}" for index, node in enumerate(self.nodes)}
        lines = ["flowchart TD"]
        lines += [
            f'    {names[node.job_id]}["{_quoted(node.target)}<br>{node.status}"]' for node in self.nodes
        ]
        for edge in self.edges:
            if edge.parent_id in names and edge.child_id in names:
                text = _quoted(_label(edge).rstrip(": "))
                arrow = f"-->|{text}|" if text else "-->"
                lines.append(f"    {names[edge.parent_id]} {arrow} {names[edge.child_id]}")
        return "\n".join(lines)


def _label(edge: Edge) -> str:
    text = _ARROWS[edge.kind]
    if edge.condition is not None:
        text = f"if {edge.condition.description or edge.condition.predicate or edge.condition.kind}"
    return f"{text}: " if text else ""


def _reason(node: GraphNode) -> str:
    return f" ({node.canceled_reason})" if node.canceled_reason else ""


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;").replace("|", "#124;")
