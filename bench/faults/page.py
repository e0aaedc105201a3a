"""The tables of the docs that say what happened in the trials."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.faults.subjects import SETTINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "comparison.md"
#: The trials that the page shows, one JSON document per line, and no others.
KEPT = ROOT / "bench" / "results" / "faults.jsonl"

Trials = Sequence[dict[str, Any]]


def seconds(trials: Trials, field: str) -> str:
    """The median of a time and its range, or how often it was waited for in vain."""
    found = sorted(trial[field] for trial in trials if trial[field] is not None)
    missing = len(trials) - len(found)
    waited = max((trial.get("watched", trial["limit"]) for trial in trials), default=0)
    never = f"not within {waited:.0f} s"
    if not found:
        return never
    shown = f"{median(found):.1f} s"
    if found[0] != found[-1]:
        shown += f" ({found[0]:.1f} to {found[-1]:.1f})"
    return f"{shown}; {missing} of {len(trials)} {never}" if missing else shown


def count(trials: Trials, field: str) -> str:
    """A number, or the median and the range of numbers that differ."""
    found = sorted(trial[field] for trial in trials)
    if found[0] == found[-1]:
        return str(found[0])
    return f"{median(found):g} ({found[0]} to {found[-1]})"


def _of(found: Trials, trials: Trials, shown: str) -> str:
    """What was seen, and in how many trials if not in all."""
    return shown if len(found) == len(trials) else f"{shown}, in {len(found)} of {len(trials)}"


def _elsewhere(trials: Trials) -> str:
    """When the job of a stopped worker started elsewhere, or that it waited."""
    found = [trial for trial in trials if trial["again_while_frozen"] is not None]
    return _of(found, trials, seconds(found, "again_while_frozen")) if found else "no: it waited"


def _gone(trials: Trials) -> str:
    return seconds([{**trial, "watched": 90} for trial in trials], "exit_after")


def _again(trials: Trials) -> str:
    """After which time an interrupted job started again, if it was interrupted."""
    found = [trial for trial in trials if trial["started_twice"] or trial["not_ended"]]
    return _of(found, trials, seconds(found, "again_after")) if found else "no: they ended where they ran"


#: Of each fault: the heads of its columns, and what is in them.
COLUMNS: dict[str, list[tuple[str, Callable[[Trials], str]]]] = {
    "kill": [
        ("the job runs again after", lambda trials: seconds(trials, "again_after")),
        ("of 21 jobs not ended", lambda trials: count(trials, "not_ended")),
        ("ended twice", lambda trials: count(trials, "ended_twice")),
    ],
    "freeze": [
        ("the job starts elsewhere after", _elsewhere),
        ("ended twice", lambda trials: count(trials, "ended_twice")),
        ("not ended", lambda trials: count(trials, "not_ended")),
    ],
    "restart": [
        ("first start after the server is back", lambda trials: seconds(trials, "again_after")),
        ("of 100 jobs not ended", lambda trials: count(trials, "not_ended")),
        ("started twice", lambda trials: count(trials, "started_twice")),
        ("ended twice", lambda trials: count(trials, "ended_twice")),
        ("workers that ended", lambda trials: count(trials, "restarts")),
    ],
    "terminate": [
        ("the worker is gone after", _gone),
        ("jobs start again after", _again),
        ("of 4 jobs started twice", lambda trials: count(trials, "started_twice")),
        ("not ended", lambda trials: count(trials, "not_ended")),
    ],
    "poison": [
        ("starts of the job", lambda trials: count(trials, "poison_starts")),
        ("of 20 healthy jobs not ended", lambda trials: count(trials, "not_ended")),
        ("healthy jobs started twice", lambda trials: count(trials, "started_twice")),
        ("workers that ended", lambda trials: count(trials, "restarts")),
    ],
    "long": [
        ("starts of the job", lambda trials: count(trials, "most_starts")),
        ("not ended", lambda trials: count(trials, "not_ended")),
    ],
    "hold": [
        ("starts of the job", lambda trials: count(trials, "most_starts")),
        ("not ended", lambda trials: count(trials, "not_ended")),
    ],
}


def kept() -> list[dict[str, Any]]:
    """The trials that the page shows."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()]


def tables(trials: Trials) -> dict[str, str]:
    """Every generated part of the page, by the name of its place."""
    played = [trial for trial in trials if "error" not in trial]
    parts = {fault: _table(fault, played) for fault in COLUMNS}
    return {"circumstances": _circumstances(played), "settings": _settings(played), **parts}


def _circumstances(trials: Trials) -> str:
    days = sorted({trial["at"][:10] for trial in trials})
    loads = sorted(trial["load"] for trial in trials)
    rounds = sorted(
        sum(1 for trial in trials if (trial["peer"], trial["fault"]) == pair)
        for pair in {(trial["peer"], trial["fault"]) for trial in trials}
    )
    many = str(rounds[0]) if rounds[0] == rounds[-1] else f"{rounds[0]} to {rounds[-1]}"
    return (
        f"{len(trials)} trials on {' and '.join(days)}, {many} of each kind, on two cores that did other work, too: "
        f"the load was {loads[0]:g} to {loads[-1]:g}, {median(loads):g} in the median."
    )


def _settings(trials: Trials) -> str:
    lines = ["| library | version | settings |", "|---|---|---|"]
    for peer, (words, source) in SETTINGS.items():
        versions = {trial["versions"] for trial in trials if trial["peer"] == peer}
        if versions:
            lines.append(f"| {peer} | {', '.join(sorted(versions))} | {words} ([docs]({source})) |")
    return "\n".join(lines)


def _table(fault: str, trials: Trials) -> str:
    columns = COLUMNS[fault]
    lines = ["| library | " + " | ".join(head for head, _ in columns) + " |", "|---|" + "---|" * len(columns)]
    for peer in SETTINGS:
        own = [trial for trial in trials if (trial["peer"], trial["fault"]) == (peer, fault)]
        if own:
            lines.append(f"| {peer} | " + " | ".join(cell(own) for _, cell in columns) + " |")
    return "\n".join(lines)


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with its generated parts."""
    for name, part in parts.items():
        place = re.compile(rf"(<!-- faults: {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page, found = place.subn(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", page)
        if found != 1:
            raise ValueError(f"{PAGE.name} has {found} places for {name}")
    return page


def write_page() -> None:
    """Write the tables from the kept trials into the page."""
    PAGE.write_text(filled(PAGE.read_text(), tables(kept())))
