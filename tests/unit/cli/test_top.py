"""The parts of ``ratchet top`` that need no terminal: what fits on a screen, keys, and a store that is away."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from ratchet.cli.top.keys import Keyboard
from ratchet.cli.top.screen import Section, View, drawn
from ratchet.cli.top.snapshot import JobLine, QueueLine, Snapshot
from ratchet.cli.top.watcher import Watcher
from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.model.errors import StoreUnavailable
from ratchet.model.flow import Flow
from ratchet.model.problems import Problem
from ratchet.scheduler import Scheduler
from tests.unit.cli.conftest import CommandLine, World

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)


def snapshot(queues: int = 3, nodes: int = 2, jobs: int = 5, problems: int = 1) -> Snapshot:
    """So many of each."""
    second = timedelta(seconds=1)
    return Snapshot(
        at=NOW,
        window=timedelta(minutes=1),
        queues=[QueueLine(flow=Flow(name=f"queue-{number}", succeeded=60), paused=not number) for number in range(queues)],
        nodes=[
            NodeRecord(
                node_id=f"a-node-with-a-rather-long-name-{number}",
                name="n",
                host="h",
                pid=1,
                version="1.0",
                state=NodeState.ACTIVE,
                beat=1,
                beat_interval=second,
                silence=second,
                started_at=NOW,
                last_beat_at=NOW - second,
            )
            for number in range(nodes)
        ],
        jobs=[
            JobLine(
                id=f"01a1ee08-77a0-7000-af11-{number:012}",
                target="shop.a_module_with_a_long_name.jobs:export_everything",
                queue="default",
                node_id="a-node-with-a-rather-long-name-1",
                started_at=NOW - number * second,
            )
            for number in range(jobs)
        ],
        pending=1,
        running=jobs,
        dead_letters=0,
        problems=[Problem(code="overdue", text="x" * 300) for _ in range(problems)],
    )  # fmt: skip


def screen(found: Snapshot, view: View, width: int, height: int | None) -> list[str]:
    """The lines that are drawn."""
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(drawn(found, view, "sqlite:///shop.db", width=width, height=height))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [8, 12, 15, 16, 18, 24, 40, 100])
@pytest.mark.parametrize("sizes", [(0, 0, 0, 0), (3, 2, 5, 1), (50, 1, 0, 0), (40, 40, 50, 9)], ids=str)
def test_it_fits(width: int, height: int, sizes: tuple[int, int, int, int]) -> None:
    """No more lines and columns than there are, and the keys in the last line, however much there is to show."""
    lines = screen(snapshot(*sizes), View(), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[-1].startswith("↑↓ choose")


@pytest.mark.parametrize("section", Section)
def test_a_low_screen_has_the_table_that_was_chosen(section: Section) -> None:
    """Where not all of them have room it is the one that the keys are for, with its chosen row."""
    lines = screen(snapshot(40, 40, 50, 9), View(section=section, chosen={section: 30}), 80, 12)
    headings = [line for line in lines if line[2:].startswith(("QUEUE ", "NODE ", "JOB "))]
    assert len(headings) == 1
    assert headings[0][2:].startswith(section.value[:-1].upper())
    assert any(line.startswith("> ") and line is not headings[0] for line in lines)


def test_what_was_chosen_is_in_sight() -> None:
    """The last of fifty queues, on a low screen, with the mark before it."""
    view = View(chosen={Section.QUEUES: 49})
    lines = screen(snapshot(queues=50), view, 80, 24)
    assert any(line.startswith("> queue-49") for line in lines)


def test_a_printed_screen_has_every_row_and_no_marks() -> None:
    """Nothing is cut to a height that a pipe has not."""
    lines = screen(snapshot(queues=40, jobs=50), View(live=False), 80, None)
    assert sum("queue-" in line for line in lines) == 40
    assert not any(line.startswith(">") for line in lines)
    assert "q quit" not in "\n".join(lines)
    assert any("queue-0 (paused)" in line for line in lines)


@contextmanager
def typed() -> Iterator[tuple[Keyboard, int]]:
    """A keyboard on a pipe, and where to type."""
    reading, writing = os.pipe()
    try:
        yield Keyboard(reading), writing
    finally:
        for descriptor in (reading, writing):
            try:
                os.close(descriptor)
            except OSError:
                pass


def test_keys_of_several_bytes() -> None:
    """Arrows are one key each, however many come at once and wherever they are split; Escape alone is Escape."""
    with typed() as (keyboard, typing):
        os.write(typing, b"\x1b[B" * 30 + b"p\t\x1bOA")
        pressed: list[str] = []
        while len(pressed) < 33:
            pressed += keyboard.pressed(1.0)
        assert pressed == ["down"] * 30 + ["p", "tab", "up"]
        os.write(typing, b"\x1b")
        assert keyboard.pressed(1.0) == ["escape"]
        assert keyboard.pressed(0.0) == []
        os.close(typing)
        assert keyboard.pressed(1.0) == ["q"], "the terminal is gone"


def test_a_store_that_is_away_and_comes_back() -> None:
    """The last snapshot stays; since when there is none is remembered until there is one."""
    answers: list[Snapshot | Exception] = [
        snapshot(queues=1), StoreUnavailable("away"), StoreUnavailable("still away"), snapshot(queues=2),
    ]  # fmt: skip

    def take() -> Snapshot:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watcher = Watcher(take, 1.0)
    watcher.look()
    first = watcher.latest
    watcher.look()
    assert watcher.error is not None
    since = watcher.error[0]
    watcher.look()
    assert (watcher.latest, watcher.error) == (first, (since, "still away"))
    watcher.look()
    assert watcher.error is None
    assert watcher.latest is not None
    assert len(watcher.latest.queues) == 2


def test_once_and_as_json(ratchet: CommandLine, world: World, scheduler: Scheduler) -> None:
    """Without a terminal it prints what there is; with --json one document. Nonsense in the options is refused."""
    scheduler.queues.pause("default")
    shown = ratchet("top").stdout
    assert "0 nodes · 0 running" in shown
    assert "default (paused)" in shown
    found = ratchet.json("top")
    assert (found["dead_letters"], found["queues"][0]["paused"], found["problems"][0]["code"]) == (
        1,
        True,
        "no_nodes",
    )
    assert "every 100ms" in ratchet("top", "--interval", "1ms", code=2).stderr
    assert "at least 1s" in ratchet("top", "--window", "0", code=2).stderr
