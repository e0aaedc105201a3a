"""What commands print: tables for people, one JSON document for machines."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from ratchet.model.durations import format_duration
from ratchet.model.job import Job

if TYPE_CHECKING:  # imported where tables are made: with --json nothing of it is needed
    from rich.console import Console
    from rich.text import Text

#: Output that does not go to a terminal is this wide, unless COLUMNS says otherwise, so that nothing is cut.
PIPE_WIDTH = 240

STYLES = {
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "FAILED": "bold red",
    "CANCELED": "yellow",
    "PAUSED": "magenta",
    "WAITING": "blue",
    "ACTIVE": "green",
    "DRAINING": "yellow",
    "DEAD": "red",
    "TIMED_OUT": "red",
    "CRASHED": "red",
    "ERROR": "red",
    "CRITICAL": "bold red",
    "WARNING": "yellow",
}

#: Columns whose text may wrap; they are never narrower than NARROWEST.
WRAPPED_COLUMNS = frozenset({"error", "message", "target", "text", "reason"})
NARROWEST = 20
GAP = 3

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr, looked up now; without a terminal it is as wide as COLUMNS says, or `PIPE_WIDTH`."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    found = Console(file=stream, highlight=False, soft_wrap=False)
    if not found.is_terminal:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) > 0 else PIPE_WIDTH
        found = Console(file=stream, highlight=False, width=width)
    return found


class Output:
    """Prints the answer of one command, in the form that was asked for."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def document(self, value: Any) -> None:
        """The one JSON document of a command with ``--json``."""
        sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n")

    def say(self, text: str, **facts: Any) -> None:
        """One sentence for people; *facts* for machines."""
        if self.as_json:
            self.document(facts)
        else:
            self.text(text)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        empty: str = "nothing",
        spare: Sequence[str] = (),
    ) -> None:
        """A table with one line per row, or *empty*. On a narrow terminal the *spare* columns are left out, in order."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        out = console()
        cells = [[cell(value) for value in row] for row in rows]
        if not cells:
            out.print(styled(f"({empty})", "dim"))
            return
        needed = {name: _needed(name, [row[at] for row in cells]) for at, name in enumerate(columns)}
        for name in spare:
            if sum(needed.values()) + GAP * len(needed) <= out.width:
                break
            del needed[name]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name, width in needed.items():
            wraps = name in WRAPPED_COLUMNS
            table.add_column(
                name, overflow="fold" if wraps else "ellipsis", no_wrap=not wraps, min_width=width
            )
        for row in cells:
            table.add_row(*(text for name, text in zip(columns, row, strict=True) if name in needed))
        out.print(table)

    def details(self, facts: Mapping[str, Any]) -> None:
        """Names and values, one pair per line, without those that are None or empty."""
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in facts.items():
            if value is not None and value != () and value != {}:
                table.add_row(name, cell(value))
        console().print(table)

    def more(self, cursor: str | None) -> None:
        """How to see the next page, if there is one: words to be pasted, never broken into lines."""
        if cursor is not None:
            sys.stdout.write(f"more: --cursor {shlex.quote(cursor)}\n")

    def heading(self, text: str) -> None:
        """A line above a part of the answer."""
        out = console()
        out.print()
        out.print(styled(text, "bold"))

    def text(self, text: str, *, style: str = "") -> None:
        """Text as it is; it may have several lines."""
        console().print(styled(clean(text), style))


def _needed(name: str, cells: Sequence[Text]) -> int:
    """The width that a column needs to be of use."""
    natural = max(len(name), *(text.cell_len for text in cells))
    return min(natural, NARROWEST) if name in WRAPPED_COLUMNS else natural


# --- values


def styled(text: str, style: str) -> Text:
    """*text* as it is, in a style."""
    from rich.text import Text

    return Text(text, style=style)


def cell(value: Any) -> Text:
    """*value* as the cell of a table; text of users can neither move the cursor nor pass as markup."""
    shown = shown_value(value)
    return styled(clean(shown), STYLES.get(shown, "dim" if shown == "-" else ""))


def shown_value(value: Any) -> str:
    """*value* as people read it."""
    match value:
        case None:
            return "-"
        case str():
            return value.value if isinstance(value, Enum) else value
        case bool():
            return "yes" if value else "no"
        case IntEnum():
            return value.name
        case datetime():
            return value.astimezone().isoformat(sep=" ", timespec="seconds")
        case timedelta():
            return format_duration(round_duration(value))
        case tuple() | list() | frozenset() | set():
            return ", ".join(shown_value(item) for item in value) or "-"
        case dict():
            return json.dumps(plain(value), ensure_ascii=False)
    return str(value)


def round_duration(value: timedelta) -> timedelta:
    """*value* without digits that nobody reads."""
    return timedelta(milliseconds=round(value / timedelta(milliseconds=1)))


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago *moment* was, or in how long it will be."""
    if moment is None:
        return "-"
    distance = moment - now
    whole = timedelta(seconds=round(abs(distance).total_seconds()))
    if not whole:
        return "now"
    return f"in {format_duration(whole)}" if distance > timedelta(0) else f"{format_duration(whole)} ago"


def clean(text: str) -> str:
    """*text* with control characters spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def plain(value: Any) -> Any:
    """*value* as JSON: times in ISO 8601 (UTC), durations in seconds, enumerations by name."""
    match value:
        case None | bool() | float():
            return value
        case IntEnum():
            return value.name
        case Enum():
            return value.value
        case int() | str():
            return value
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Job):
        value = value.for_people()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return repr(value)
