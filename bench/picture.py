"""The picture in the docs: horizontal bars in plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

ROW, GAP, LEFT, WIDTH = 18, 14, 210, 520
COLORS = {"ratchet": "#2f6f4f", "raw": "#9aa5a0"}
OTHER = "#c08a3e"
#: Ratchet against itself: their ratios are in a table.
ALONE = ("snapshot", "backlog", "history", "chains", "batch", "streaming", "gates", "fairness", "streams")


def picture(measurements: Sequence[Mapping[str, Any]]) -> str:
    """One group of bars per workload that counts jobs per second, each scaled to its fastest."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for found in measurements:
        if found["unit"] == "jobs/s" and not found["workload"].startswith(ALONE):
            groups.setdefault(found["workload"], []).append(found)
    parts: list[str] = []
    top = 34
    for workload, bars in groups.items():
        parts.append(f'<text x="{LEFT - 12}" y="{top + 13}" text-anchor="end">{escape(workload)}</text>')
        longest = max(bar["median"] for bar in bars)
        for bar in bars:
            length = max(2.0, bar["median"] / longest * WIDTH)
            color = COLORS.get(bar["contender"], OTHER)
            label = f"{bar['contender']} {bar['median']:,.0f}"
            inside = length > 170
            x, anchor = (LEFT + length - 6, "end") if inside else (LEFT + length + 6, "start")
            fill = ' fill="#fff"' if inside else ""
            parts.append(
                f'<rect x="{LEFT}" y="{top}" width="{length:.0f}" height="{ROW - 3}" rx="2" fill="{color}"/>'
            )
            parts.append(
                f'<text x="{x:.0f}" y="{top + 12}" text-anchor="{anchor}"{fill}>{escape(label)}</text>'
            )
            top += ROW
        top += GAP
    width = LEFT + WIDTH + 150
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{top}" fill="#fff"/>'
        f'<text x="16" y="20" font-size="14" font-weight="bold">Jobs per second, same server, same minute</text>'
    )
    return head + "".join(parts) + "</svg>\n"
