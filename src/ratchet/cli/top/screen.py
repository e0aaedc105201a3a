"""The screen of ``ratchet top``: a snapshot as lines, cut to what the terminal has room for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from msgspec import Struct
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ratchet.cli.output import STYLES, clean
from ratchet.cli.top.snapshot import JobLine, QueueLine, Snapshot
from ratchet.model.cluster import NodeRecord
from ratchet.model.durations import format_duration
from ratchet.model.process import shown_size

KEYS = "↑↓ choose · tab table · p pause queue · d drain node · c cancel job · q quit"
#: Lines around the tables: two at the top, one at the bottom.
FIXED_LINES = 3
#: Of each table: an empty line and a heading; then a row at least, and a line that says how many more there are.
HEAD_LINES = 2
LEAST_LINES = 2
#: Lines for problems, at most.
MOST_PROBLEMS = 5
MARK = ">"
#: From this width on, ids and targets are shown whole. Else so much of the beginning of an id, which commands take too, and
#: of the end of a target, where the function's name is.
WIDE = 120
ID_CUT = 18
TARGET_CUT = 26


class Section(Enum):
    """The tables of the screen."""

    QUEUES = "queues"
    NODES = "nodes"
    JOBS = "jobs"


class View(Struct, kw_only=True):
    """What a person has chosen: the table that the arrows move in, and a row of each; ``question`` waits for an answer."""

    section: Section = Section.QUEUES
    chosen: dict[Section, int] = {}
    question: str | None = None
    message: str | None = None
    error: str | None = None
    live: bool = True

    def row(self, section: Section) -> int:
        """The chosen row of a table."""
        return self.chosen.get(section, 0)


def drawn(found: Snapshot | None, view: View, where: str, *, width: int, height: int | None) -> Group:
    """The whole screen; without a *height* every row of every table."""
    if found is None:
        return Group(Text(f"ratchet top · {where}", style="bold"), Text(view.error or "asking the store …"))
    tables = {
        Section.QUEUES: _queues(found),
        Section.NODES: _nodes(found),
        Section.JOBS: _jobs(found, width >= WIDE),
    }
    if height is not None and height <= FIXED_LINES + len(tables) * (HEAD_LINES + LEAST_LINES):
        # There is no room for all of them and a problem: the one that the keys are for.
        tables = {view.section: tables[view.section]}
    fixed = FIXED_LINES + len(tables) * HEAD_LINES
    most = (
        MOST_PROBLEMS
        if height is None
        else max(1, min(MOST_PROBLEMS, height - fixed - len(tables) * LEAST_LINES))
    )
    problems = _problems(found, view, width, most)
    room = None if height is None else max(len(tables), height - fixed - len(problems))
    shares = _shares(room, [len(columns[0].cells) for columns in tables.values()])
    parts: list[Any] = [_title(found, where, width), _cut(_totals(found), width), *problems]
    for (section, columns), share in zip(tables.items(), shares, strict=True):
        parts += [Text(""), _table(section, columns, view, share, width)]
    if view.live:
        parts.append(_last_line(view, width))
    return Group(*parts)


def _title(found: Snapshot, where: str, width: int) -> Text:
    time = found.at.astimezone().isoformat(sep=" ", timespec="seconds")
    return _cut(Text(f"ratchet top · {time} · {where}", style="bold"), width)


def _totals(found: Snapshot) -> Text:
    return Text(
        f"{len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'} · {found.running} running · {found.pending} pending · {found.dead_letters} dead letters · "
        f"{found.per_second:.1f} jobs/s in {format_duration(found.window)}"
    )


def _problems(found: Snapshot, view: View, width: int, most: int) -> list[Text]:
    lines = [_cut(Text(f"! {clean(view.error)}", style="bold red"), width)] if view.error else []
    shown = (
        found.problems
        if len(found.problems) + len(lines) <= most
        else found.problems[: max(0, most - len(lines) - 1)]
    )
    for problem in shown:
        lines.append(_cut(Text(f"! {problem.code}: {clean(problem.text)}", style="yellow"), width))
    more = len(found.problems) - len(shown)
    if more:
        lines.append(Text(f"! and {more} more problems: ratchet health", style="yellow"))
    return lines


def _last_line(view: View, width: int) -> Text:
    if view.question is not None:
        return _cut(Text(f"{view.question} y/n", style="bold"), width)
    return _cut(Text(clean(view.message)) if view.message else Text(KEYS, style="dim"), width)


# --- tables


class Column(Struct, frozen=True, kw_only=True):
    """A column: its heading, its cells, and whether it may be cut or be left out."""

    name: str
    cells: list[str]
    right: bool = False
    can_be_cut: bool = False
    spare: int = 0  # left out where there is no room, the greatest first


def _queues(found: Snapshot) -> list[Column]:
    seconds = found.window.total_seconds()
    lines = found.queues

    def column(name: str, value: Any, **more: Any) -> Column:
        return Column(name=name, cells=[value(line) for line in lines], right=True, **more)

    return [
        Column(name="QUEUE", cells=[_queue(line) for line in lines], can_be_cut=True),
        column("PENDING", lambda line: str(line.flow.pending)),
        column("DUE", lambda line: str(line.flow.due)),
        column("RUN", lambda line: str(line.flow.running)),
        column("OK/s", lambda line: f"{line.flow.succeeded / seconds:.1f}"),
        column("FAIL/s", lambda line: f"{line.flow.failed / seconds:.1f}"),
        column("WAIT p50", lambda line: _span(line.flow.wait.p50)),
        column("p95", lambda line: _span(line.flow.wait.p95)),
        column("p99", lambda line: _span(line.flow.wait.p99), spare=2),
        column("OLDEST", lambda line: _span(line.flow.oldest_wait), spare=1),
    ]


def _queue(line: QueueLine) -> str:
    return f"{line.name} (paused)" if line.paused else line.name


def _nodes(found: Snapshot) -> list[Column]:
    lines = found.nodes

    def about(node: NodeRecord) -> str:
        return ", ".join(f"{lane} {slots}" for lane, slots in node.about.lanes.items())

    memory = ["-" if node.about.memory is None else shown_size(node.about.memory) for node in lines]
    return [
        Column(name="NODE", cells=[node.node_id for node in lines], can_be_cut=True),
        Column(name="STATE", cells=[_state(node) for node in lines]),
        Column(name="RUN", cells=[str(node.running) for node in lines], right=True),
        Column(name="STILL", cells=[str(node.about.still_running) for node in lines], right=True, spare=2),
        Column(name="MEMORY", cells=memory, right=True, spare=1),
        Column(name="BEAT", cells=[_age(node.last_beat_at, found.at) for node in lines], right=True),
        Column(name="SLOTS", cells=[about(node) for node in lines], spare=4),
        Column(name="VERSION", cells=[node.version for node in lines], spare=3),
    ]


def _state(node: NodeRecord) -> str:
    asked = "" if node.request is None or node.state != "ACTIVE" else f" ({node.request.value.lower()} asked)"
    return f"{node.state}{asked}"


def _jobs(found: Snapshot, wide: bool) -> list[Column]:
    lines: Sequence[JobLine] = found.jobs
    progress = ["-" if job.progress is None else f"{job.progress:.0%}" for job in lines]
    return [
        Column(name="JOB", cells=[job.id if wide else job.id[:ID_CUT] for job in lines]),
        Column(name="AGE", cells=[_age(job.started_at, found.at) for job in lines], right=True),
        Column(
            name="TARGET", cells=[job.target if wide else _end(job.target) for job in lines], can_be_cut=True
        ),
        Column(name="NODE", cells=[job.node_id or "-" for job in lines], spare=1),
        Column(name="QUEUE", cells=[job.queue for job in lines], spare=3),
        Column(name="DONE", cells=progress, right=True, spare=2),
    ]


def _table(section: Section, columns: list[Column], view: View, share: int, width: int) -> Table:
    count = len(columns[0].cells)
    chosen = min(view.row(section), max(0, count - 1))
    first = max(0, min(chosen - share + 1, count - share))
    shown = range(first, min(count, first + share))
    fitting = _fitting(columns, shown, width)
    table = Table(box=None, pad_edge=False, show_edge=False, width=width, padding=(0, 1, 0, 0))
    table.add_column(MARK if view.live and view.section is section else " ", width=1, no_wrap=True)
    for column in fitting:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            header_style="bold",
            ratio=1 if column.can_be_cut else None,
        )
    for at in shown:
        is_chosen = view.live and at == chosen
        cells = [Text(clean(column.cells[at]), style=STYLES.get(column.cells[at], "")) for column in fitting]
        table.add_row(Text(MARK if is_chosen else " "), *cells, style="bold" if is_chosen else "")
    if not count:
        table.add_row(Text(" "), Text(f"no {section.value}", style="dim"))
    elif count > len(shown):
        table.add_row(Text(" "), Text(f"… {count - len(shown)} more", style="dim"))
    return table


def _fitting(columns: list[Column], shown: range, width: int) -> list[Column]:
    """The columns that have room; one that can be cut counts with so much as tells enough."""
    left = list(columns)

    def needed(column: Column) -> int:
        longest = max([len(column.name), *(len(column.cells[at]) for at in shown)])
        return (min(longest, TARGET_CUT) if column.can_be_cut else longest) + 1

    while sum(needed(column) for column in left) + 2 > width and any(column.spare for column in left):
        left.remove(max(left, key=lambda column: column.spare))
    return left


def _shares(room: int | None, wanted: list[int]) -> list[int]:
    """How many rows each table gets: what it wants, else its part of the room; what others leave goes round."""
    if room is None:
        return [max(1, count) for count in wanted]
    shares = [1] * len(wanted)
    # A table that is cut needs a line to say so.
    left = room - sum(shares) - len(shares)
    while left > 0 and (open_ := [at for at, count in enumerate(wanted) if shares[at] < count]):
        for at in open_[: max(1, left)]:
            shares[at] += 1
            left -= 1
            if left <= 0:
                break
    return shares


# --- words


def _span(value: timedelta | None) -> str:
    """A duration in as few letters as tell enough."""
    if value is None:
        return "-"
    seconds = value.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 100:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _end(target: str) -> str:
    return target if len(target) <= TARGET_CUT else f"…{target[1 - TARGET_CUT :]}"


def _age(since: datetime | None, now: datetime) -> str:
    return "-" if since is None else _span(max(timedelta(0), now - since))


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text
