"""``ratchet metrics``: what the store knows, for Prometheus, once for a cluster."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from typing import Annotated, Any

import typer

from ratchet.api.observe.gauges import StoreGauges
from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import Refused
from ratchet.cli.http import Address, Answer, Page, Pages
from ratchet.cli.output import Output
from ratchet.scheduler import Scheduler

Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        show_default=False,
        help="Serve /metrics here until the command is stopped; only a port means loopback.",
    ),
]


def metrics(http: Http = None, url: given.Url = None, json: given.Json = False) -> None:
    """
    Print the metrics of the store in Prometheus' format, or serve them with --http.

    Depth and oldest wait of each queue, dead letters, nodes, breakers, late schedules, parked jobs. One such process is
    enough for a cluster. The store is asked at most every 5 s.
    """
    if json and http is not None:
        raise Refused("--json prints the metrics once; leave it out to serve them with --http")
    with given.opened(url) as scheduler:
        if json:
            Output(as_json=True).document(_document(scheduler))
            return
        page = store_page(scheduler)
        if http is None:
            typer.echo(page().body, nl=False)
            return
        pages = Pages(Address.of(http), {"/metrics": page, "/live": lambda: Answer("ok\n")})
        host, port = pages.start()
        typer.echo(f"metrics on http://{f'[{host}]' if ':' in host else host}:{port}/metrics", err=True)
        _wait_for_the_end()
        pages.close()


def _document(scheduler: Scheduler) -> dict[str, list[dict[str, Any]]]:
    """Every metric by its name, with labels and value."""
    return {
        metric.name: [
            {**dict(zip(metric.labels, labels, strict=True)), "value": value} for labels, value in samples
        ]
        for metric, samples in StoreGauges(scheduler.backend).read().items()
    }


def store_page(scheduler: Scheduler) -> Page:
    """The page that Prometheus reads; made with prometheus_client, which is an extra."""
    client, contrib = prometheus_client(), import_module("ratchet.contrib.prometheus")
    registry = client.CollectorRegistry()
    contrib.instrument(scheduler, registry, store=True)
    return lambda: Answer(client.generate_latest(registry).decode(), content_type=client.CONTENT_TYPE_LATEST)


def prometheus_client() -> Any:
    """The library, or an error that names the extra."""
    try:
        return import_module("prometheus_client")
    except ImportError as error:
        raise Refused("metrics need an extra: pip install 'ratchet-jobs[prometheus]'") from error


def _wait_for_the_end() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
