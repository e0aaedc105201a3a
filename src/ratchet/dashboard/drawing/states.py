"""The state machine of a job, with where it is."""

from __future__ import annotations

from markupsafe import Markup

from ratchet.dashboard.drawing.svg import element
from ratchet.model.status import TRANSITIONS, JobStatus

_S = JobStatus
WIDTH, HEIGHT = 104, 34
_PLACES = {
    _S.WAITING: (60, 40),
    _S.PENDING: (220, 40),
    _S.RUNNING: (380, 40),
    _S.SUCCEEDED: (548, 40),
    _S.PAUSED: (220, 140),
    _S.FAILED: (380, 140),
    _S.CANCELED: (548, 140),
}
#: How each drawn move runs; what a person can do with every waiting job (cancel) is drawn from RUNNING alone.
MOVES: dict[tuple[JobStatus, JobStatus], str] = {
    (_S.WAITING, _S.PENDING): "M112 40 H164",
    (_S.PENDING, _S.RUNNING): "M272 40 H324",
    (_S.RUNNING, _S.SUCCEEDED): "M432 40 H492",
    (_S.RUNNING, _S.PENDING): "M360 23 C340 4 262 4 242 20",
    (_S.RUNNING, _S.FAILED): "M380 57 V119",
    (_S.RUNNING, _S.CANCELED): "M424 57 L506 120",
    (_S.PENDING, _S.PAUSED): "M208 57 V119",
    (_S.PAUSED, _S.PENDING): "M232 123 V61",
    (_S.FAILED, _S.PENDING): "M340 123 L266 60",
    (_S.FAILED, _S.PAUSED): "M328 140 H276",
}


def state_diagram(current: JobStatus) -> Markup:
    """All states; the one the job is in stands out, and so do the moves that can follow."""
    legal = {(move.source, move.target) for move in TRANSITIONS}
    lines = [
        element("path", d=path, class_="move next" if source is current else "move", marker_end="url(#tip)")
        for (source, target), path in MOVES.items()
        if (source, target) in legal
    ]
    boxes = [_box(status, is_current=status is current) for status in JobStatus]
    tip = element(
        "defs",
        element(
            "marker",
            element("path", d="M0 0 L8 4 L0 8 z", class_="tip"),
            id="tip",
            viewBox="0 0 8 8",
            refX=7,
            refY=4,
            markerWidth=9,
            markerHeight=9,
            orient="auto",
            markerUnits="userSpaceOnUse",
        ),
    )
    return element(
        "svg",
        Markup("").join([tip, *lines, *boxes]),
        class_="states",
        viewBox="0 0 608 170",
        role="img",
        aria_label=f"The states of a job; this one is {current.value}",
    )


def _box(status: JobStatus, *, is_current: bool) -> Markup:
    x, y = _PLACES[status]
    shape = element("rect", x=x - WIDTH / 2, y=y - HEIGHT / 2, width=WIDTH, height=HEIGHT, rx=8, class_="box")
    text = element("text", status.value.lower(), x=x, y=y + 4.5, text_anchor="middle")
    return element("g", shape + text, class_=f"state s-{status.value}" + (" current" if is_current else ""))
