"""The page that compares: its tables of faults come from the trials that are kept, and every feature of others names its source."""

from __future__ import annotations

import re

from bench.faults.page import COLUMNS, PAGE, filled, kept, tables
from bench.faults.subjects import SETTINGS

TEXT = PAGE.read_text()
UNFOUND = "not found in its docs"


def feature_rows() -> list[list[str]]:
    """The cells of the feature tables, without their heads."""
    part = TEXT.split("\n## Features\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line[1:-1].split("|")] for line in part.splitlines() if line[:2] == "| "
    ]
    return [row for row in rows if row[0]]


def test_the_fault_tables_are_what_the_kept_trials_say() -> None:
    """`python -m bench.faults --page` would change nothing."""
    assert filled(TEXT, tables(kept())) == TEXT


def test_every_library_was_hurt_in_every_way() -> None:
    """A trial that is missing from the page is a gap that looks like a success."""
    seen = {(trial["peer"], trial["fault"]) for trial in kept() if "error" not in trial}
    libraries = [peer for peer in SETTINGS if peer not in ("celery-60", "huey-int")]
    assert {(peer, fault) for peer in libraries for fault in COLUMNS} - seen == set()


def test_every_feature_of_others_names_its_source() -> None:
    """A cell links its project's own page or repository, or says that nothing was found."""
    rows = [row for row in feature_rows() if not row[0].startswith("Ratchet")]
    assert len(rows) == 22
    unsourced = [
        (row[0], cell)
        for row in rows
        for cell in row[1:]
        if cell != UNFOUND and not re.fullmatch(r"(\[[^]]+\]\(https://[^)]+\)[,; ]*)+", cell)
    ]
    assert unsourced == []


def test_our_own_features_link_our_own_pages() -> None:
    """What we say of ourselves can be read on this site."""
    (first, second) = [row for row in feature_rows() if row[0].startswith("Ratchet")]
    for cell in [*first[1:], *second[1:]]:
        (link,) = re.findall(r"\]\(([^)]+)\)", cell)
        assert (PAGE.parent / link.split("#")[0]).exists(), cell


def test_every_table_has_as_many_cells_as_its_head() -> None:
    """A `|` too many would shift a row."""
    assert {len(row) for row in feature_rows()} == {6}
