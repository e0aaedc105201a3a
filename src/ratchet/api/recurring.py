"""Schedules: jobs that are made by a timetable, and the handle of a stored one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypedDict
from uuid import UUID

import msgspec

from ratchet.api.authorization import Permitted, by_hand, require
from ratchet.api.backend import Backend
from ratchet.api.checks import (
    count_of,
    joining_transaction,
    member_of,
    moment_of,
    priority_of,
    queue_of,
    tags_of,
    text_of,
)
from ratchet.api.observe.handles import JobHandle
from ratchet.api.observe.records import job_of, job_of_spec
from ratchet.api.submit.steps import Step, require_no_placeholders
from ratchet.api.submit.tracing import producing_job
from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.durations import Duration, format_duration, to_timedelta
from ratchet.model.errors import InvalidJob, RatchetError
from ratchet.model.job import Job, JobFilter, JobSpec, Page
from ratchet.model.masking import stored_masks
from ratchet.model.payload import encode, read_json, refuse_sealed
from ratchet.model.permissions import Permission
from ratchet.model.schedules import is_same_schedule
from ratchet.model.status import Priority
from ratchet.spi.store.audit import auditing

if TYPE_CHECKING:
    from ratchet.api.observe.async_handles import AsyncSchedule

#: A template has no id and no time of its own: equal templates must be equal text.
_NO_ID: Final = UUID(int=0)
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleNotFound(RatchetError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}; scheduler.schedules.list() shows those there are")
        self.name = name


class Overlap(StrEnum):
    """What happens at a fire time while the run before it has not ended."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"
    QUEUE = "QUEUE"


@dataclass(frozen=True, slots=True)
class Misfire:
    """What happens with fire times that passed while no node was running."""

    rule: str

    @classmethod
    def skip(cls) -> Misfire:
        """They are recorded as skipped."""
        return cls("skip")

    @classmethod
    def fire_once(cls) -> Misfire:
        """One run makes up for all of them."""
        return cls("fire_once")

    @classmethod
    def catch_up(cls, most: int = 11) -> Misfire:
        """Each gets a run, the latest *most* of them."""
        return cls(f"catch_up:{count_of(most, 'Misfire.catch_up(n)', at_least=1, at_most=10_000)}")


LONGEST_JITTER: Final = timedelta(days=366)
FIRE_ONCE: Final = Misfire.fire_once()


