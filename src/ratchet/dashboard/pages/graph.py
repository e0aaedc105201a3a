"""The jobs that were submitted together, as a drawing."""

from __future__ import annotations

from uuid import UUID

from ratchet.dashboard.drawing.graphs import folded
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.status import JobStatus

#: Boxes that are unfolded at once.
UNFOLDED = 50


def graph(question: Question) -> Data:
    """Nodes, edges and states; the template draws the boxes."""
    scheduler = question.scheduler
    found = scheduler.jobs.get(question.names["id"])
    whole = scheduler.handle(found.id).graph()
    opened = _ids(question.words.getlist("unfold"))
    counts = {status: sum(node.status is status for node in whole) for status in JobStatus}
    return {
        "job": {"id": found.id, "target": found.target, "status": found.status},
        "nodes": whole.nodes,
        "edges": whole.edges,
        "unfolded": opened,
        "counts": {status.value: count for status, count in counts.items() if count},
        "boxes": len(folded(whole, focus=found.id, unfolded=opened)),
    }


def _ids(texts: list[str]) -> list[UUID]:
    found = []
    for text in texts[:UNFOLDED]:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found
