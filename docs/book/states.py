"""The state diagram as a drawing: GitHub draws Mermaid by itself, a site without scripts from elsewhere does not."""

from __future__ import annotations

import re
from pathlib import Path

WIDTH, HEIGHT = 124, 40
#: The middle of each state.
PLACES = {
    "WAITING": (80, 60),
    "PENDING": (340, 60),
    "RUNNING": (640, 60),
    "SUCCEEDED": (880, 60),
    "PAUSED": (340, 280),
    "CANCELED": (80, 280),
    "FAILED": (640, 280),
}
#: How far along its arrow a label stands, where the middle is crowded.
SHARES = {
    ("WAITING", "FAILED"): 0.8,
    ("RUNNING", "CANCELED"): 0.16,
    ("PENDING", "CANCELED"): 0.75,
    ("FAILED", "PENDING"): 0.3,
}
MERMAID = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```\n", re.DOTALL)
ARROW = re.compile(r"^\s*(\w+) --> (\w+): (.+)$", re.MULTILINE)


def draw(page: Path) -> None:
    """Put a drawing in the place of the diagram's source."""
    text = page.read_text(encoding="utf-8")
    found = MERMAID.search(text)
    if found is None:
        raise ValueError(f"{page} has no state diagram")
    page.write_text(text[: found.start()] + svg(found.group(1)) + text[found.end() :], encoding="utf-8")


def svg(source: str) -> str:
    """The drawing of a Mermaid state diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for start, end, trigger in ARROW.findall(source):
        arrows.setdefault((start, end), []).append(trigger)
    parts = [
        '```{raw} html\n<svg class="state-diagram" viewBox="0 0 960 330" role="img" aria-label="States of a job; the table below has the same" '
        'fill="none" stroke="currentColor" font-family="inherit">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8Z" fill="currentColor" stroke="none"/></marker></defs>',
    ]
    drawn = [_arrow(start, end, triggers, arrows) for (start, end), triggers in arrows.items()]
    parts += [line for line, _ in drawn] + [label for _, label in drawn]
    for name, (x, y) in PLACES.items():
        parts.append(
            f'<rect x="{x - WIDTH // 2}" y="{y - HEIGHT // 2}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="var(--color-background-secondary)"/>'
            f'<text x="{x}" y="{y + 5}" text-anchor="middle" font-size="14" font-weight="600" fill="currentColor" stroke="none">{name}</text>'
        )
    return "".join(parts) + "</svg>\n```\n"


def _arrow(
    start: str, end: str, triggers: list[str], arrows: dict[tuple[str, str], list[str]]
) -> tuple[str, str]:
    """A line between two boxes, moved aside where there is one back; and its label."""
    (x1, y1), (x2, y2) = PLACES[start], PLACES[end]
    dx, dy = x2 - x1, y2 - y1
    length = (dx * dx + dy * dy) ** 0.5
    side = 9 if (end, start) in arrows else 0
    ox, oy = -dy / length * side, dx / length * side
    x1, y1, x2, y2 = x1 + ox, y1 + oy, x2 + ox, y2 + oy
    cut = min(WIDTH / 2 / abs(dx) if dx else 9, HEIGHT / 2 / abs(dy) if dy else 9)
    ax, ay, bx, by = x1 + dx * cut, y1 + dy * cut, x2 - dx * cut, y2 - dy * cut
    share = SHARES.get((start, end), 0.5)
    mx, my = ax + (bx - ax) * share, ay + (by - ay) * share
    label = ", ".join(dict.fromkeys(triggers))
    rows = [label] if dy == 0 or len(label) < 16 else label.split(", ")
    # Above or below a level line, beside an upright one.
    if dy == 0:
        my += -6 if oy <= 0 else 15
        anchor = "middle"
    else:
        mx += 6 if ox >= 0 else -6
        anchor = "start" if ox >= 0 else "end"
    text = "".join(
        f'<text x="{mx:.0f}" y="{my + 13 * row:.0f}" text-anchor="{anchor}" font-size="12" fill="currentColor" stroke="var(--color-background-primary)" stroke-width="4" paint-order="stroke">{words}</text>'
        for row, words in enumerate(rows)
    )
    return f'<path d="M{ax:.0f} {ay:.0f}L{bx:.0f} {by:.0f}" opacity="0.7" marker-end="url(#tip)"/>', text
