"""Bars: of a run in a timeline, of failures by the hour, of a batch's items."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from ratchet.dashboard.drawing.svg import element
from ratchet.model.job import Execution

SCALE = 1000.0
#: Of a run that is too short to be seen.
THINNEST = 6.0


def run_bars(runs: Sequence[Execution], begun_at: datetime | None, now: datetime) -> list[Markup]:
    """A bar for each run on one time scale: how long it waited, and how long it ran. *begun_at*: of one under way."""
    spans = [_span(run, now) for run in runs]
    if begun_at is not None:
        spans.append((begun_at, begun_at, now))
    if not spans:
        return []
    first, last = min(one[0] for one in spans), max(one[2] for one in spans)
    length = max((last - first).total_seconds(), 1e-6)

    def at(moment: datetime) -> float:
        return SCALE * (moment - first).total_seconds() / length

    kinds = [run.status for run in runs] + ["RUNNING"]
    return [
        _bar(at(due), at(start), at(end), kind) for (due, start, end), kind in zip(spans, kinds, strict=False)
    ]


def _span(run: Execution, now: datetime) -> tuple[datetime, datetime, datetime]:
    end = run.finished_at or now
    start = run.started_at or (end - run.duration if run.duration is not None else end)
    return (start if run.queue_wait is None else start - run.queue_wait), start, end


def _bar(due: float, start: float, end: float, kind: str) -> Markup:
    width = max(end - start, THINNEST)
    start = min(start, SCALE - width)
    waited = element(
        "rect", x=round(due, 1), y=6, width=round(max(start - due, 0), 1), height=4, class_="waited"
    )
    ran = element("rect", x=round(start, 1), y=1, width=round(width, 1), height=14, class_=f"ran s-{kind}")
    return element(
        "svg",
        waited + ran,
        class_="bar",
        viewBox="0 0 1000 16",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def hour_bars(counts: Sequence[int]) -> Markup:
    """Small bars, one for each hour, the latest at the right."""
    most, width = max([*counts, 1]), 6
    bars = [
        element(
            "rect",
            x=index * width,
            y=round(24 - max(24 * count / most, 2), 1),
            width=width - 1.5,
            height=round(max(24 * count / most, 2), 1),
            class_="some",
        )
        if count
        else element("rect", x=index * width, y=23, width=width - 1.5, height=1, class_="none")
        for index, count in enumerate(counts)
    ]
    return element(
        "svg",
        Markup("").join(bars),
        class_="hours",
        viewBox=f"0 0 {width * len(counts)} 24",
        role="img",
        aria_label=f"{sum(counts)} failures in the last {len(counts)} hours, {counts[-1] if counts else 0} in this one",
    )


def share_bar(parts: Sequence[tuple[str, int]], total: int) -> Markup:
    """One bar of several parts, such as the items of a batch by how they ended."""
    shapes, x = [], 0.0
    for kind, count in parts:
        width = SCALE * count / total if total else 0.0
        if count:
            shapes.append(
                element("rect", x=round(x, 1), y=0, width=round(width, 1), height=10, class_=f"ran s-{kind}")
            )
        x += width
    told = ", ".join(f"{count:,} {kind.lower()}" for kind, count in parts if count) or "nothing yet"
    return element(
        "svg",
        Markup("").join(shapes),
        class_="share",
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{told} of {total:,}",
    )
