"""Tables for people, JSON for machines, Markdown and a picture for the docs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measurement import TARGETS, Results, Target
from bench.picture import picture

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "explanation"
PAGE = DOCS / "performance.md"
PICTURE = DOCS / "performance.svg"
#: Every run; not in the repository.
RUNS = HERE / "runs"
#: The runs that the published tables come from, and no others: `tests/docs` compares them.
RESULTS = HERE / "results"


def print_tables(results: Results, targets: Sequence[Target]) -> int:
    """Show everything; how many targets were missed."""
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    table = Table("workload", "contender", "median", "unit", "rounds", "Python us/job", title="measured")
    for found in results.all:
        cpu = found.details.get("cpu_us")
        table.add_row(
            found.workload,
            found.contender,
            _number(found.median),
            found.unit,
            " ".join(_number(value) for value in found.values),
            "" if not cpu else f"{sorted(cpu)[len(cpu) // 2]:.0f}",
        )
    console.print(table)
    for title, rows in results.tables.items():
        console.print(_free_table(title, rows))
    missed = 0
    table = Table("target", "at least", "reached", "", title="targets")
    for target in targets:
        ratio = target.ratio(results)
        if ratio is not None:
            met = ratio >= target.least
            missed += not met
            table.add_row(
                target.text, f"{target.least:g}", f"{ratio:.2f}", "[green]met[/]" if met else "[red]missed[/]"
            )
    if table.row_count:
        console.print(table)
    return missed


def write_run(results: Results, targets: Sequence[Target], facts: Mapping[str, Any]) -> Path:
    """Write the raw numbers of one run into a file in ``bench/runs``."""
    RUNS.mkdir(exist_ok=True)
    document = {
        **facts,
        "measurements": [found.document() for found in results.all],
        "tables": results.tables,
        "targets": {
            target.text: {"least": target.least, "reached": round(ratio, 3)}
            for target in targets
            if (ratio := target.ratio(results)) is not None
        },
    }
    name = str(facts["at"]).replace(":", "").replace("-", "")
    path = RUNS / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def keep(paths: Sequence[Path]) -> None:
    """Copy the runs that a page was written from into ``bench/results``."""
    RESULTS.mkdir(exist_ok=True)
    for path in paths:
        if path.resolve().parent != RESULTS:
            shutil.copy(path, RESULTS)


def combined(paths: Sequence[Path]) -> dict[str, Any]:
    """One document from the runs of several: what a later file has measured replaces the same of an earlier one."""
    runs = [json.loads(path.read_text()) for path in paths]
    measured = {
        (found["workload"], found["contender"]): found for run in runs for found in run["measurements"]
    }
    reached = {text: found for run in runs for text, found in run["targets"].items()}
    order = [target.text for target in TARGETS]
    return {
        **runs[-1],
        "rounds": min(run["rounds"] for run in runs),
        "scale": min(run["scale"] for run in runs),
        "measurements": list(measured.values()),
        "tables": {title: rows for run in runs for title, rows in run["tables"].items()},
        "targets": {text: reached[text] for text in order if text in reached},
    }


def write_page(document: Mapping[str, Any]) -> None:
    """Replace the generated parts of the page; what a person wrote stays."""
    text = PAGE.read_text()
    parts = {"targets": _targets(document), "measured": _measured(document), "counts": _counts(document)}
    for name, part in parts.items():
        if part:
            text = _replaced(text, name, part)
    PAGE.write_text(text)
    PICTURE.write_text(picture(document["measurements"]))


def _replaced(text: str, name: str, part: str) -> str:
    begin, end = f"<!-- bench: {name} -->", f"<!-- end {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{part}\n{end}{after}"


def _targets(document: Mapping[str, Any]) -> str:
    rows = ["| ratio | at least | reached |", "|---|---:|---:|", *target_rows(document)]
    return "\n".join(rows) if len(rows) > 2 else ""


def target_rows(document: Mapping[str, Any]) -> list[str]:
    """The rows of the table of ratios."""
    rows = []
    for text, found in document["targets"].items():
        bold = "**" if found["reached"] >= found["least"] else ""
        rows.append(f"| {text} | {found['least']:g} | {bold}{found['reached']:.2f}{bold} |")
    return rows


def _measured(document: Mapping[str, Any]) -> str:
    rows = [
        f"Measured {document['at'][:10]} with Python {document['python']}, {document['rounds']} interleaved rounds, "
        f"scale {document['scale']:g}; medians.",
        "",
        "| workload | contender | median | unit | worker's Python, µs per job |",
        "|---|---|---:|---|---:|",
        *measured_rows(document),
    ]
    return "\n".join(rows) if len(rows) > 4 else ""


def measured_rows(document: Mapping[str, Any]) -> list[str]:
    """The rows of the table of medians."""
    rows = []
    for found in document["measurements"]:
        if found["contender"] != "limit":
            cpu = found["details"].get("cpu_us")
            rows.append(
                f"| {found['workload']} | {found['contender']} | {_number(found['median'])} | {found['unit']} "
                f"| {'' if cpu is None else f'{cpu:.0f}'} |"
            )
    return rows


def _counts(document: Mapping[str, Any]) -> str:
    texts = []
    for title, rows in document["tables"].items():
        names = list(rows[0])
        lines = [
            "| " + " | ".join(names) + " |",
            "|---" + "|---:" * (len(names) - 1) + "|",
            *count_rows(rows),
        ]
        texts.append(f"**{title}**\n\n" + "\n".join(lines))
    return "\n\n".join(texts)


def count_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows of a table of what a job costs."""
    return ["| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in rows]


def _free_table(title: str, rows: list[Mapping[str, Any]]) -> Table:
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and value < 100
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
