"""What the docs show as the output of commands is what these commands print."""

from __future__ import annotations

import pytest

from docs import transcripts


@pytest.mark.parametrize("page", transcripts.PAGES, ids=lambda page: page.stem)
def test_a_transcript_is_what_its_commands_print(page: object) -> None:
    """Word for word, except for ids, times and sizes; every scenario is shown, and nothing else is marked as run."""
    shown = {name: body for _, name, body, _ in transcripts.BLOCK.findall(page.read_text())}  # type: ignore[attr-defined]
    assert set(shown) == set(transcripts.SCENARIOS)
    for name, body in shown.items():
        assert transcripts.normalized(transcripts.transcript(name)) == transcripts.normalized(body), name


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
