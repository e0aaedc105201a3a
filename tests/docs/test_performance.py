"""The published measurements come from the runs that are kept in the repository, and no other run is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.report import PAGE, RESULTS, count_rows, measured_rows, target_rows

RUNS = sorted(RESULTS.glob("*.json"))
GENERATED = ("targets", "measured", "counts")


def rows_of_page() -> set[str]:
    """The rows of the page's generated tables, without their heads."""
    text = PAGE.read_text()
    found: set[str] = set()
    for name in GENERATED:
        part = text.split(f"<!-- bench: {name} -->")[1].split(f"<!-- end {name} -->")[0]
        for table in part.split("\n\n"):
            rows = [line for line in table.splitlines() if line.startswith("|")]
            found.update(rows[2:])
    return found


def rows_of_run(run: Path) -> set[str]:
    """The rows that a run would write into the page."""
    document: dict[str, Any] = json.loads(run.read_text())
    counts = [row for rows in document["tables"].values() for row in count_rows(rows)]
    return {*target_rows(document), *measured_rows(document), *counts}


def test_every_published_number_comes_from_a_run_that_is_kept() -> None:
    """Each row of the generated tables can be looked up in bench/results."""
    kept = set().union(*(rows_of_run(run) for run in RUNS))
    assert rows_of_page() - kept == set()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_a_run_that_is_kept_gave_a_published_number(run: Path) -> None:
    """A run whose numbers were replaced by later ones is removed from bench/results."""
    assert rows_of_run(run) & rows_of_page()


def test_the_numbers_of_the_readme_are_those_of_the_pages() -> None:
    """Each number that the README shows in bold stands on the page that its row links to."""
    root = PAGE.parents[2]
    rows = [
        row
        for row in (root / "README.md").read_text().splitlines()
        if re.search(r"\*\*[\d.,]+( s)?\*\*", row)
    ]
    assert len(rows) >= 3
    for row in rows:
        (page,) = re.findall(r"\[measured\]\(([^)]+)\)", row)
        for number in re.findall(r"\*\*([\d.,]+(?: s)?)\*\*", row):
            assert number in (root / page).read_text(), number
    assert "14,623" in PAGE.read_text(), "why-no-broker.md says it, too"
