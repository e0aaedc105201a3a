"""
`Notifier`: turns alerts and events into messages, and sends each with a job of its own.

Dead-letter alerts are rows that the transaction which fails the job has written, with a count that it keeps exact. The notifier
only has to find them: right after this process has raised one, when the node starts, and once a minute for those that others
have raised and could not tell, because they died or because they have no notifier. A job that sends has an idempotency key
made of the alert and the destination, so it does not matter how many find the same row.

Other events are told by the process that hears them, and are counted in memory.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct, convert, to_builtins

from ratchet.api.checks import count_of, queue_of, text_of
from ratchet.api.listeners import checked_event
from ratchet.api.observe.handles import JobHandle
from ratchet.api.submit.builders import JobBuilder
from ratchet.contrib.alerting.delivery import Transport
from ratchet.contrib.alerting.grouping import Group, Groups
from ratchet.contrib.alerting.messages import Message, of_alert, of_event, of_more_events, of_repeats
from ratchet.engine.service import Service
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import ConfigurationError, InvalidJob, RatchetError
from ratchet.model.events import Event, JobDeadLettered, JobEvent, NodeLost
from ratchet.model.job import Alert
from ratchet.model.status import BackoffPolicy, Priority
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core
from ratchet.spi.lifecycle_hook import LifecycleHook

logger = logging.getLogger("ratchet.alerts")

#: The targets of the jobs that send; nothing is ever told about these.
PREFIX = "ratchet.alerts:"
#: Seconds between two looks at what others have raised.
LOOK_EVERY = 60.0
#: A cause that goes on raises its next alert right after the window: the count of the one before is then told by that.
GRACE = timedelta(minutes=1)
#: Alerts that are looked at; older ones are told by the next look.
MOST_ALERTS = 1000
#: Messages about events that wait for a store that is away, and alerts that are remembered as told.
MOST_WAITING = 1000
MOST_TOLD = 10_000
#: Jobs of one destination that send at the same time: a receiver that hangs takes no more slots than that.
AT_ONCE = 2
#: Retries come after 2, 4, 8, … seconds: twelve of them take more than two hours.
MAX_RETRIES = 12
FIRST_DELAY = timedelta(seconds=2)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")

Kind = Literal["alert", "repeats", "event"]


class Destination(Struct, frozen=True, kw_only=True):
    """Where messages go, under which name, and how patiently."""

    name: str
    transport: Transport
    events: tuple[type[Event], ...]
    label: str | None
    queue: str | None
    timeout: timedelta
    max_retries: int

    @classmethod
    def checked(
        cls,
        transport: Transport,
        *,
        name: str,
        events: Iterable[type[Event]] | None,
        label: str | None,
        queue: str | None,
        timeout: Duration,
        max_retries: int,
    ) -> Destination:
        """The same, with everything that a user may get wrong looked at."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidJob(
                f"the name of a destination has small letters, digits and underscores, such as 'oncall', not {name!r}"
            )
        kinds = (JobDeadLettered,) if events is None else _kinds(events)
        return cls(
            name=name,
            transport=transport,
            events=kinds,
            label=None if label is None else text_of(label, "the label", limit=100),
            queue=None if queue is None else queue_of(queue),
            timeout=to_timedelta(timeout, "the timeout", zero=False),
            max_retries=count_of(max_retries, "max_retries"),
        )

    @property
    def target(self) -> str:
        """The name of the job that sends here."""
        return PREFIX + self.name


def _kinds(events: Iterable[type[Event]]) -> tuple[type[Event], ...]:
    if isinstance(events, type | str) or not isinstance(events, Iterable):
        raise InvalidJob(
            f"events is a list of event classes, such as [JobDeadLettered, NodeLost], not {events!r}"
        )
    kinds = tuple(dict.fromkeys(checked_event(kind) for kind in events))
    if not kinds:
        raise InvalidJob("events is empty, so nothing would ever be told; leave it out for dead letters")
    return kinds


