"""How a worker logs to stderr: readable lines or JSON, with the job's id and without credentials."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json")

logger = logging.getLogger("ratchet.worker")


class WorkerFormatter(logging.Formatter):
    """One line per record: time, level, process, logger, message, and the job it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self._sanitizer = DefaultErrorSanitizer()
        #: The node of this process, for records that are not about a job.
        self.node_id: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line; a traceback follows on lines of its own."""
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        job, message = getattr(record, "job_id", None), record.getMessage()
        # A line of our own about a job has its id in the text.
        named = job is None or str(job) in message
        where = "" if named else f" [job {job} attempt {getattr(record, 'attempt', '?')}]"
        trace = self.trace_of(record)
        text = message if trace is None else f"{message}\n{trace}"
        return f"{at} {record.levelname:<8} {record.process} {record.name}{where} {self.clean(text)}"

    def clean(self, text: str) -> str:
        """*text* without credentials."""
        return self._sanitizer.sanitize_text(text)

    def trace_of(self, record: logging.LogRecord) -> str | None:
        """The traceback and the stack of a record; None if it has neither."""
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        elif record.exc_text:
            parts.append(record.exc_text)
        if record.stack_info:
            parts.append(record.stack_info)
        return "\n".join(parts) or None


class JsonFormatter(WorkerFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        trace = self.trace_of(record)
        node = getattr(record, "node_id", None) or self.node_id
        facts = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": self.clean(record.getMessage()),
            "job_id": getattr(record, "job_id", None),
            "target": getattr(record, "job_target", None),
            "attempt": getattr(record, "attempt", None),
            "error_type": _error_type(record),
            "node": node,
            "node_id": node,
            "traceback": None if trace is None else self.clean(trace),
        }
        return json.dumps(
            {name: value for name, value in facts.items() if value is not None},
            ensure_ascii=False,
            default=str,
        )


def _error_type(record: logging.LogRecord) -> str | None:
    named: str | None = getattr(record, "error_type", None)
    if named is None and record.exc_info and record.exc_info[0] is not None:
        return record.exc_info[0].__qualname__
    return named


def log_to_stderr(level: str, *, as_json: bool = False, verbose: bool = False) -> WorkerFormatter:
    """
    Log to stderr, unless the app has configured logging itself; the formatter.

    Warnings and exceptions that nobody has caught become log records as well, so that whatever reads the log can
    read all of it. *verbose*: with a line for each job that succeeds.
    """
    formatter = JsonFormatter() if as_json else WorkerFormatter()
    if verbose:
        logging.getLogger("ratchet.jobs").setLevel(logging.DEBUG)
    root = logging.getLogger()
    if root.handlers:
        return formatter
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable
    return formatter


@contextmanager
def warnings_logged(*, as_json: bool) -> Iterator[None]:
    """
    With *as_json*, warnings of Python are JSON too while the app is imported.

    The root logger has no handler until then: the app may configure logging itself, and could not if it had one.
    """
    if not as_json:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    warned = logging.getLogger("py.warnings")
    warned.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        warned.removeHandler(handler)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logger.critical("this process ends with an exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(fault: threading.ExceptHookArgs) -> None:
    if fault.exc_type is SystemExit or fault.exc_value is None:
        return
    name = fault.thread.name if fault.thread is not None else "?"
    logger.error(
        "thread %s ended with an exception",
        name,
        exc_info=(fault.exc_type, fault.exc_value, fault.exc_traceback),
    )


def _log_unraisable(fault: Any) -> None:
    """An exception in a destructor or the like, which Python can only print."""
    what = fault.err_msg or "exception ignored"
    error = fault.exc_value
    logger.error(
        "%s: %s",
        what,
        type(fault.object).__qualname__,
        exc_info=error if error is not None else fault.exc_type,
    )
