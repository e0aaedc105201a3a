"""`OptionRow`: an option as the configuration reference shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OptionRow(NamedTuple):
    """One line of the configuration reference."""

    name: str
    environment: str
    default: str
    accepts: str
    description: str
    section: str


def as_markdown(rows: Iterable[OptionRow]) -> str:
    """The reference as Markdown: one table per section."""
    lines: list[str] = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += [
                "",
                f"## {section}",
                "",
                "| Option | Default | Meaning | Accepts |",
                "|---|---|---|---|",
            ]
        cells = (f"`{row.name}`<br>`{row.environment}`", f"`{row.default}`", row.description, row.accepts)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines[1:]) + "\n"