class Notifier(LifecycleHook):
    """Tells one destination of a scheduler; made by ``notify()``, and alive while the scheduler runs."""

    def __init__(self, scheduler: Scheduler, destination: Destination) -> None:
        core = scheduler.backend
        if not isinstance(core, Core):
            raise ConfigurationError("alerts need a scheduler that can run jobs")
        if destination.target in core.parts.registry.declared_names:
            raise ConfigurationError(
                f"this scheduler has a destination {destination.name!r} already; pass name= to tell them apart"
            )
        self.destination = destination
        self._scheduler = scheduler
        self._core = core
        self._by_hand = core.driven_by_hand
        self._groups = Groups()
        self._waiting: deque[tuple[str, Message]] = deque(maxlen=MOST_WAITING)
        self._told: dict[UUID, None] = {}
        self._looking = threading.Lock()
        self._service: Service | None = None
        self._tells_letters = any(issubclass(JobDeadLettered, kind) for kind in destination.events)
        self._declare()
        self._listen()
        core.parts.hooks = (*core.parts.hooks, self)

    def __repr__(self) -> str:
        return f"Notifier({self.destination.name!r})"

    # --- the job that sends

    def _declare(self) -> None:
        """
        Declare the job of this destination.

        A node that does not know the destination does not know the job either, so it leaves it to those that do.
        """
        where = self.destination

        def send(kind: str, key: str, content: dict[str, Any]) -> int:
            return self._send(kind, key, content)

        self._job: Any = self._scheduler.job(
            name=where.target,
            max_retries=where.max_retries,
            backoff=BackoffPolicy.EXPONENTIAL,
            backoff_base=FIRST_DELAY,
            jitter=0.2,
            # A receiver may send a byte now and then; the transport's own timeout is for each of them.
            timeout=2 * where.timeout,
            priority=Priority.HIGH,
            queue=where.queue,
        )(send)

    def _builder(self, kind: Kind, key: str, content: dict[str, Any]) -> JobBuilder[int]:
        where = self.destination
        builder: JobBuilder[int] = self._job.enqueue(kind, key, content)
        return builder.with_idempotency_key(f"{where.target}:{key}").with_concurrency_key(
            where.target, limit=AT_ONCE
        )

    def _send(self, kind: str, key: str, content: dict[str, Any]) -> int:
        """Send what *content* stands for, as it is now; of how many failures the message has told."""
        message = self._message(kind, key, content)
        if message is None:
            return 0
        self.destination.transport.send(message.labelled(self.destination.label))
        return message.count

    def _message(self, kind: str, key: str, content: dict[str, Any]) -> Message | None:
        if kind == "event":
            return convert(content, Message)
        alert = convert(content["alert"], Alert)
        same = [
            one
            for one in self._recent(alert.created_at - self._window - GRACE)
            if one.error_hash == alert.error_hash
        ]
        # Deleting its job has deleted the row; what is known of it is sent all the same.
        current = next((one for one in same if one.alert_id == alert.alert_id), alert)
        if kind == "alert":
            before = [one for one in same if one.created_at < alert.created_at]
            return of_alert(current, key, max(before, key=_age, default=None))
        more = current.count - self._count_told(content["first"])
        if more <= 0 or any(self._follows(one, alert) for one in same):
            return None
        return of_repeats(current, key, more, self._core.now())

    def _follows(self, one: Alert, alert: Alert) -> bool:
        """True if *one* is the next alert about the same cause; its message has the count of *alert*."""
        return alert.created_at < one.created_at <= alert.created_at + self._window + GRACE

    def _count_told(self, job_id: str) -> int:
        """How many failures the first message has told of; 0 if it was not delivered."""
        try:
            return int(JobHandle[int](self._core, UUID(job_id)).result(timeout=0))
        except (RatchetError, TimeoutError, ValueError, TypeError):
            return 0

    # --- what is to be told

    def _listen(self) -> None:
        def hear(event: Event) -> None:
            self._hear(event)

        if self._tells_letters:
            # Alerts of a node that has died may not have been told.
            self._scheduler.on(JobDeadLettered, NodeLost)(self._look)
        kinds = self.destination.events
        for kind in kinds:
            # An event is heard once, also where a class and its base were both named.
            is_covered = any(issubclass(kind, other) and kind is not other for other in kinds)
            if kind is not JobDeadLettered and not is_covered:
                self._scheduler.on(kind)(hear)

    def _look(self, event: JobDeadLettered | NodeLost) -> None:
        if not isinstance(event, JobDeadLettered) or (event.alerted and not _is_ours(event.target)):
            self._go_on()

    def _hear(self, event: Event) -> None:
        if isinstance(event, JobDeadLettered) or (isinstance(event, JobEvent) and _is_ours(event.target)):
            return  # the alert tells of it; and what sends messages is no reason for one
        now = self._core.now()
        group = self._groups.note(event, now, self._window)
        if group is not None:
            key = f"event-{group.key}"
            self._waiting.append((key, of_event(event, key, now)))
            self._go_on()

    def _go_on(self) -> None:
        """Have the service look now; where there is none, look here."""
        service = self._service
        if service is not None:
            service.wake()
        else:
            self.run_once()

    def run_once(self) -> int:
        """Submit a job for everything that is to be told and was not yet; how many. What fails is left for the next time."""
        if self._core.driven_by_hand is not self._by_hand:
            return 0  # a test has taken the scheduler away from its database: nothing leaves it
        with self._looking:
            now, submitted = self._core.now(), 0
            for group in self._groups.ended(now, self._window):
                self._count(group, now)
            while self._waiting:
                key, message = self._waiting.popleft()
                try:
                    self._builder("event", key, to_builtins(message)).submit()
                except BaseException:
                    self._waiting.appendleft((key, message))
                    raise
                submitted += 1
            if self._tells_letters:
                submitted += self._look_at_alerts(now)
        return submitted

    def _count(self, group: Group, now: datetime) -> None:
        key = f"event-{group.key}-more"
        self._waiting.append((key, of_more_events(group.first, key, group.more, group.since, now)))

    def _look_at_alerts(self, now: datetime) -> int:
        submitted = 0
        for alert in sorted(self._recent(now - 2 * self._window - GRACE), key=_age):
            if alert.alert_id in self._told or _is_ours(alert.target):
                continue
            content = {"alert": to_builtins(alert)}
            first = self._builder("alert", str(alert.alert_id), content).submit()
            more = self._builder("repeats", f"{alert.alert_id}-more", {**content, "first": str(first.id)})
            more.at(alert.created_at + self._window + GRACE).submit()
            submitted += 1
            self._told[alert.alert_id] = None
            while len(self._told) > MOST_TOLD:
                self._told.pop(next(iter(self._told)))
        return submitted

    def _recent(self, since: datetime) -> list[Alert]:
        return self._core.store.alerts(since=since, limit=MOST_ALERTS)

    @property
    def _window(self) -> timedelta:
        return self._core.options.dlq_alert_window

    # --- the life of the node

    def after_start(self) -> None:
        """Look from now on."""
        service = Service("alerts", self._step, self._core.parts.executor)
        service.start()
        self._service = service

    def before_stop(self) -> None:
        """Look no more; what was counted is told now, since the counts are in memory."""
        service, self._service = self._service, None
        if service is not None:
            service.stop()
        now = self._core.now()
        for group in self._groups.ended(now, self._window, all_of_them=True):
            self._count(group, now)
        try:
            self.run_once()
        except RatchetError as error:
            logger.warning("what was still to be told to %r is told later: %s", self.destination.name, error)

    def _step(self) -> float:
        self.run_once()
        return LOOK_EVERY


def _is_ours(target: str) -> bool:
    return target.startswith(PREFIX)


def _age(alert: Alert) -> tuple[datetime, int]:
    return alert.created_at, alert.alert_id.int
