"""
A graph of jobs as layers from left to right: what waits for what.

A large graph is folded: jobs of one function and state that stand between the same others are one box, and so are the
steps of a chain in one state. A box can be unfolded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from markupsafe import Markup

from ratchet.api.observe.graphs import JobGraph
from ratchet.dashboard.drawing.svg import cut, element
from ratchet.dashboard.text import jobs_of, shown
from ratchet.model.composition import Edge, EdgeKind, GraphNode
from ratchet.model.status import JobStatus

#: Jobs up to which a graph is drawn as it is.
READABLE = 40
#: Jobs of one kind, or steps of a chain, that are folded.
FEWEST = 3
#: Boxes after which also jobs of different functions share a box.
CROWDED = 150

BOX_WIDTH, BOX_HEIGHT = 196, 46
COLUMN, ROW, EDGE = 268, 62, 14
NAME = 24


@dataclass(eq=False)
class Box:
    """One job, or several that are folded."""

    nodes: list[GraphNode]
    before: dict[Box, str] = field(default_factory=dict)  # with what the edge says
    after: dict[Box, str] = field(default_factory=dict)
    layer: int = 0
    row: float = 0.0

    @property
    def status(self) -> JobStatus:
        """The state of its jobs, which is the same for all of them."""
        return self.nodes[0].status

    @property
    def first(self) -> UUID:
        """The id by which it is unfolded."""
        return self.nodes[0].job_id


def folded(graph: JobGraph, *, focus: UUID | None, unfolded: Collection[UUID] = ()) -> list[Box]:
    """The boxes of a graph, linked, each in its layer."""
    boxes = _linked([[node] for node in graph.nodes], graph.edges)
    if len(boxes) <= READABLE:
        return boxes
    for key in (_alike, _in_one_layer):
        boxes = _merged(boxes, graph.edges, focus, unfolded, key)
        boxes = _chains(boxes, graph.edges, focus, unfolded)
        if len(boxes) <= CROWDED:
            break
    return boxes


def _alike(box: Box) -> object:
    node = box.nodes[0]
    return (
        box.layer,
        node.target,
        node.status,
        frozenset(map(id, box.before)),
        frozenset(map(id, box.after)),
    )


def _in_one_layer(box: Box) -> object:
    return (box.layer, box.status)


def _merged(
    boxes: list[Box],
    edges: Iterable[Edge],
    focus: UUID | None,
    unfolded: Collection[UUID],
    key: Callable[[Box], object],
) -> list[Box]:
    groups: dict[object, list[Box]] = {}
    for box in boxes:
        groups.setdefault(key(box), []).append(box)
    parts: list[list[GraphNode]] = []
    for group in groups.values():
        alone = [box for box in group if any(node.job_id == focus for node in box.nodes)]
        others = [box for box in group if box not in alone]
        nodes = [node for box in others for node in box.nodes]
        if len(others) < FEWEST or any(node.job_id in unfolded for node in nodes):
            parts += [box.nodes for box in group]
        else:
            parts += [*(box.nodes for box in alone), nodes]
    return _linked(parts, edges)


def _chains(
    boxes: list[Box], edges: Iterable[Edge], focus: UUID | None, unfolded: Collection[UUID]
) -> list[Box]:
    """Steps in a row, one after the other and in one state, become one box."""

    def inner(box: Box) -> bool:
        alone = len(box.before) == 1 and len(box.after) <= 1 and len(box.nodes) == 1
        return alone and box.first != focus

    parts: list[list[GraphNode]] = []
    done: set[int] = set()
    for box in sorted(boxes, key=lambda one: one.layer):
        if id(box) in done:
            continue
        run = [box]
        while inner(run[-1]) and len(run[-1].after) == 1:
            following = next(iter(run[-1].after))
            if not inner(following) or following.status is not box.status or id(following) in done:
                break
            run.append(following)
        done.update(map(id, run))
        if len(run) <= FEWEST or any(one.first in unfolded for one in run):
            parts += [one.nodes for one in run]
        else:
            parts.append([node for one in run for node in one.nodes])
    return _linked(parts, edges)


def _linked(parts: list[list[GraphNode]], edges: Iterable[Edge]) -> list[Box]:
    boxes = [Box(part) for part in parts]
    home = {node.job_id: box for box in boxes for node in box.nodes}
    for edge in edges:
        source, target = home.get(edge.parent_id), home.get(edge.child_id)
        if source is not None and target is not None and source is not target:
            source.after.setdefault(target, said(edge))
            target.before.setdefault(source, said(edge))
    _layered(boxes)
    return boxes


def _layered(boxes: list[Box]) -> None:
    """The layer of a box is the longest way to it."""
    waits = {id(box): len(box.before) for box in boxes}
    ready = [box for box in boxes if not box.before]
    for box in boxes:
        box.layer = 0
    while ready:
        box = ready.pop()
        for after in box.after:
            after.layer = max(after.layer, box.layer + 1)
            waits[id(after)] -= 1
            if waits[id(after)] == 0:
                ready.append(after)


def said(edge: Edge) -> str:
    """What stands on an edge; nothing on the ordinary one."""
    if edge.condition is not None:
        condition = edge.condition
        return f"if {condition.description or condition.predicate or condition.kind}"
    return {EdgeKind.FAILURE: "on failure", EdgeKind.END: "after"}.get(edge.kind, "")


def drawn(
    boxes: list[Box],
    *,
    focus: UUID | None,
    link: Callable[[UUID], str],
    unfold: Callable[[UUID], str],
) -> Markup:
    """The boxes as a drawing; a box leads to its job, or unfolds."""
    _place(boxes)
    columns = max((box.layer for box in boxes), default=0) + 1
    rows = max((box.row for box in boxes), default=0) + 1
    width, height = (
        columns * COLUMN - (COLUMN - BOX_WIDTH) + 2 * EDGE,
        rows * ROW - (ROW - BOX_HEIGHT) + 2 * EDGE,
    )
    shapes = [_edge(box, after, text) for box in boxes for after, text in box.after.items()]
    shapes += [_box(box, focus, link, unfold) for box in boxes]
    return element(
        "svg",
        Markup("").join(shapes),
        class_="graph",
        width=round(width),
        height=round(height),
        viewBox=f"0 0 {round(width)} {round(height)}",
        role="group",
        aria_label=f"{sum(len(box.nodes) for box in boxes)} jobs and what waits for what",
    )


def _place(boxes: list[Box]) -> None:
    layers: dict[int, list[Box]] = {}
    for box in boxes:
        layers.setdefault(box.layer, []).append(box)
    tallest = max(map(len, layers.values()), default=1)
    for layer in sorted(layers):
        column = layers[layer]
        column.sort(key=lambda box: (_middle(box), box.first.int))
        offset = (tallest - len(column)) / 2
        for index, box in enumerate(column):
            box.row = offset + index


def _middle(box: Box) -> float:
    rows = [before.row for before in box.before]
    return sum(rows) / len(rows) if rows else 0.0


def _corner(box: Box) -> tuple[float, float]:
    return EDGE + box.layer * COLUMN, EDGE + box.row * ROW


def _edge(source: Box, target: Box, text: str) -> Markup:
    (left, top), (right, bottom) = _corner(source), _corner(target)
    x1, y1, x2, y2 = left + BOX_WIDTH, top + BOX_HEIGHT / 2, right, bottom + BOX_HEIGHT / 2
    middle = (x1 + x2) / 2
    line = element(
        "path", d=f"M{x1:g} {y1:g} C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}", class_="edge"
    )
    if not text:
        return line
    words = element("text", cut(text, 14), x=x2 - 4, y=y2 - 5, text_anchor="end", class_="edge-text")
    return element("g", line + words + element("title", text))


def _box(box: Box, focus: UUID | None, link: Callable[[UUID], str], unfold: Callable[[UUID], str]) -> Markup:
    x, y = _corner(box)
    many = len(box.nodes) > 1
    names = list(dict.fromkeys(node.target for node in box.nodes))
    name = names[0] if len(names) == 1 else f"{len(names)} functions"
    state = box.status.value.lower()
    below = f"{jobs_of(len(box.nodes))} · {state}" if many else state
    parts = [element("title", f"{shown(name, 300)} · {below}{_reason(box)}")]
    if many:
        parts.append(
            element("rect", x=x + 4, y=y + 4, width=BOX_WIDTH, height=BOX_HEIGHT, rx=8, class_="box more")
        )
    parts += [
        element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=8, class_="box"),
        element("rect", x=x, y=y, width=5, height=BOX_HEIGHT, rx=2.5, class_="edge-mark"),
        element(
            "text", cut(shown(name.rpartition(":")[2] or name, 300), NAME), x=x + 14, y=y + 19, class_="name"
        ),
        element("text", below, x=x + 14, y=y + 36, class_="state-name"),
    ]
    current = any(node.job_id == focus for node in box.nodes)
    kind = f"node s-{box.status.value}" + (" current" if current else "") + (" many" if many else "")
    return element(
        "a",
        Markup("").join(parts),
        href=unfold(box.first) if many else link(box.first),
        class_=kind,
        aria_label=f"{'Unfold ' if many else ''}{shown(name, 300)}, {below}",
        aria_current="true" if current else None,
    )


def _reason(box: Box) -> str:
    reason = box.nodes[0].canceled_reason
    return f" ({reason})" if reason and len(box.nodes) == 1 else ""
