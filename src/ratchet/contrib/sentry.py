"""
Errors, traces and cron monitors for Sentry: ``instrument(scheduler)`` once, after ``sentry_sdk.init(…)``, in every process.

Needs the extra ``sentry``. An error is reported when its job has failed for good, with the job's id, target, queue and attempt, and
without its arguments. What is stored with a job is the field ``sentry-trace``; Sentry's baggage is not.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.scope import add_global_event_processor, use_isolation_scope
from sentry_sdk.utils import event_from_exception

from ratchet.api.backend import Backend
from ratchet.model.composition import ScheduleSpec
from ratchet.model.durations import parse_duration
from ratchet.model.errors import StoreError
from ratchet.scheduler import Scheduler
from ratchet.spi.tracer import Attempt, AttemptEnd, Carrier, RemoteScope, Submitted

if TYPE_CHECKING:
    from sentry_sdk._types import Event, Hint, MonitorConfig
    from sentry_sdk.tracing import Transaction

logger = logging.getLogger("ratchet.parts")

HEADER = "sentry-trace"
ORIGIN = "auto.queue.ratchet"
#: Seconds for which the timetable of a schedule is remembered.
REMEMBERED = 300.0
#: Characters that Sentry takes for the name of a monitor.
LONGEST_SLUG = 50
#: Of so many jobs it is remembered that their failure was reported.
MOST_REPORTED = 1000

_STATUS = {
    "succeeded": "ok",
    "failed": "internal_error",
    "retried": "internal_error",
    "crashed": "internal_error",
}
_ENDED = {"succeeded": "ok", "failed": "error"}
_FIELDS = 5  # of a cron expression that Sentry understands
_NICKNAMES = frozenset({"@hourly", "@daily", "@weekly", "@monthly", "@yearly"})
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def instrument(scheduler: Scheduler, *, monitors: bool = True) -> SentryTracer:
    """
    Report the failures of jobs to Sentry, and continue traces from submit to run, from now on.

    *monitors*: each schedule is a cron monitor, and each of its runs a check-in.
    """
    tracer = SentryTracer(scheduler.backend, monitors=monitors)
    scheduler.add_tracer(tracer)
    _reported.install()
    return tracer


class SentryTracer:
    """A `ratchet.Tracer` that speaks to the Sentry client of this process, whichever it is at that time."""

    def __init__(self, backend: Backend, *, monitors: bool = True) -> None:
        self.sanitized = backend.sanitized
        self._monitors = Monitors(backend) if monitors else None

    @contextmanager
    def submitting(self, submitted: Submitted) -> Iterator[Carrier]:
        """A span of the transaction around the caller, if there is one; the trace goes on with the job in any case."""
        if not sentry_sdk.get_client().is_active():
            yield {}
            return
        with sentry_sdk.start_span(op="queue.publish", name=submitted.target, origin=ORIGIN) as span:
            span.set_data("messaging.system", "ratchet")
            span.set_data("messaging.destination.name", submitted.queue)
            if submitted.job_id is not None:
                span.set_data("messaging.message.id", str(submitted.job_id))
            header = sentry_sdk.get_traceparent()
            yield {} if header is None else {HEADER: header}

    def attempt(self, attempt: Attempt) -> SentryAttempt | None:
        """An isolation scope and a transaction for one attempt; None while Sentry is not initialized."""
        if not sentry_sdk.get_client().is_active():
            return None
        return SentryAttempt(attempt, self)

    def check_in(self, attempt: Attempt, status: str, took: float | None = None) -> None:
        """Tell the monitor of its schedule, if it has one."""
        if self._monitors is not None and attempt.schedule is not None:
            self._monitors.check_in(attempt.schedule, attempt.job_id, status, took)


class SentryAttempt:
    """One attempt: what its code tells Sentry stays in its scope, and is sent with its failure."""

    def __init__(self, attempt: Attempt, tracer: SentryTracer) -> None:
        self._attempt = attempt
        self._tracer = tracer
        self._scope = sentry_sdk.get_isolation_scope().fork()
        with use_isolation_scope(self._scope):
            _describe(self._scope, _facts(attempt))
            self._transaction = _transaction(self._scope, attempt)
        tracer.check_in(attempt, "in_progress")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The scope of this attempt, and in it the transaction."""
        with use_isolation_scope(self._scope):
            sentry_sdk.get_current_scope().span = self._transaction
            yield

    def remote(self) -> Sequence[RemoteScope]:
        """The same trace in another process."""
        facts = {**_facts(self._attempt), HEADER: self._transaction.to_traceparent()}
        return [RemoteScope(module=__name__, name=continued.__name__, facts=facts)]

    def ended(self, end: AttemptEnd) -> None:
        """Report the failure if it was the last attempt, and send the transaction."""
        with self.entered():
            if end.outcome == "failed" and end.exception is not None:
                self._report(end.exception)
            self._transaction.set_status(_STATUS.get(end.outcome, "aborted"))
            self._transaction.finish(end_timestamp=end.at)
        if end.outcome in _ENDED:
            self._tracer.check_in(self._attempt, _ENDED[end.outcome], end.took)

    def _report(self, error: BaseException) -> None:
        event, hint = event_from_exception(
            error,
            client_options=sentry_sdk.get_client().options,
            mechanism={"type": "ratchet", "handled": False},
        )
        for value in event.get("exception", {}).get("values", ()):
            value["value"] = self._tracer.sanitized(str(value.get("value") or ""))
            for frame in (value.get("stacktrace") or {}).get("frames", ()):
                frame.pop("vars", None)  # they would show the arguments of the job
        _reported.add(self._attempt.job_id)
        sentry_sdk.capture_event(event, hint=hint)


