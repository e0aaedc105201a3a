"""`Session`: one person at one terminal: draws what the watcher finds, and does what the keys say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.live import Live

from ratchet.cli.top.keys import Keyboard
from ratchet.cli.top.screen import Section, View, drawn
from ratchet.cli.top.snapshot import Snapshot
from ratchet.cli.top.watcher import Watcher
from ratchet.model.cluster import NodeRequest
from ratchet.model.errors import RatchetError
from ratchet.scheduler import Scheduler

#: The screen is drawn anew at least this often, so that it fits after a resize.
REDRAW = 0.25


class Session:
    """Shows snapshots until ``q``. What changes something is asked first."""

    def __init__(
        self, scheduler: Scheduler, watcher: Watcher, console: Console, keyboard: Keyboard, where: str
    ) -> None:
        self._scheduler = scheduler
        self._watcher = watcher
        self._console = console
        self._keyboard = keyboard
        self._where = where
        self._view = View()
        self._action: tuple[str, Callable[[], bool]] | None = None

    def run(self) -> None:
        """Until somebody leaves."""
        self._watcher.start()
        try:
            with (
                self._keyboard.listening(),
                Live(console=self._console, screen=True, auto_refresh=False, transient=True) as live,
            ):
                while True:
                    live.update(self._drawn(), refresh=True)
                    if not all(self.press(key) for key in self._keyboard.pressed(REDRAW)):
                        return
        finally:
            self._watcher.stop()

    def _drawn(self) -> Any:
        error = self._watcher.error
        self._view.error = None
        if error is not None:
            since = error[0].astimezone().isoformat(sep=" ", timespec="seconds")
            self._view.error = f"no answer from the store since {since}: {error[1]} (trying again)"
        size = self._console.size
        return drawn(self._watcher.latest, self._view, self._where, width=size.width, height=size.height)

    # --- keys

    def press(self, key: str) -> bool:
        """What a key does; False if it ends the session."""
        view = self._view
        if view.question is not None:
            self._answer(key)
            return True
        view.message = None
        if key in ("q", "escape"):
            return False
        found = self._watcher.latest
        if found is None:
            return True
        if key == "tab":
            order = list(Section)
            view.section = order[(order.index(view.section) + 1) % len(order)]
        elif key in ("up", "k", "down", "j"):
            self._move(found, -1 if key in ("up", "k") else 1)
        elif key in ("p", "d", "c"):
            self._ask({"p": self._pause, "d": self._drain, "c": self._cancel}[key](found))
        return True

    def _move(self, found: Snapshot, by: int) -> None:
        section = self._view.section
        lines: dict[Section, list[Any]] = {
            Section.QUEUES: list(found.queues),
            Section.NODES: list(found.nodes),
            Section.JOBS: list(found.jobs),
        }
        count = len(lines[section])
        self._view.chosen[section] = max(0, min(self._view.row(section) + by, count - 1))

    def _ask(self, action: tuple[str, Callable[[], bool]] | None) -> None:
        if action is None:
            self._view.message = "there is none to choose"
            return
        self._action = action
        self._view.question = f"{action[0]}?"

    def _answer(self, key: str) -> None:
        action, self._action, self._view.question = self._action, None, None
        if key not in ("y", "Y") or action is None:
            self._view.message = "nothing was changed"
            return
        what, do = action
        try:
            self._view.message = f"{what}: {'done' if do() else 'there was nothing to do'}"
        except RatchetError as error:
            self._view.message = f"{what}: {error}"
        self._watcher.look_now()

    # --- actions

    def _row(self, section: Section, lines: list[Any]) -> Any:
        return lines[min(self._view.row(section), len(lines) - 1)] if lines else None

    def _pause(self, found: Snapshot) -> tuple[str, Callable[[], bool]] | None:
        line = self._row(Section.QUEUES, found.queues)
        if line is None:
            return None
        queues = self._scheduler.queues
        if line.paused:
            return f"resume queue {line.name}", lambda: queues.resume(line.name)
        return f"pause queue {line.name}", lambda: queues.pause(line.name)

    def _drain(self, found: Snapshot) -> tuple[str, Callable[[], bool]] | None:
        node = self._row(Section.NODES, found.nodes)
        if node is None:
            return None
        nodes = self._scheduler.nodes
        if node.request is NodeRequest.DRAIN:
            return f"let node {node.node_id} take jobs again", lambda: nodes.resume(node.node_id)
        return f"drain node {node.node_id}", lambda: nodes.drain(node.node_id)

    def _cancel(self, found: Snapshot) -> tuple[str, Callable[[], bool]] | None:
        job = self._row(Section.JOBS, found.jobs)
        if job is None:
            return None
        return f"cancel job {job.id}", lambda: self._scheduler.cancel_job(UUID(job.id))
