"""
The HTTP side of a worker: ``/live``, ``/ready`` and ``/metrics``.

The supervisor serves them, which runs no user code: it answers while a job holds the interpreter of its child.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from ratchet.cli.commands.metrics import prometheus_client
from ratchet.cli.http import Address, Answer, Page, Pages
from ratchet.cli.worker.snapshots import Snapshots
from ratchet.cli.worker.supervisor import Condition
from ratchet.model.metrics import PROCESS_DEATHS, WORKER_LIVE, WORKER_READY
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

    def start(self, condition: Callable[[], Condition], deaths: Callable[[], int] = lambda: 0) -> str:
        """Listen; the address for people. *deaths*: of how many processes that were not told to end."""
        self._registry.register(WorkerMeters(condition, deaths))
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


class WorkerMeters:
    """A collector for prometheus_client: what the supervisor says of its worker."""

    def __init__(self, condition: Callable[[], Condition], deaths: Callable[[], int]) -> None:
        self._condition = condition
        self._deaths = deaths

    def collect(self) -> Iterator[Any]:
        """The probes as numbers, and how many processes have died."""
        core = import_module("prometheus_client.core")
        now = self._condition()
        live, ready = not now.faults, not (now.faults or now.missing)
        yield core.GaugeMetricFamily(WORKER_LIVE.name, WORKER_LIVE.help, value=float(live))
        yield core.GaugeMetricFamily(WORKER_READY.name, WORKER_READY.help, value=float(ready))
        yield core.CounterMetricFamily(PROCESS_DEATHS.name, PROCESS_DEATHS.help, value=self._deaths())

    def describe(self) -> Sequence[Any]:
        """What there is, is known when it is collected."""
        return ()


def _answer(wrong: list[str]) -> Answer:
    body = json.dumps({"ok": not wrong, "problems": wrong}) + "\n"
    return Answer(body, 503 if wrong else 200, JSON)
