"""The table in the documentation: one line per play that was really played."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.history import Row

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "resilience.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"
HEAD = (
    "scenario", "store", "jobs", "lost", "counted twice", "dead letters",
    "recovery p50", "recovery p99", "false rescues",
)  # fmt: skip


def line_of(row: Row) -> str:
    """A row of the table."""
    cells = [
        row.scenario,
        row.store,
        row.jobs,
        len(row.lost),
        len(row.twice),
        len(row.dead_letters),
        _seconds(row.recovery(0.5)),
        _seconds(row.recovery(0.99)),
        len(row.false_rescues),
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def update(rows: Iterable[Row], order: list[tuple[str, str]], page: Path = PAGE) -> None:
    """Put these rows into the page; rows of other plays stay as they were measured."""
    text = page.read_text()
    before, table, after = _split(text)
    lines = {_key(line): line for line in table.splitlines() if line.startswith("| ")}
    lines.pop(_key(head()), None)
    lines |= {(row.scenario, row.store): line_of(row) for row in rows}
    kept = [lines[key] for key in order if key in lines]
    ruler = "|" + "---|" * len(HEAD)
    page.write_text(before + "\n".join(["", head(), ruler, *kept, ""]) + after)


def head() -> str:
    """The line above all rows."""
    return "| " + " | ".join(HEAD) + " |"


def _key(line: str) -> tuple[str, str]:
    scenario, store = (cell.strip() for cell in line.split("|")[1:3])
    return scenario, store


def _split(text: str) -> tuple[str, str, str]:
    found = re.search(f"(.*{re.escape(BEGIN)})(.*)({re.escape(END)}.*)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{PAGE} has no place for the table: {BEGIN} … {END}")
    return found[1], found[2], found[3]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"
