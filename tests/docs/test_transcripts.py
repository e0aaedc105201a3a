"""What the docs show as the output of commands is what these commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import transcripts

ROOT = transcripts.DOCS.parent
SHOWN = {
    name: (page, body)
    for page in transcripts.PAGES
    for _, name, body, _ in transcripts.BLOCK.findall(page.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_transcript_is_what_its_commands_print(name: str) -> None:
    """Word for word, except for ids, times and sizes."""
    _, body = SHOWN[name]
    assert transcripts.normalized(transcripts.transcript(name)) == transcripts.normalized(body)


def test_every_scenario_is_shown() -> None:
    """On one page, and nothing else is marked as run."""
    marks = [
        mark
        for page in transcripts.PAGES
        for mark in re.findall(r"<!-- run: ([\w-]+) -->", page.read_text(encoding="utf-8"))
    ]
    assert sorted(marks) == sorted(transcripts.SCENARIOS)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(transcripts.DOCS.rglob("*.md"))], ids=lambda page: page.stem
)
def test_nothing_is_shown_as_printed_that_no_command_has_printed(page: Path) -> None:
    """A block with a command and its output is one that `make transcripts` writes."""
    text = transcripts.BLOCK.sub("", page.read_text(encoding="utf-8"))
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        joined = block.replace("\\\n", " ")
        if re.search(r"^\$ ", joined, re.MULTILINE):
            output = [
                line for line in joined.splitlines() if line.strip() and not line.startswith(("$ ", "#"))
            ]
            assert output == [], f"{page.name}: add a scenario for this to docs/transcripts.py"


def test_what_is_compared() -> None:
    """A status, a word or a missing line counts; an id, a time, a size or a column's width does not."""
    same = transcripts.normalized(
        "01a1eebd-16b7-7000   RUNNING  shop:pay  1.2s   2026-11-18 12:58:52+00:00\n───"
    )
    assert (
        transcripts.normalized("02b2ffcd-26b7-7000 RUNNING shop:pay 250ms 2027-01-01 00:00:00+00:00\n─────")
        == same
    )
    assert (
        transcripts.normalized("02b2ffcd-26b7-7000 PENDING shop:pay 250ms 2027-01-01 00:00:00+00:00\n─────")
        != same
    )
    assert (
        transcripts.normalized("02b2ffcd-26b7-7000 RUNNING shop:pay 250ms 2027-01-01 00:00:00+00:00\n")
        != same
    )
