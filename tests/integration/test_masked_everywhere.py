"""With masking on, a planted secret is in nothing that people look at: pages, commands, logs, events, metrics and traces."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ratchet import RESULT, JobContext, JobEvent, JobStatus, Options, Scheduler, dashboard
from ratchet.cli.app import COMMANDS, app_of
from ratchet.contrib import opentelemetry, prometheus
from ratchet.dashboard.pages import PAGES
from tests.support.spans import Spans

SECRET = "4111-TOP-SECRET-1111"
log = logging.getLogger(__name__)


def charge(card: str, order: int) -> str:
    JobContext.current().progress(0.5, f"charging {card}")
    log.warning("charging %s for %s", card, order)
    if order < 0:
        raise ValueError(f"cannot charge {card}")
    return card


def pass_on(card: str) -> str:
    return card


def live(scheduler: Scheduler) -> list[Any]:
    """Jobs that succeed, fail, are retried, follow one another, form a batch, wait and are made by a schedule."""
    made = [
        scheduler.enqueue(charge, SECRET, 1).with_param("card", SECRET).submit(),
        scheduler.enqueue(charge, SECRET, -1).with_param("card", SECRET).submit(),
        scheduler.enqueue(charge, SECRET, -2).with_max_retries(1).submit(),
        scheduler.enqueue(charge, card=SECRET, order=2).then(pass_on, RESULT).submit(),
    ]
    scheduler.enqueue(charge, SECRET, 3).with_delay(3600).submit().cancel()
    scheduler.enqueue(charge, SECRET, 4).with_queue("later").with_delay(3600).submit()
    scheduler.schedule_recurring("0 0 1 1 *", charge, SECRET, 5, name="yearly").trigger()
    batch = scheduler.enqueue_batch("cards").for_each([SECRET, SECRET], pass_on).submit()
    with scheduler:
        for handle in made:
            assert handle.wait(60) is not JobStatus.RUNNING
        batch.wait(60)
    return [*made, batch]


def pages(scheduler: Scheduler, handles: list[Any]) -> str:
    """Every page of the dashboard, as HTML and as JSON."""
    *jobs, batch = handles
    browser = TestClient(
        dashboard.asgi(scheduler),
        client=("127.0.0.1", 1),
        base_url="http://localhost",
        follow_redirects=False,
    )
    shown = ""
    for page in PAGES:
        paths = [page.path]
        if "{" in page.path:
            ids = {"schedule": ["yearly"], "batch": [batch.id]}.get(page.name, [job.id for job in jobs])
            paths = [f"{page.path.partition('{')[0]}{one}" for one in ids]
        for path in paths:
            for headers in ({}, {"accept": "application/json"}):
                answer = browser.get(path, headers=headers)
                assert answer.status_code == 200, (path, answer.text[-300:])
                shown += answer.text
    return shown


def commands(url: str, handles: list[Any]) -> str:
    """What the command line shows, to people and to programs."""
    *jobs, batch = handles
    looks = [
        "jobs list",
        "dlq list",
        "dlq summary",
        "dlq alerts",
        "queues list",
        "nodes list",
        "recurring list",
    ]
    looks += [
        "recurring show yearly",
        "health",
        "audit",
        "db stats",
        "top --once",
        f"jobs list --batch {batch.id}",
    ]
    looks += [
        f"jobs {verb} {job.id}" for job in jobs[1:3] for verb in ("show --traceback", "logs", "explain")
    ]
    app, runner, shown = app_of(COMMANDS), CliRunner(), ""
    for words in looks:
        for form in ([], ["--json"]):
            result = runner.invoke(app, [*words.split(), "--url", url, *form])
            assert result.exit_code in (0, 4), (words, result.output)
            shown += result.output
    return shown


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_masked_secret_is_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each of these tells of the job, so that it was looked at, and none has the secret."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    scheduler = Scheduler(
        url, allow=[__name__], masking=["card", "result"], options=Options(poll_delay_burst=0.05)
    )
    registry, spans, reader = CollectorRegistry(), Spans(), InMemoryMetricReader()
    prometheus.instrument(scheduler, registry, store=True)
    opentelemetry.instrument(scheduler, spans.provider, MeterProvider([reader]), store=True)
    heard: list[JobEvent] = []
    scheduler.on(JobEvent)(heard.append)
    with caplog.at_level(logging.DEBUG, "ratchet"):
        handles = live(scheduler)
    assert handles[0].result() == SECRET  # code gets it
    told = "\n".join(
        record.getMessage() + str(record.exc_text) for record in caplog.records if record.name != __name__
    )
    found = {
        "pages": pages(scheduler, handles),
        "commands": commands(url, handles),
        "log": told,
        "events": "\n".join(repr(event) for event in heard),
        "metrics": generate_latest(registry).decode(),
        "measured": str(reader.get_metrics_data()),
        "spans": "\n".join(span.to_json() for span in spans.all()),
        "to_dict": json.dumps(
            [job.to_dict() for job in scheduler.jobs.find()], default=str, ensure_ascii=False
        ),
        "repr": repr(scheduler.jobs.find().items),
    }
    scheduler.close()
    for place, text in found.items():
        assert "charge" in text, place
        assert SECRET not in text, (place, text[max(0, text.find(SECRET) - 300) :][:600])
    for place in ("pages", "commands", "to_dict"):
        assert "•••" in found[place]
