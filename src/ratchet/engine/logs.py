"""What jobs log while they run: correlated, sanitized, capped, and stored with the job."""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ratchet.api.context import current_run
from ratchet.api.context import logger as job_logger
from ratchet.engine.run import Run
from ratchet.model.errors import StoreError, UnstorableData
from ratchet.model.job import LogEntry
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.store.history import JobLogStore

if TYPE_CHECKING:
    from ratchet.engine.task import TaskTools

#: Lines that wait for a store that is away; older ones are dropped first.
BACKLOG = 50_000


class JobLogHandler(logging.Handler):
    """
    A handler on the root logger: keeps records that a job of this node makes while it runs in this context.

    Every node of a process has one, and each sees all records: a run belongs to the node whose tools it has.
    """

    def __init__(
        self, *, tools: TaskTools, sanitizer: ErrorSanitizer, level: str, lines_per_run: int, line_limit: int
    ) -> None:
        super().__init__(level)
        self._tools = tools
        self._sanitizer = sanitizer
        self._lines = lines_per_run
        self._line_limit = line_limit
        self.entries: deque[LogEntry] = deque(maxlen=BACKLOG)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, if a job of this node made it."""
        run = current_run()
        if not isinstance(run, Run) or not run.belongs_to(self._tools) or run.log_lines > self._lines:
            return
        run.log_lines += 1
        if run.log_lines > self._lines:
            text = f"(more than {self._lines} lines: the rest of this run is not kept)"
        else:
            text = self._text(record, run)
        claim = run.job.claim
        self.entries.append(
            LogEntry(
                job_id=claim.job_id,
                claim_id=claim.claim_id,
                sequence=run.log_lines,
                attempt=run.attempt,
                at=datetime.fromtimestamp(record.created, UTC),
                level=record.levelname[:16],
                logger=record.name[:255],
                message=text,
            )
        )

    def _text(self, record: logging.LogRecord, run: Run) -> str:
        try:
            text = self.format(record)
        except Exception as error:
            text = f"(this line could not be formatted: {type(error).__name__})"
        # Cut first, so that sanitizing a huge line costs little; what is cut off cannot leak.
        return run.masked(self._sanitizer.sanitize_text(text[: self._line_limit * 2]))[: self._line_limit]


class LogWriter:
    """Moves kept lines into the store, many at a time."""

    def __init__(self, handler: JobLogHandler, store: JobLogStore, batch: int = 1000) -> None:
        self._handler = handler
        self._store = store
        self._batch = batch
        self._lock = threading.Lock()

    def run_once(self, now: datetime) -> int:
        """Store what is waiting; how many lines. They go on waiting while the store is away."""
        entries = self._handler.entries
        if not entries:
            return 0
        written = 0
        with self._lock:
            while entries:
                chunk = [entries.popleft() for _ in range(min(self._batch, len(entries)))]
                try:
                    self._store.append_logs(chunk, now=now)
                except UnstorableData:
                    continue  # these lines cannot be kept on this store; the job matters more
                except StoreError:
                    entries.extendleft(reversed(chunk))
                    break
                written += len(chunk)
        return written


class RecordFields(dict[str, Any]):
    """
    The attributes of a log record, of which ours may be overwritten.

    The standard library refuses ``extra={"job_id": …}`` with a KeyError if the record has that name already, and an application
    may use such names in any of its log lines. So ours are there, for formats, but are not said to be: what an application gives wins.
    """

    OURS = frozenset({"job_id", "job_target", "node_id", "attempt"})

    def __contains__(self, name: object) -> bool:
        return name not in self.OURS and super().__contains__(name)


class LogContext:
    """
    Puts ``job_id``, ``job_target``, ``node_id`` and ``attempt`` on every log record of the process while a node runs.

    Records made outside of a job have None, so that a format string with these names always works.
    """

    _installed = 0
    _lock = threading.Lock()
    _previous: object = None

    @classmethod
    def install(cls, handler: JobLogHandler, level: str) -> None:
        """Begin; several nodes in one process share one factory."""
        with cls._lock:
            logging.getLogger().addHandler(handler)
            if job_logger.level == logging.NOTSET:
                job_logger.setLevel(level)
            if cls._installed == 0:
                previous = logging.getLogRecordFactory()
                cls._previous = previous

                def make(*args: object, **kwargs: object) -> logging.LogRecord:
                    record = previous(*args, **kwargs)
                    run = current_run()
                    fields = RecordFields(record.__dict__)
                    fields["job_id"] = None if run is None else str(run.job_id)
                    fields["job_target"] = None if run is None else run.target
                    fields["node_id"] = None if run is None else run.node_id
                    fields["attempt"] = None if run is None else run.attempt
                    record.__dict__ = fields
                    return record

                logging.setLogRecordFactory(make)
            cls._installed += 1

    @classmethod
    def remove(cls, handler: JobLogHandler) -> None:
        """End; the last node out restores the factory."""
        with cls._lock:
            logging.getLogger().removeHandler(handler)
            cls._installed = max(0, cls._installed - 1)
            if cls._installed == 0 and cls._previous is not None:
                logging.setLogRecordFactory(cls._previous)  # type: ignore[arg-type]  # what we took is what we give back
                cls._previous = None
