"""The log has one line for each retry, timeout and dead letter, and none for each success unless asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet import JobFailedError, Options, Scheduler
from ratchet.cli.worker.logs import JsonFormatter
from ratchet.engine.activity import Activity
from ratchet.engine.summary import INTERVAL, Summary
from ratchet.stores.memory import MemoryStore


def failing() -> None:
    raise ValueError("no luck")


def endless() -> None:
    while True:
        time.sleep(0.01)


def logging_job() -> None:
    logging.getLogger("shop").warning("inside")


def run(target: Callable[[], None], *, retries: int = 0, timeout: timedelta | None = None) -> str:
    """Run one job to its end; its id."""
    scheduler = Scheduler(store=MemoryStore(), allow=[__name__], options=Options(interrupt_grace=0.1))
    with scheduler:
        job = scheduler.enqueue(target).with_max_retries(retries).with_backoff("FIXED", 0.01)
        handle = (job if timeout is None else job.with_timeout(timeout)).submit()
        try:
            handle.result(timeout=30)
        except JobFailedError:
            pass
    return str(handle.id)


def about(caplog: pytest.LogCaptureFixture, words: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if words in record.getMessage()]


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """What is known of the job, by the names that a record has."""
    names = ("job_id", "job_target", "attempt", "error_type")
    return {name: getattr(record, name) for name in names}


def test_a_retry_and_a_dead_letter_are_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """With the job, the target, the attempt and the error; the dead letter with its traceback."""
    caplog.set_level(logging.INFO)
    job_id = run(failing, retries=1)
    (retry,) = about(caplog, "runs again")
    assert "failed at attempt 1 of 2 and runs again in 10ms: ValueError: no luck" in retry.getMessage()
    assert facts(retry) == {
        "job_id": job_id,
        "job_target": f"{__name__}:failing",
        "attempt": 1,
        "error_type": "ValueError",
    }
    assert retry.exc_text is None
    (dead,) = about(caplog, "is a dead letter")
    assert facts(dead)["attempt"] == 2
    assert "\n" not in dead.getMessage()
    assert "in failing\n" in (dead.exc_text or "")
    assert "in failing\n" in logging.Formatter().format(dead), "a formatter of the app shows it, too"


def test_a_timeout_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """It names the timeout; whether the job runs again is another line."""
    caplog.set_level(logging.INFO)
    job_id = run(endless, timeout=timedelta(milliseconds=100))
    (line,) = about(caplog, "exceeded its timeout of 100ms at attempt 1 and is stopped")
    assert facts(line)["job_id"] == job_id
    assert facts(line)["error_type"] == "JobTimeout"
    assert len(about(caplog, "is a dead letter")) == 1


def test_a_success_is_a_line_only_if_somebody_asks(caplog: pytest.LogCaptureFixture) -> None:
    """The logger ``ratchet.jobs`` at DEBUG is what --verbose sets."""
    caplog.set_level(logging.INFO)
    run(logging_job)
    assert about(caplog, "succeeded") == []
    caplog.set_level(logging.DEBUG, "ratchet.jobs")
    job_id = run(logging_job)
    (line,) = about(caplog, "succeeded at attempt 1 in ")
    assert line.job_id == job_id  # type: ignore[attr-defined]  # as every record of a node


def test_what_a_job_logs_names_its_target(caplog: pytest.LogCaptureFixture) -> None:
    """In JSON every record made inside a job has its id, its target, its attempt and its node."""
    run(logging_job)
    (line,) = about(caplog, "inside")
    said = JsonFormatter().format(line)
    assert f'"target": "{__name__}:logging_job"' in said
    assert '"attempt": 1' in said
    assert '"node": ' in said


class Coordinator:
    """Holds as many runs as it is told."""

    def __init__(self) -> None:
        self.now_held = self.now_running = 0

    def held(self) -> list[object]:
        return [object()] * self.now_held

    def running(self) -> list[object]:
        return [object()] * self.now_running


def test_the_summary(caplog: pytest.LogCaptureFixture) -> None:
    """Every ten seconds while there is something to say; what it counts is since the last one."""
    caplog.set_level(logging.INFO)
    now, activity, coordinator = [0.0], Activity(), Coordinator()
    assembly: Any = SimpleNamespace(coordinator=coordinator, announcer=SimpleNamespace(activity=activity))
    summary = Summary(assembly, lambda: now[0])
    now[0] += INTERVAL
    assert not summary.run_once(), "an idle node says nothing"
    activity.succeeded, activity.retried, activity.dead_lettered = 7, 2, 1
    coordinator.now_held, coordinator.now_running = 5, 3
    assert not summary.run_once(), "not before its time"
    now[0] += INTERVAL
    assert summary.run_once()
    assert about(caplog, "13 started, 7 succeeded, 1 failed, 2 retried; now 3 running, 2 waiting for a slot")
    coordinator.now_held = coordinator.now_running = 0
    activity.succeeded += 3
    assert summary.last_words()
    assert about(caplog, "0 started, 3 succeeded, 0 failed, 0 retried; now 0 running, 0 waiting for a slot")
    now[0] += INTERVAL
    assert not summary.run_once()
