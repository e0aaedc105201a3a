"""
Ten thousand failures of three causes, as the people see them who have to do something about it.

``RATCHET_FAILURES=10000 RATCHET_MEASURED=/tmp/failures.json pytest`` of this file writes down how long each step took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratchet import JobFilter, JobStatus, Scheduler
from ratchet.contrib import webhook
from ratchet.contrib.alerting.notifier import PREFIX
from tests.cluster import alarms
from tests.cluster.conftest import StartWorker
from tests.cluster.measured import record
from tests.support.receivers import WebhookReceiver
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FAILURES = int(os.environ.get("RATCHET_FAILURES", "600"))
SECRET = "correct horse battery staple"


def declined(number: int) -> None:
    raise ValueError(f"order {number} was declined")


def unreachable(number: int) -> None:
    if number % 2:
        raise ConnectionError(f"no way to host {number}")
    raise TimeoutError(f"no answer for {number}")


def ratchet(url: str, *arguments: str) -> dict[str, list[dict[str, object]]]:
    """What the command answers."""
    done = subprocess.run(
        [sys.executable, "-m", "ratchet", *arguments, "--json"],
        env={**os.environ, "RATCHET_URL": url},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


def test_three_causes(request: pytest.FixtureRequest, url: str) -> None:
    """Three groups in the summary, three messages, each cause counted exactly; one cause is purged and the others stay."""
    took: dict[str, float] = {}

    @contextmanager
    def measured(step: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        took[step] = round(time.monotonic() - begun, 3)

    scheduler = Scheduler(url, allow=[__name__])
    with WebhookReceiver() as receiver:
        webhook.notify(scheduler, receiver.url(), secret=SECRET)
        scheduler.enqueue_many(declined, [(number,) for number in range(FAILURES // 2)])
        scheduler.enqueue_many(unreachable, [(number,) for number in range(FAILURES // 2)])
        failed = JobFilter(statuses=[JobStatus.FAILED])
        with measured("fail"), scheduler:
            with measured("first message"):
                until(lambda: receiver.received, 120, "no message")
            until(lambda: scheduler.jobs.count(failed) == FAILURES, 500, "they have not all failed")
            until(lambda: len(receiver.received) == 3, 60, f"{len(receiver.received)} messages")
        for one in receiver.received:
            webhook.verify(one.body, one.headers[webhook.SIGNATURE], SECRET)
        alerts = scheduler.dead_letters.alerts()
        assert sorted(alert.count for alert in alerts) == [FAILURES // 4, FAILURES // 4, FAILURES // 2]
        with measured("dlq summary"):
            groups = ratchet(url, "dlq", "summary")["groups"]
        assert {(str(one["target"]).split(":")[1], one["error_type"], one["count"]) for one in groups} == {
            ("declined", "ValueError", FAILURES // 2),
            ("unreachable", "ConnectionError", FAILURES // 4),
            ("unreachable", "TimeoutError", FAILURES // 4),
        }
        with measured("dlq purge"):
            purged = ratchet(url, "dlq", "purge", "--target", f"{__name__}:declined", "--yes")
        assert purged["deleted"] == FAILURES // 2
        assert {one["error_type"] for one in ratchet(url, "dlq", "summary")["groups"]} == {
            "ConnectionError",
            "TimeoutError",
        }
        assert len(receiver.received) == 3
    waiting = scheduler.jobs.find(JobFilter(targets=[f"{PREFIX}webhook"], statuses=[JobStatus.PENDING]))
    assert len(waiting) == 3  # the counts of the hour, for when it is over
    scheduler.close()
    store = request.node.callspec.params["url"]
    record(
        "failures",
        store,
        failures=FAILURES,
        **{name.replace(" ", "_"): value for name, value in took.items()},
    )


def test_killed_before_it_could_tell(url: str, start_worker: StartWorker, tmp_path: Path) -> None:
    """A worker dies between the commit of the alert and the message: the process that replaces it finds the row, and tells it once."""
    scheduler = Scheduler(url, allow=["tests.cluster.alarms"])
    with WebhookReceiver() as receiver:
        died = tmp_path / "died"
        environment = {"ALARMS_URL": receiver.url(), "ALARMS_SECRET": SECRET, "ALARMS_DIED": str(died)}
        worker = start_worker("one", app="tests.cluster.alarms:scheduler", environment=environment)
        worker.wait_ready(seconds=60)
        handle = scheduler.enqueue(alarms.fail).with_max_retries(0).submit()
        until(lambda: receiver.received, 120, worker.log)
        assert died.exists()
        assert handle.status() is JobStatus.FAILED
        (request,) = receiver.received
        webhook.verify(request.body, request.headers[webhook.SIGNATURE], SECRET)
        assert request.document["details"]["job_id"] == str(handle.id)
        # Neither in a log nor on the command line of a process.
        assert not [one for one in (SECRET, "xyzzy-token") if one in worker.log]
    scheduler.close()
