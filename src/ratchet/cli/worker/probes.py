"""
The HTTP side of a worker: ``/live``, ``/ready`` and ``/metrics``.

The supervisor serves them, which runs no user code: it answers while a job holds the interpreter of its child.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from ratchet.cli.commands.metrics import prometheus_client
from ratchet.cli.http import Address, Answer, Page, Pages
from ratchet.cli.worker.snapshots import Snapshots
from ratchet.cli.worker.supervisor import Condition
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler

JSON = "application/json"


class Probes:
    """Serves the pages of one worker, from `start` to `close`."""

    def __init__(self, http: str, *, store_metrics: bool = False) -> None:
        self._address = Address.of(http)
        self._store_metrics = store_metrics
        self._folder = TemporaryDirectory(prefix="ratchet-metrics-")
        self.snapshots = Snapshots(self._folder.name)
        self._client = prometheus_client()
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self.snapshots)
        self._store: Scheduler | None = None
        self._pages: Pages | None = None

    @property
    def folder(self) -> str:
        """Where children write their snapshots."""
        return self._folder.name

    def start(self, condition: Callable[[], Condition]) -> str:
        """Listen; the address for people."""
        pages: dict[str, Page] = {
            "/live": lambda: _answer(condition().faults),
            "/ready": lambda: _answer([*(now := condition()).faults, *now.missing]),
            "/metrics": self._metrics,
        }
        self._pages = Pages(self._address, pages)
        host, port = self._pages.start()
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def store_is(self, url: str, options: dict[str, Any]) -> None:
        """A child has said where the store is: its gauges can be read now, where that was asked for."""
        if self._store_metrics and self._store is None:
            self._store = Scheduler(url, options=Options(**{**options, "pool_size": 3}))
            import_module("ratchet.contrib.prometheus").instrument(self._store, self._registry, store=True)

    def close(self) -> None:
        """Listen no more."""
        if self._pages is not None:
            self._pages.close()
        if self._store is not None:
            self._store.close()
        self._folder.cleanup()

    def _metrics(self) -> Answer:
        text = self._client.generate_latest(self._registry).decode()
        return Answer(text, content_type=self._client.CONTENT_TYPE_LATEST)


def _answer(wrong: list[str]) -> Answer:
    body = json.dumps({"ok": not wrong, "problems": wrong}) + "\n"
    return Answer(body, 503 if wrong else 200, JSON)
