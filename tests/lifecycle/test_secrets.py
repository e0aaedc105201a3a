"""What must not be seen is not stored, not published and not shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ratchet import JobEvent, JobFailedError, Scheduler
from ratchet.cli.app import app
from tests.lifecycle import jobs


class TestCredentials:
    def test_none_reaches_the_store_the_events_or_the_command_line(
        self, scheduler: Scheduler, url: str
    ) -> None:
        """Planted in messages, arguments of exceptions, causes, tracebacks, log lines and progress."""
        heard: list[Any] = []
        jobs.calls.clear()
        scheduler.on(JobEvent)(heard.append)
        with scheduler:
            handle = scheduler.enqueue(jobs.leak).on_failure(jobs.note_failure).submit()
            with pytest.raises(JobFailedError) as failure:
                handle.result(timeout=10)
            callbacks = _children(scheduler, handle.id)
            for each in callbacks:
                scheduler.handle(each).wait(timeout=10)
        texts = [
            repr(handle.job()),
            repr(scheduler.jobs.executions(handle.id, all=True)),
            repr(scheduler.jobs.logs(handle.id)),
            repr(scheduler.dead_letters.find().items),
            repr(handle.progress()),
            repr(heard),
            repr(jobs.calls),
            str(failure.value),
        ]
        assert len(scheduler.jobs.logs(handle.id)) >= 5
        assert len(heard) >= 3
        assert jobs.calls
        runner = CliRunner()
        for command in (
            ["jobs", "show", str(handle.id)],
            ["jobs", "logs", str(handle.id)],
            ["dlq", "list"],
            ["dlq", "alerts"],
        ):
            shown = runner.invoke(app, [*command, "--url", url, "--json"])
            assert shown.exit_code == 0, shown.output
            json.loads(shown.stdout)
            texts.append(shown.output)
        for leak in jobs.LEAKS:
            for text in texts:
                assert leak not in text


def _children(scheduler: Scheduler, job_id: Any) -> list[Any]:
    from ratchet import JobFilter

    return [job.id for job in scheduler.jobs.find(JobFilter(parent_id=job_id))]
