"""`JobLines`: one log line for each retry, timeout and dead letter, and for each job if somebody asks for it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.engine.run import Run
from ratchet.model.decision import ErrorRecord
from ratchet.model.durations import format_duration
from ratchet.model.events import JobDeadLettered

logger = logging.getLogger("ratchet.engine")

#: At DEBUG, this logger has a line for each run that succeeds (``ratchet worker --verbose``).
each_job = logging.getLogger("ratchet.jobs")


class JobLines:
    """
    Says what became of runs of this node.

    Each record has ``job_id``, ``job_target``, ``attempt``, ``node_id`` and, for failures, ``error_type``; the traceback
    of a dead letter is where formatters look for one. All text in them was sanitized before.

    A dead letter that raises an alert is an ERROR. Others of the same target and type of error, within the hour, are
    WARNINGs: who is called for each ERROR is called once.
    """

    def retried(self, run: Run, error: ErrorRecord, at: datetime, ended_at: datetime) -> None:
        """An attempt has failed, and there will be another."""
        wait = max(at - ended_at, timedelta())
        again = f"in {_rounded(wait)}" if wait else "at once"
        self._say(
            logging.WARNING,
            f"job {run.job_id} ({run.target}) failed at attempt {run.attempt} of "
            f"{run.job.claim.max_retries + 1} and runs again {again}: {error.summary}",
            run,
            error_type=error.type,
        )

    def timed_out(self, run: Run, timeout: timedelta) -> None:
        """A run has exceeded its timeout and is being stopped."""
        self._say(
            logging.WARNING,
            f"job {run.job_id} ({run.target}) exceeded its timeout of {format_duration(timeout)} at attempt "
            f"{run.attempt} and is stopped",
            run,
            error_type="JobTimeout",
        )

    def dead_letter(self, run: Run, error: ErrorRecord, reason: str, *, alerted: bool) -> None:
        """There will be no further attempt."""
        self._say(
            _level(alerted),
            f"job {run.job_id} ({run.target}) is a dead letter: {error.summary} [{reason}]",
            run,
            error_type=error.type,
            traceback=error.traceback,
        )

    def ended_without_run(self, job_id: UUID, target: str, cause: str, *, alerted: bool) -> None:
        """A job that has never run, or that waited, is a dead letter because of *cause*."""
        record = _record(_level(alerted), f"job {job_id} ({target}) is a dead letter [{cause}]")
        record.job_id, record.job_target = str(job_id), target
        logger.handle(record)

    def dead_letter_without_run(self, event: JobDeadLettered) -> None:
        """A job was running in too many crashes, or waited for what did not come."""
        record = _record(
            _level(event.alerted),
            f"job {event.job_id} ({event.target}) is a dead letter: {event.error} [{event.reason}]",
        )
        record.job_id, record.job_target = str(event.job_id), event.target
        record.attempt, record.node_id = event.attempt, event.node_id
        record.error_type = event.error_type
        logger.handle(record)

    def crashed(self, run: Run, detail: str) -> None:
        """The process that ran the job has died; the job runs again."""
        self._say(
            logging.WARNING,
            f"job {run.job_id} ({run.target}) crashed at attempt {run.attempt} and runs again: {detail}",
            run,
            error_type="Crash",
        )

    def succeeded(self, run: Run, took: timedelta) -> None:
        """A run has succeeded; for `each_job` only."""
        record = each_job.makeRecord(
            each_job.name, logging.DEBUG, "", 0, "job %s (%s) succeeded at attempt %d in %.3f s",
            (run.job_id, run.target, run.attempt, took.total_seconds()), None,
        )  # fmt: skip
        _name(record, run)
        each_job.handle(record)

    @staticmethod
    def _say(
        level: int, text: str, run: Run, *, error_type: str | None = None, traceback: str | None = None
    ) -> None:
        if not logger.isEnabledFor(level):
            return
        record = _record(level, text)
        _name(record, run)
        record.error_type = error_type
        if traceback:
            record.exc_text = traceback.rstrip("\n")
        logger.handle(record)


def _level(alerted: bool) -> int:
    return logging.ERROR if alerted else logging.WARNING


def _record(level: int, text: str) -> logging.LogRecord:
    # Not by `extra`, which refuses names that a record has already, and inside a node every record has these.
    return logger.makeRecord(logger.name, level, "", 0, "%s", (text,), None)


def _name(record: logging.LogRecord, run: Run) -> None:
    record.job_id, record.job_target = str(run.job_id), run.target
    record.attempt, record.node_id = run.attempt, run.node_id


def _rounded(wait: timedelta) -> str:
    """To the millisecond, or to the second where that is less than a percent."""
    if wait >= timedelta(seconds=100):
        return format_duration(timedelta(seconds=round(wait.total_seconds())))
    return format_duration(timedelta(milliseconds=round(wait / timedelta(milliseconds=1))))
