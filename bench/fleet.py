"""Ratchet as a subject of the bench: several nodes in one process, each with a scheduler of its own."""

from __future__ import annotations

import threading
import time
from typing import Any

from bench.protocol import Subject, serve
from ratchet import Options, Scheduler


class Node:
    """A scheduler that counts what it has run."""

    def __init__(self, fleet: Fleet, **options: Any) -> None:
        self.ran = 0
        self.scheduler = Scheduler(fleet.url, options=Options(**options))
        lock = threading.Lock()

        @self.scheduler.job(name="bench:sleep")
        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            with lock:
                self.ran += 1

        @self.scheduler.job(name="bench:stamp")
        def stamp(sent: int) -> None:
            fleet.note(sent)

        self.sleep, self.stamp = sleep, stamp


class Fleet(Subject):
    """Nodes that share a store, and two submitters that run nothing: one that wakes them, and one that does not."""

    OPEN = "SELECT EXISTS (SELECT 1 FROM scheduler_job_queue)"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._nodes: list[Node] = []
        self._submitters = {wakes: Node(self, auto_migrate=True, notify=wakes) for wakes in (True, False)}

    def prepare(self) -> None:
        """Make the schema; open connections."""
        for submitter in self._submitters.values():
            submitter.scheduler.jobs.counts()

    def start(self, nodes: int, options: dict[str, Any]) -> None:
        """Start so many nodes, each with these options."""
        self._nodes = [Node(self, node_name=f"node {number}", **options) for number in range(nodes)]
        for node in self._nodes:
            node.scheduler.start()

    def stop(self) -> None:
        """End them all."""
        for node in self._nodes:
            node.scheduler.close()
        self._nodes = []

    def submit(self, jobs: int, seconds: float) -> None:
        """Submit jobs that sleep so long each."""
        submitter = self._submitters[True]
        submitter.scheduler.enqueue_many(submitter.sleep, [(seconds,) for _ in range(jobs)])

    def send(self, wakes: bool) -> None:
        """Submit a job that carries the time of its submission."""
        submitter = self._submitters[wakes]
        submitter.scheduler.enqueue_now(submitter.stamp, time.monotonic_ns())

    def shares(self) -> list[int]:
        """How many jobs each node has run."""
        return [node.ran for node in self._nodes]


if __name__ == "__main__":
    serve(Fleet)