class ScheduleOptions(TypedDict, total=False):
    """The keywords of ``schedule_recurring``, for type checkers."""

    name: str | None
    zone: str
    misfire: Misfire
    overlap: Overlap
    starts_at: datetime | None
    ends_at: datetime | None
    jitter: Duration
    priority: Priority | None
    tags: Sequence[str]
    queue: str | None
    max_retries: int | None
    timeout: Duration | None
    business_key: str | None
    within: object | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule fires, as the user said it; checked when it is made."""

    expression: str
    zone: str = "UTC"
    misfire: Misfire = FIRE_ONCE
    overlap: Overlap = Overlap.SKIP
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter: timedelta = timedelta()

    @classmethod
    def of(
        cls,
        expression: str | Duration,
        *,
        zone: str,
        misfire: Misfire,
        overlap: Overlap,
        starts_at: datetime | None,
        ends_at: datetime | None,
        jitter: Duration,
    ) -> Timing:
        """The timing that was asked for; a duration as *expression* is a fixed interval."""
        if not isinstance(misfire, Misfire):
            raise InvalidJob(f"misfire is Misfire.skip(), .fire_once() or .catch_up(n), not {misfire!r}")
        if isinstance(expression, str):
            text = text_of(expression, "a cron expression")
        else:
            text = "every " + format_duration(to_timedelta(expression, "the interval", zero=False))
        begin = None if starts_at is None else moment_of(starts_at, "starts_at")
        end = None if ends_at is None else moment_of(ends_at, "ends_at")
        if begin is not None and end is not None and end <= begin:
            raise InvalidJob(
                f"the schedule ends at {end.isoformat()}, before it starts at {begin.isoformat()}"
            )
        return cls(
            expression=text,
            zone=text_of(zone, "a time zone"),
            misfire=misfire,
            overlap=member_of(Overlap, overlap, "overlap"),
            starts_at=begin,
            ends_at=end,
            jitter=_jitter_of(jitter),
        )


def _jitter_of(jitter: Duration) -> timedelta:
    found = to_timedelta(jitter, "the jitter")
    if found > LONGEST_JITTER:
        raise InvalidJob(
            f"the jitter of a schedule is at most {LONGEST_JITTER.days} days, not {jitter!r:.60}"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a schedule says about its runs, beyond what their function declares; None says nothing."""

    priority: Priority | None = None
    tags: Sequence[str] = ()
    queue: str | None = None
    max_retries: int | None = None
    timeout: Duration | None = None
    business_key: str | None = None

    def step(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        """A run of *target* with these options, checked."""
        step = Step(target, args, kwargs)
        given = step.given
        if self.priority is not None:
            given["priority"] = priority_of(self.priority)
        if self.queue is not None:
            given["queue"] = queue_of(self.queue)
        if self.max_retries is not None:
            given["max_retries"] = count_of(self.max_retries, "max_retries")
        if self.timeout is not None:
            given["timeout"] = to_timedelta(self.timeout, "the timeout", zero=False)
        if self.business_key is not None:
            given["business_key"] = text_of(self.business_key, "a business key")
        step.tags = tags_of(self.tags)
        return step


def run_facts(spec: ScheduleSpec) -> dict[str, Any]:
    """What the runs of a stored schedule are like, as people ask for it; empty if its template cannot be read."""
    try:
        template = msgspec.json.decode(spec.template, type=JobSpec, strict=False)
    except msgspec.MsgspecError:
        return {}
    return {
        "priority": template.priority,
        "tags": list(template.tags),
        "queue": template.stream.queue,
        "max_retries": template.max_retries,
        "timeout": template.timeout,
        "business_key": template.business_key,
    }


def plain_arguments(spec: ScheduleSpec, backend: Backend) -> tuple[list[Any], dict[str, Any]] | None:
    """
    What the runs of a stored schedule are called with, if people may see it and write it as JSON.

    None where it is masked or sealed, or has values that JSON has no word for: written again, a date would be a text.
    """
    try:
        template = msgspec.json.decode(spec.template, type=JobSpec, strict=False)
        if stored_masks(template.params) or (
            backend.masking is not None and backend.masking.paths(spec.target)
        ):
            return None
        found = read_json(template.payload)
        args, kwargs = found["args"], found["kwargs"]
        same = encode(args, kwargs, limit=None) == template.payload
    except (msgspec.MsgspecError, RatchetError, KeyError, TypeError):
        return None
    return (args, kwargs) if same else None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A schedule as it was asked for: by ``schedule_recurring``, or declared and stored at start."""

    name: str | None
    timing: Timing
    step: Step
    declared: bool = False

    def store(self, backend: Backend, within: object | None = None, *, asked: bool = True) -> Schedule:
        """
        Create the schedule, or change it to this, perhaps in the caller's transaction; pausing survives.

        *asked*: False where a node does it, which needs no permission, and writes down only what it changed.
        """
        tracer = backend.tracer
        if (
            tracer is None or self.declared
        ):  # what is declared is stored at every start, in no request of anybody
            return self._store(backend, self._template(backend), within, asked)
        template, now = self._template(backend), backend.now()
        with producing_job(tracer, template, now, schedule=self._stored_name(template)) as followed:
            return self._store(backend, followed, within, asked)

    def _store(self, backend: Backend, template: JobSpec, within: object | None, asked: bool) -> Schedule:
        now = backend.now()
        spec = self._spec(template)
        existing = backend.store.schedule(spec.name, **joining_transaction(within))
        anchor = now if existing is None else existing.created_at
        wanted = _upcoming(spec, backend, now, anchor)
        same = existing is not None and is_same_schedule(wanted, existing.spec)
        with (
            by_hand(
                backend,
                Permission.SCHEDULES,
                "set",
                job=_run_of(spec, backend),
                about=f"schedule:{spec.name}",
                reason=f"{spec.target}, {spec.expression}",
                within=within,
                asked=asked,
                quiet=not asked,
            ),
            auditing(None) if same else nullcontext(),
        ):
            record = backend.store.upsert_schedule(wanted, now=now, **joining_transaction(within))
        if not same and within is None:
            _wake(backend)
        return Schedule(backend, record.spec.name)

    def _template(self, backend: Backend) -> JobSpec:
        """What each run is made from."""
        checked = self.step.checked(backend)
        checked.require_no_placeholders()
        return checked.spec(_NO_ID, _NO_TIME, caller=backend.caller())

    def _stored_name(self, template: JobSpec) -> str:
        return text_of(self.name or template.target, "the name of a schedule")

    def _spec(self, template: JobSpec) -> ScheduleSpec:
        timing = self.timing
        return ScheduleSpec(
            name=self._stored_name(template),
            expression=timing.expression,
            zone=timing.zone,
            target=template.target,
            template=msgspec.json.encode(template).decode(),
            misfire=timing.misfire.rule,
            overlap=timing.overlap.value,
            starts_at=timing.starts_at,
            ends_at=timing.ends_at,
            jitter=timing.jitter,
            declared=self.declared,
        )


def _wake(backend: Backend) -> None:
    """Have all nodes look at the schedules: they do so when they are woken for work."""
    backend.submitted((), due=True, priority=Priority.NORMAL)


def _require_zone(name: str) -> None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # 3 ms that few commands need

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidJob(f"{name!r} is not a time zone; write it as in 'Europe/Berlin' or 'UTC'") from error


def _upcoming(spec: ScheduleSpec, backend: Backend, now: datetime, anchor: datetime) -> ScheduleSpec:
    """*spec* with its next fire time; `InvalidJob` if there is none although it never ends."""
    upcoming = next(backend.fire_times(spec, now, anchor), None)
    if upcoming is None and spec.ends_at is None:
        raise InvalidJob(f"{spec.expression!r} never fires: its first time would be after the year 9999")
    return msgspec.structs.replace(spec, next_fire_at=upcoming)


def _run_of(spec: ScheduleSpec, backend: Backend) -> Job | None:
    """What a run of the schedule would be; None if its template cannot be read, or nobody asks."""
    if backend.authorizer is None:
        return None
    try:
        template = msgspec.json.decode(spec.template, type=JobSpec, strict=False)
    except msgspec.MsgspecError:
        return None
    return job_of_spec(template, backend)


class Schedule:
    """A stored schedule by its name: when it fires next, its runs, and how to pause it."""

    __slots__ = ("_backend", "name")

    def __init__(self, backend: Backend, name: str) -> None:
        #: What it is called; the same name is the same schedule.
        self.name = name
        self._backend = backend

    def __repr__(self) -> str:
        return f"Schedule({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def record(self) -> ScheduleRecord:
        """Everything that is stored of it; `ScheduleNotFound` if it was removed."""
        require(self._backend, Permission.LIST, about=f"schedule:{self.name}")
        return self._record(None)

    def _record(self, within: object | None) -> ScheduleRecord:
        record = self._backend.store.schedule(self.name, **joining_transaction(within))
        if record is None:
            raise ScheduleNotFound(self.name)
        return record

    @property
    def next_fire_at(self) -> datetime | None:
        """When it fires next; None if it has ended."""
        return self.record().next_fire_at

    @property
    def paused(self) -> bool:
        """True while it does not fire."""
        return self.record().paused

    def pause(self, *, within: object | None = None) -> bool:
        """Stop firing; True also if it was paused already, False if there is no such schedule."""
        with self._by_hand("pause", within):
            return self._backend.store.pause_schedule(
                self.name, now=self._backend.now(), **joining_transaction(within)
            )

    def resume(self, *, within: object | None = None) -> bool:
        """Fire again, from now on; False if it was not paused."""
        now = self._backend.now()
        record = self._record(within)
        upcoming = next(self._backend.fire_times(record.spec, now, record.created_at), None)
        with self._by_hand("resume", within):
            resumed = self._backend.store.resume_schedule(
                self.name, upcoming, now=now, **joining_transaction(within)
            )
        if resumed and within is None:
            _wake(self._backend)
        return resumed

    def trigger(self, *, within: object | None = None) -> JobHandle[Any]:
        """One run now, outside the timetable; with *within*, when your transaction commits."""
        now = self._backend.now()
        run = self._backend.run_of(self._record(within).spec, now)
        tracer = self._backend.tracer
        if tracer is None:
            return self._trigger(run, now, within)
        with producing_job(tracer, run, now, schedule=self.name) as followed:
            return self._trigger(followed, now, within)

    def _trigger(self, run: JobSpec, now: datetime, within: object | None) -> JobHandle[Any]:
        with self._by_hand("trigger", within):
            fired = self._backend.store.trigger(
                self.name, Fire(fire_at=now, spec=run), now=now, **joining_transaction(within)
            )
        if fired is None or fired.job_id is None:
            raise ScheduleNotFound(self.name)
        if within is None:
            self._backend.submitted([run], due=True, priority=Priority.NORMAL)
        return JobHandle(self._backend, fired.job_id, target=run.target, uncommitted=within is not None)

    def change(
        self,
        *,
        expression: str | Duration | None = None,
        zone: str | None = None,
        misfire: Misfire | None = None,
        overlap: Overlap | None = None,
        jitter: Duration | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        within: object | None = None,
    ) -> bool:
        """
        Change when it fires, or what its runs are called with; what is left out stays. False if nothing differs.

        *args* and *kwargs* replace all arguments; whether the function takes them is seen when it runs. A schedule that
        is declared in code is refused with `InvalidJob`: the next node that starts would change it back.
        """
        record, now = self._record(within), self._backend.now()
        held = record.spec
        if held.declared:
            raise InvalidJob(
                f"schedule {self.name!r} is declared in code; change it there, because a node that starts stores what the "
                f"code says"
            )
        said = self._said(
            held, expression=expression, zone=zone, misfire=misfire, overlap=overlap, jitter=jitter
        )
        if args is not None or kwargs is not None:
            said["template"] = self._called_with(held, args, kwargs)
        changed = msgspec.structs.replace(held, **said)
        wanted = _upcoming(changed, self._backend, now, record.created_at)
        differs = [name for name, value in said.items() if value != getattr(held, name)]
        names = ["arguments" if name == "template" else f"{name}={said[name]}" for name in differs]
        with by_hand(
            self._backend,
            Permission.SCHEDULES,
            "change",
            job=_run_of(held, self._backend),
            about=f"schedule:{self.name}",
            reason=", ".join(names) or None,
            within=within,
        ):
            if differs:
                self._backend.store.upsert_schedule(wanted, now=now, **joining_transaction(within))
        if differs and within is None:
            _wake(self._backend)
        return bool(differs)

    def _said(self, held: ScheduleSpec, **given: Any) -> dict[str, Any]:
        """The fields that were given, checked, as they are stored."""
        filled: dict[str, Any] = {
            "expression": held.expression,
            "zone": held.zone,
            "misfire": FIRE_ONCE,
            "overlap": Overlap.SKIP,
            "jitter": held.jitter,
            **{name: value for name, value in given.items() if value is not None},
        }
        timing = Timing.of(**filled, starts_at=held.starts_at, ends_at=held.ends_at)
        stored = {
            "expression": timing.expression,
            "zone": timing.zone,
            "misfire": timing.misfire.rule,
            "overlap": timing.overlap.value,
            "jitter": timing.jitter,
        }
        if given["zone"] is not None:
            _require_zone(timing.zone)  # an interval does not ask for it, but the next expression may
        return {name: value for name, value in stored.items() if given[name] is not None}

    def _called_with(
        self, held: ScheduleSpec, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
    ) -> str:
        """The template of its runs with other arguments."""
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise InvalidJob(f"args is a list of arguments, not {args!r:.60}")
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise InvalidJob(f"kwargs is a mapping of names to arguments, not {kwargs!r:.60}")
        template = msgspec.json.decode(held.template, type=JobSpec, strict=False)
        refuse_sealed(template.payload, "arguments")
        require_no_placeholders(held.target, (tuple(args), dict(kwargs)))
        backend = self._backend
        payload = encode(args, kwargs, limit=backend.options.payload_limit, allow_type=backend.allow_type)
        return msgspec.json.encode(msgspec.structs.replace(template, payload=payload)).decode()

    def remove(self, *, within: object | None = None) -> bool:
        """Forget the schedule; its runs stay. False if there was none."""
        with self._by_hand("remove", within):
            return self._backend.store.remove_schedule(self.name, **joining_transaction(within))

    def _by_hand(self, verb: str, within: object | None) -> AbstractContextManager[None]:
        """Around a change of the schedule; the authorizer is asked about what a run of it would be."""
        job, about = self._asked_about(within), f"schedule:{self.name}"
        return by_hand(self._backend, Permission.SCHEDULES, verb, job=job, about=about, within=within)

    def _asked_about(self, within: object | None) -> Job | None:
        if self._backend.authorizer is None:
            return None
        record = self._backend.store.schedule(self.name, **joining_transaction(within))
        return None if record is None else _run_of(record.spec, self._backend)

    def _may_be_changed(self) -> bool:
        """True if the authorizer permits to change it."""
        authorizer = self._backend.authorizer
        return authorizer is None or authorizer(
            self._backend.actor().name, Permission.SCHEDULES, self._asked_about(None)
        )

    def runs(self, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """One page of the jobs that it made, newest first."""
        store = self._backend.store
        permitted = Permitted(self._backend, Permission.VIEW, JobFilter(schedule=self.name))
        page = permitted.page(
            lambda most, after: store.find(permitted.where, limit=most, cursor=after), limit, cursor
        )
        return Page([job_of(record, self._backend) for record in page], page.next_cursor)

    def fires(self, limit: int = 50) -> list[FireRecord]:
        """The latest fire times, newest first, each with its run, or why there was none."""
        require(self._backend, Permission.LIST, about=f"schedule:{self.name}")
        return self._backend.store.fires(self.name, limit=limit)

    @property
    def aio(self) -> AsyncSchedule:
        """The same verbs, awaitable."""
        from ratchet.api.observe.async_handles import AsyncSchedule

        return AsyncSchedule(self)

    def next_fires(self, count: int = 10) -> list[datetime]:
        """The next *count* fire times."""
        record = self.record()
        if record.next_fire_at is None:
            return []
        times = self._backend.fire_times(record.spec, self._backend.now(), record.created_at)
        return list(islice(times, count_of(count, "the number of fire times", at_least=1, at_most=10_000)))
