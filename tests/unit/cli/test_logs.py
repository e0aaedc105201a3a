"""A worker's log lines are readable, name their job, and carry no credentials."""

from __future__ import annotations

import json
import logging
import sys

from ratchet.cli.worker.logs import JsonFormatter, WorkerFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("shop", logging.WARNING, __file__, 1, message, (), None)
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_line_names_the_job_it_belongs_to() -> None:
    """Inside a job the id and the attempt are in the line; outside they are not."""
    inside = WorkerFormatter().format(record("hello", job_id="0190-job", attempt=2))
    assert "[job 0190-job attempt 2] hello" in inside
    assert "job" not in WorkerFormatter().format(record("hello", job_id=None))


def test_credentials_do_not_reach_the_log() -> None:
    """Neither in messages nor in tracebacks."""
    try:
        raise RuntimeError("postgresql://app:s3cret-word@db/shop refused")
    except RuntimeError:
        failed = record("connecting to https://me:s3cret-word@host failed")
        failed.exc_info = sys.exc_info()
    for formatter in (WorkerFormatter(), JsonFormatter()):
        text = formatter.format(failed)
        assert "s3cret-word" not in text
        assert "RuntimeError" in text


def test_json_lines_are_json() -> None:
    """One object per record, with what is known and nothing that is not."""
    facts = json.loads(JsonFormatter().format(record("two\nlines", job_id="j", attempt=1)))
    assert facts["message"] == "two\nlines"
    assert facts["level"] == "WARNING"
    assert facts["job_id"] == "j"
    assert "node_id" not in facts


def test_json_lines_have_every_fact() -> None:
    """The job, its target and attempt, the type of the error, and the node: of the record, or else of this process."""
    formatter = JsonFormatter()
    formatter.node_id = "web-1"
    told = {"job_id": "j", "job_target": "shop:charge", "attempt": 2}
    failed = record("no", **told)
    try:
        raise ValueError("no")
    except ValueError:
        failed.exc_info = sys.exc_info()
    facts = json.loads(formatter.format(failed))
    wanted = {"job_id": "j", "target": "shop:charge", "attempt": 2, "node": "web-1", "node_id": "web-1"}
    assert wanted.items() <= facts.items()
    assert facts["error_type"] == "ValueError"
    assert {"at", "level", "process", "logger", "message", "traceback"} <= facts.keys()
    named = json.loads(formatter.format(record("no", node_id="other", error_type="Declined")))
    assert (named["node_id"], named["error_type"]) == ("other", "Declined")