@contextmanager
def continued(facts: Mapping[str, str]) -> Iterator[None]:
    """Surrounds the code of a job in a process of the process lane."""
    if not sentry_sdk.get_client().is_active():
        yield
        return
    with sentry_sdk.isolation_scope() as scope:
        scope.continue_trace({HEADER: facts[HEADER]})
        _describe(scope, facts)
        yield


def _facts(attempt: Attempt) -> dict[str, str]:
    return {
        "job_id": str(attempt.job_id),
        "target": attempt.target,
        "queue": attempt.queue,
        "attempt": str(attempt.attempt),
    }


def _describe(scope: sentry_sdk.Scope, facts: Mapping[str, str]) -> None:
    shown = {name: facts[name] for name in ("job_id", "target", "queue", "attempt")}
    scope.set_transaction_name(shown["target"], source="task")
    for name, value in shown.items():
        scope.set_tag(f"ratchet.{name}", value)
    scope.set_context("ratchet", dict(shown))


def _transaction(scope: sentry_sdk.Scope, attempt: Attempt) -> Transaction:
    transaction = scope.continue_trace(
        {HEADER: attempt.carrier[HEADER]} if HEADER in attempt.carrier else {},
        op="queue.process",
        name=attempt.target,
        source="task",
        origin=ORIGIN,
    )
    sentry_sdk.start_transaction(transaction)  # decides whether it is sampled
    transaction.set_data("messaging.system", "ratchet")
    transaction.set_data("messaging.message.id", str(attempt.job_id))
    transaction.set_data("messaging.destination.name", attempt.queue)
    transaction.set_data("messaging.message.retry.count", attempt.attempt - 1)
    return transaction


# --- failures that are logged too ---------------------------------------------------------------------


class _Reported:
    """Keeps the node's own log line about a dead letter from becoming a second report of the same failure."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, None] = {}
        self._installed = False

    def install(self) -> None:
        with self._lock:
            installed, self._installed = self._installed, True
        if not installed:
            add_global_event_processor(self._processed)

    def add(self, job_id: UUID) -> None:
        with self._lock:
            if len(self._jobs) >= MOST_REPORTED:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[str(job_id)] = None

    def _processed(self, event: Event, hint: Hint) -> Event | None:
        record = hint.get("log_record")
        if record is None or record.name != "ratchet.engine":
            return event
        return None if getattr(record, "job_id", None) in self._jobs else event


_reported = _Reported()


# --- cron monitors ------------------------------------------------------------------------------------


class Monitors:
    """
    The schedules as cron monitors.

    All attempts of a run are one check-in, whichever nodes make them: it has the id of the job.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, MonitorConfig | None]] = {}

    def check_in(self, schedule: str, job_id: UUID, status: str, took: float | None) -> None:
        """Say how a run is doing."""
        capture_checkin(
            monitor_slug=slug_of(schedule),
            check_in_id=job_id.hex,
            status=status,
            duration=took,
            monitor_config=self._config(schedule),
        )

    def _config(self, name: str) -> MonitorConfig | None:
        now = time.monotonic()
        with self._lock:
            read_at, config = self._known.get(name, (None, None))
        if read_at is not None and now - read_at < REMEMBERED:
            return config
        try:
            record = self._backend.store.schedule(name)
        except StoreError as error:
            logger.warning("the timetable of schedule %s could not be read for Sentry: %s", name, error)
            return config
        config = None if record is None else monitor_config(record.spec)
        with self._lock:
            self._known[name] = (now, config)
        return config


def slug_of(name: str) -> str:
    """The name of a schedule as Sentry names a monitor; different names stay different."""
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if slug == name and len(slug) <= LONGEST_SLUG:
        return slug
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{slug[: LONGEST_SLUG - 7]}-{digest}".strip("-")


def monitor_config(spec: ScheduleSpec) -> MonitorConfig | None:
    """The timetable in Sentry's words; None where it has none for it: seconds, years, ``L``, ``W`` and ``#``."""
    expression = spec.expression.strip()
    if expression.lower().startswith("every "):
        return _interval(expression.lower().removeprefix("every "))
    if not (expression.lower() in _NICKNAMES or _is_plain_cron(expression)):
        return None
    return {"schedule": {"type": "crontab", "value": expression}, "timezone": spec.zone}


def _is_plain_cron(expression: str) -> bool:
    fields = expression.upper().split()
    if len(fields) != _FIELDS:
        return False
    day, weekday = fields[2], fields[4]
    return not set(day) & set("LW?") and not re.search(r"[#?]|\dL|\bL\b", weekday)


def _interval(text: str) -> MonitorConfig | None:
    seconds = parse_duration(text).total_seconds()
    for unit, length in _UNITS:
        if seconds >= length and seconds % length == 0:
            schedule: Any = {"type": "interval", "value": int(seconds // length), "unit": unit}
            return {"schedule": schedule}
    return None
