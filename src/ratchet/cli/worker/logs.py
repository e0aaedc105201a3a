"""How a worker logs to stderr: readable lines or JSON, with the job's id and without credentials."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class WorkerFormatter(logging.Formatter):
    """One line per record: time, level, process, logger, message, and the job it belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self._sanitizer = DefaultErrorSanitizer()

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line; a traceback follows on lines of its own."""
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        job = getattr(record, "job_id", None)
        where = "" if job is None else f" [job {job} attempt {getattr(record, 'attempt', '?')}]"
        return f"{at} {record.levelname:<8} {record.process} {record.name}{where} {self._text(record)}"

    def _text(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + record.stack_info
        return self._sanitizer.sanitize_text(text)


class JsonFormatter(WorkerFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        facts = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": self._text(record),
            "job_id": getattr(record, "job_id", None),
            "attempt": getattr(record, "attempt", None),
            "node_id": getattr(record, "node_id", None),
        }
        return json.dumps(
            {name: value for name, value in facts.items() if value is not None}, ensure_ascii=False
        )


def log_to_stderr(level: str, *, as_json: bool = False) -> None:
    """Log to stderr, unless the app has configured logging itself."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else WorkerFormatter())
    root.addHandler(handler)
    root.setLevel(level)
