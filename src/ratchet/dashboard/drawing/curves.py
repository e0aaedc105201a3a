"""Curves of the last hour or day: one chart for each question, made of the points of `scheduler.jobs.history`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

from ratchet.dashboard.drawing.svg import element
from ratchet.dashboard.text import count, span
from ratchet.model.flow_history import FlowPoint

WIDTH, HEIGHT = 360.0, 110.0
LEFT, BOTTOM, TOP = 4.0, 16.0, 6.0


class Curve(NamedTuple):
    """One line of a chart: its name, the class that colors it, and its value at a point (None: not known)."""

    name: str
    kind: str
    value: Callable[[FlowPoint], float | None]


class Chart(NamedTuple):
    """Some curves on one scale, and how its values are written."""

    title: str
    written: Callable[[float], str]
    curves: tuple[Curve, ...]


def _whole(value: float) -> str:
    return count(round(value))


CHARTS: tuple[Chart, ...] = (
    Chart(
        "Runs",
        _whole,
        (
            Curve("succeeded", "s-SUCCEEDED", lambda point: point.succeeded),
            Curve("failed", "s-FAILED", lambda point: point.failed),
            Curve("retried", "s-PAUSED", lambda point: point.retried),
        ),
    ),
    Chart("Due jobs", _whole, (Curve("due", "s-PENDING", lambda point: point.depth),)),
    Chart(
        "Wait",
        span,
        (
            Curve("p50", "s-RUNNING", lambda point: _seconds(point.wait.p50)),
            Curve("p95", "s-PENDING", lambda point: _seconds(point.wait.p95)),
        ),
    ),
    Chart(
        "Run time",
        span,
        (
            Curve("p50", "s-RUNNING", lambda point: _seconds(point.run.p50)),
            Curve("p95", "s-PENDING", lambda point: _seconds(point.run.p95)),
        ),
    ),
)


def _seconds(length: object) -> float | None:
    total = getattr(length, "total_seconds", None)
    return None if total is None else float(total())


def chart(made: Chart, points: Sequence[FlowPoint]) -> Markup:
    """One chart: lines, its greatest value, and the times at its ends."""
    values = [[curve.value(point) for point in points] for curve in made.curves]
    most = max((value for line in values for value in line if value is not None), default=0.0)
    top = most or 1.0
    step = (WIDTH - 2 * LEFT) / max(len(points) - 1, 1)

    def place(index: int, value: float) -> str:
        return f"{LEFT + index * step:.1f} {TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top):.1f}"

    shapes = [
        element("path", d=f"M{LEFT} {HEIGHT - BOTTOM} H{WIDTH - LEFT}", class_="axis"),
        *(
            element("path", d=_path(line, place), class_=f"curve {curve.kind}")
            for curve, line in zip(made.curves, values, strict=True)
            if most
        ),
    ]
    if points:
        shapes += [
            _tick(points[0].at, LEFT, "start"),
            _tick(points[-1].at, WIDTH - LEFT, "end"),
        ]
    if not most:
        shapes.append(
            element(
                "text", "nothing in this time", x=WIDTH / 2, y=HEIGHT / 2, text_anchor="middle", class_="none"
            )
        )
    return element(
        "svg",
        Markup("").join(shapes),
        class_="chart",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
        aria_label=f"{made.title}: at most {made.written(most)} in {len(points)} steps",
    )


def _tick(at: datetime, x: float, anchor: str) -> Markup:
    """A time below the axis, in UTC; the script turns it to the zone of the viewer."""
    moment = at.astimezone(UTC)
    return element(
        "text",
        moment.strftime("%H:%M UTC"),
        x=x,
        y=HEIGHT - 3,
        text_anchor=anchor,
        class_="tick",
        data_time=moment.isoformat(),
    )


def greatest(made: Chart, points: Sequence[FlowPoint]) -> str:
    """The greatest value of a chart, as it is written."""
    found = [value for curve in made.curves for point in points if (value := curve.value(point)) is not None]
    return made.written(max(found)) if any(found) else ""


def _path(line: Sequence[float | None], place: Callable[[int, float], str]) -> str:
    """Where nothing is known the line has a gap; a point alone is a dot."""
    parts: list[str] = []
    pen_down = False
    for index, value in enumerate(line):
        if value is None:
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{place(index, value)}" + ("" if pen_down else "h.1"))
        pen_down = True
    return " ".join(parts)
