"""The tables in the documentation: one line per play that was really played."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.history import Row

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "resilience.md"
HEAD = (
    "scenario", "store", "jobs", "lost", "counted twice", "dead letters",
    "recovery p50", "recovery p99", "false rescues",
)  # fmt: skip
HEAD_OF_FAILOVERS = (
    "drill", "store", "jobs", "lost", "counted twice", "dead letters", "false rescues",
    "without a primary", "without progress", "measured",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """One table of the page, between its two marks."""

    name: str
    head: tuple[str, ...]
    line: Callable[[Row], str]

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: begin -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.name}: end -->"

    def update(self, rows: Iterable[Row], order: list[tuple[str, str]], text: str) -> str:
        """The page's *text* with these rows in it."""
        before, table, after = self._split(text)
        lines = {_key(line): line for line in table.splitlines() if line.startswith("| ")}
        lines.pop(_key(_joined(self.head)), None)
        lines |= {(row.scenario, row.store): self.line(row) for row in rows}
        kept = [lines[key] for key in order if key in lines]
        ruler = "|" + "---|" * len(self.head)
        return before + "\n".join(["", _joined(self.head), ruler, *kept, ""]) + after

    def _split(self, text: str) -> tuple[str, str, str]:
        found = re.search(f"(.*{re.escape(self.begin)})(.*)({re.escape(self.end)}.*)", text, re.DOTALL)
        if found is None:
            raise ValueError(f"the page has no place for the table: {self.begin} … {self.end}")
        return found[1], found[2], found[3]


def line_of(row: Row) -> str:
    """A row of the table of scenarios."""
    return _joined(
        (
            row.scenario,
            row.store,
            row.jobs,
            len(row.lost),
            len(row.twice),
            len(row.dead_letters),
            _seconds(row.recovery(0.5)),
            _seconds(row.recovery(0.99)),
            len(row.false_rescues),
        )
    )


def line_of_failover(row: Row) -> str:
    """A row of the table of failovers; one time for each round."""
    return _joined(
        (
            row.scenario,
            row.store,
            row.jobs,
            len(row.lost),
            len(row.twice),
            len(row.dead_letters),
            len(row.false_rescues),
            _each(without for without, _ in row.halts),
            _each(without for _, without in row.halts),
            datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        )
    )


SCENARIOS = Table("chaos", HEAD, line_of)
FAILOVERS = Table("failovers", HEAD_OF_FAILOVERS, line_of_failover)


def update(rows: Iterable[Row], order: list[tuple[str, str]], page: Path = PAGE) -> None:
    """Put these rows into the page; rows of other plays stay as they were measured."""
    for row in rows:
        table = FAILOVERS if row.halts else SCENARIOS
        page.write_text(table.update([row], order, page.read_text()))


def head() -> str:
    """The line above all rows."""
    return _joined(HEAD)


def _joined(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _key(line: str) -> tuple[str, str]:
    scenario, store = (cell.strip() for cell in line.split("|")[1:3])
    return scenario, store


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _each(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values) + " s"
