"""
What was described, and how it becomes the specs and edges of a `Submission`.

A `Step` is one job while it is being described, a `Composition` a first step with what follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from types import FunctionType
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from ratchet.api.backend import Backend
from ratchet.api.checks import after
from ratchet.api.submit.calls import Call, stored_callback, taken_apart
from ratchet.api.submit.capture import LAMBDA
from ratchet.api.submit.conditions import Condition
from ratchet.api.targets.names import NamedTarget, default_name
from ratchet.api.targets.registry import JobDeclaration, breaker_of, declaration_of, parameter_types
from ratchet.model.callbacks import RESERVED
from ratchet.model.cluster import KeyLimit
from ratchet.model.composition import BatchSpec, Edge, EdgeKind
from ratchet.model.errors import InvalidJob
from ratchet.model.job import DEFAULT_QUEUE, JobSpec, SignalWait, StreamKey
from ratchet.model.masking import MASKED_PARAM, stored_paths
from ratchet.model.payload import ParameterTypes, encode, encode_value, placeholders_in
from ratchet.model.script import importable_name
from ratchet.model.status import BackoffPolicy, Busy, JobStatus, JobType, Lane, Priority
from ratchet.spi.invocation_resolver import StoredCall

#: Every placeholder is stored under this tag.
PLACEHOLDER: Final = '"$"'


class Step:
    """
    A target, its arguments, and what was said about the job they will become.

    ``given`` holds only what the builder was told. The rest comes from ``@scheduler.job``; a lambda
    shows which function it calls only when it is taken apart at submit.
    """

    __slots__ = ("args", "given", "job_id", "kwargs", "limits", "params", "tags", "target")

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(target, Call):
            if args or kwargs:
                raise InvalidJob("call(...) brings its own arguments; put all of them inside its parentheses")
            target, args, kwargs = target.target, target.args, target.kwargs
        self.target = target
        self.args = args
        self.kwargs = kwargs
        self.job_id: UUID | None = None  # kept once made: a submission sent again has the same ids
        self.given: dict[str, Any] = {}
        self.tags: tuple[str, ...] = ()
        self.params: dict[str, Any] = {}
        self.limits: dict[str, KeyLimit] = {}  # what is stored about its keys

    @property
    def label(self) -> str:
        """What messages call it."""
        return str(getattr(self.target, "__qualname__", None) or repr(self.target))

    def call(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The function to store and its arguments; a lambda's variables are read now."""
        if isinstance(self.target, FunctionType) and self.target.__name__ == LAMBDA:
            return taken_apart(self.target, self.args, self.kwargs)
        return self.target, self.args, self.kwargs

    def identified(self, backend: Backend) -> UUID:
        """The id of the job that this step becomes."""
        if self.job_id is None:
            self.job_id = backend.ids()
        return self.job_id

    def checked(self, backend: Backend) -> CheckedStep:
        """The step with its target named, its arguments encoded and its settings complete."""
        function, args, kwargs = self.call()
        if type(function) is NamedTarget:
            stored = StoredCall(function.name, tuple(args), kwargs)
        else:
            stored = backend.targets.describe(function, args, kwargs)
        return CheckedStep(
            stored=stored,
            payload=encode(
                stored.args,
                stored.kwargs,
                limit=backend.options.payload_limit,
                types=parameter_types(function),
                allow_type=backend.allow_type,
            ),
            settings=self._settings(backend, function, stored.lane),
        )

    def _settings(self, backend: Backend, function: Any, lane: Lane) -> dict[str, Any]:
        """What the declaration and the builder said, as fields of a `JobSpec`; and the expiry."""
        declared = declaration_of(function, backend.targets)
        settings = {} if declared is None else _declared_settings(declared)
        settings.update(self.given)
        if self.tags:
            settings["tags"] = tuple(dict.fromkeys((*settings.get("tags", ()), *self.tags)))
        params = self._call_backs(backend, settings)
        if backend.masking is not None or (declared is not None and declared.masked):
            params = {**params, **_masks(backend, function, declared)}
        if params:
            settings["params"] = encode_value(params, name="params", limit=backend.options.payload_limit)
        return _with_stream(settings, lane, breaker_of(function))

    def _call_backs(self, backend: Backend, settings: dict[str, Any]) -> dict[str, Any]:
        """The params, with the arguments of the callbacks; their targets go into *settings*."""
        params = self.params
        for name, leading in (("on_success", 1), ("on_failure", 2)):
            if settings.get(name) is not None:
                settings[name], arguments = stored_callback(
                    backend, settings[name], leading, takes_result=name == "on_success"
                )
                if arguments is not None:
                    params = {**params, RESERVED + name: arguments}
        return params


def _masks(backend: Backend, function: Any, declared: JobDeclaration | None) -> dict[str, Any]:
    """The param that says what people do not see of a job of *function*; empty if they see everything."""
    if type(function) is NamedTarget:
        paths = () if backend.masking is None else backend.masking.paths(function.name)
        return {MASKED_PARAM: list(paths)} if paths else {}
    paths = () if declared is None else declared.masked
    if backend.masking is not None:
        paths = (
            *paths,
            *backend.masking.paths(declared.name if declared is not None else default_name(function)),
        )
    return {MASKED_PARAM: list(stored_paths(function, tuple(dict.fromkeys(paths))))} if paths else {}


class CheckedStep:
    """A step whose target and arguments are known to be good; only ids and times are missing."""

    __slots__ = ("_settings", "expiry", "payload", "stored")

    def __init__(self, *, stored: StoredCall, payload: str, settings: dict[str, Any]) -> None:
        self.stored = stored
        self.payload = payload
        self.expiry = settings.pop("expiry", None)
        self._settings = settings

    def require_no_placeholders(self) -> None:
        """Refuse RESULT and RESULTS in a job that follows no other."""
        if PLACEHOLDER in self.payload:
            require_no_placeholders(self.stored.target, (self.stored.args, dict(self.stored.kwargs)))

    def spec(self, job_id: UUID, now: datetime, **given: Any) -> JobSpec:
        """The finished spec; *given* says how the job fits into its graph."""
        given.setdefault("scheduled_at", now)
        if self.expiry is not None:
            given["expires_at"] = after(now, self.expiry, "the expiry")
        return JobSpec(
            job_id=job_id, target=self.stored.target, payload=self.payload, **self._settings, **given
        )


def plain_spec(
    backend: Backend, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], now: datetime
) -> JobSpec:
    """
    The job that a step becomes about which nothing was said; *function* is not a lambda.

    ``enqueue_now`` on SQLite takes 81 µs so, and 87 µs with a `Step`.
    """
    if backend.masking is not None:
        step = Step(function, args, kwargs).checked(backend)
        step.require_no_placeholders()
        return step.spec(backend.ids(), now, caller=backend.caller())
    stored = backend.targets.describe(function, args, kwargs)
    defaults = _defaults_of(function, backend.targets, stored.lane)
    payload = encode(
        stored.args,
        stored.kwargs,
        limit=backend.options.payload_limit,
        types=defaults.types,
        allow_type=backend.allow_type,
    )
    if PLACEHOLDER in payload:
        require_no_placeholders(stored.target, (stored.args, dict(stored.kwargs)))
    return JobSpec(
        job_id=backend.ids(),
        target=stored.target,
        payload=payload,
        scheduled_at=now,
        caller=backend.caller(),
        **defaults.settings,
    )


def require_no_placeholders(target: str, arguments: object) -> None:
    """Refuse RESULT and RESULTS among the arguments of a job that follows no other."""
    for placeholder in placeholders_in(arguments):
        raise InvalidJob(
            f"{placeholder} stands for {placeholder.stands_for}, but {target} is the first job here and follows "
            f"none; use it in .then(...), a branch or a join"
        )


class _Defaults(NamedTuple):
    """What all jobs of a function have in common about which no builder said anything."""

    declared: JobDeclaration | None
    breaker: str | None
    lane: Lane
    settings: Mapping[str, Any]
    types: ParameterTypes


_defaults: dict[FunctionType, _Defaults] = {}
_MOST_DEFAULTS: Final = 4096


def _defaults_of(function: FunctionType, registry: object, lane: Lane) -> _Defaults:
    """The defaults of *function* in this lane; found out once, and again after it was decorated."""
    declared, breaker = declaration_of(function, registry), breaker_of(function)
    known = _defaults.get(function)
    if known is None or known.declared is not declared or known.breaker != breaker or known.lane is not lane:
        if len(_defaults) >= _MOST_DEFAULTS:
            _defaults.clear()
        settings = {} if declared is None else _declared_settings(declared)
        if declared is not None and declared.masked:
            kept = {MASKED_PARAM: list(stored_paths(function, declared.masked))}
            settings["params"] = encode_value(kept, name="params")
        known = _defaults[function] = _Defaults(
            declared, breaker, lane, _with_stream(settings, lane, breaker), parameter_types(function)
        )
    return known


def _declared_settings(declared: JobDeclaration) -> dict[str, Any]:
    """What the declaration says beyond a `JobSpec`'s own defaults."""
    settings: dict[str, Any] = {}
    if declared.max_retries:
        settings["max_retries"] = declared.max_retries
    if declared.backoff is not BackoffPolicy.NONE:
        settings["backoff"] = declared.backoff
        settings["backoff_base"] = declared.backoff_base
    if declared.jitter:
        settings["jitter"] = declared.jitter
    if declared.timeout is not None:
        settings["timeout"] = declared.timeout
    if declared.priority is not Priority.NORMAL:
        settings["priority"] = declared.priority
    if declared.no_retry_for:
        settings["no_retry_for"] = class_names(declared.no_retry_for)
    if declared.resource is not None:
        settings["resource"] = declared.resource
    if declared.queue is not None:
        settings["queue"] = declared.queue
    if declared.tags:
        settings["tags"] = tuple(dict.fromkeys(declared.tags))
    return settings


def class_names(classes: tuple[type[BaseException], ...]) -> tuple[str, ...]:
    """Exception classes as a job keeps them."""
    return tuple(f"{importable_name(cls.__module__)}.{cls.__qualname__}" for cls in classes)


def _with_stream(settings: dict[str, Any], lane: Lane, breaker: str | None) -> dict[str, Any]:
    """*settings* with a stream in place of those that it consists of."""
    resource, limit_key = settings.pop("resource", None), settings.pop("limit_key", None)
    rate_key, fairness_key = settings.pop("rate_key", None), settings.pop("fairness_key", None)
    if rate_key is not None:
        resource, limit_key = _with_rate(rate_key, resource, limit_key)
    if type(fairness_key) is FairnessKey:
        fairness_key = fairness_key.line()
    queue = settings.pop("queue", None) or DEFAULT_QUEUE
    settings["stream"] = _stream(queue, lane, resource, breaker, limit_key, fairness_key)
    return settings


def _with_rate(rate_key: str, resource: str | None, limit_key: str | None) -> tuple[str | None, str | None]:
    """The two limits of a stream, one of them a rate's; they differ in name only, and each may have either place."""
    if limit_key is None:
        return resource, rate_key
    if resource is None:
        return rate_key, limit_key
    raise InvalidJob(
        f"a job passes two limits at most, and this one has the resource {resource!r}, a concurrency key and a rate key; "
        "leave one of them out, or give the resource the rate (`scheduler.limits.set_rate`)"
    )


class FairnessKey(NamedTuple):
    """A fairness key that gets several turns in a row of turns: as many lines, which take turns like keys of their own."""

    name: str
    weight: int

    def line(self) -> str:
        """The line that the next job of this key waits in. They fill evenly, so that none is empty before the others."""
        number = next(_turns) % self.weight
        return self.name if not number else f"{self.name}{LINE_MARK}{number}"

    def in_lines(self, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Jobs that were described together, each in a line of its own turn."""
        streams: dict[str, StreamKey] = {}  # one object for each, as `_stream` has it
        placed: list[JobSpec] = []
        for spec in specs:
            line = self.line()
            if line not in streams:
                streams[line] = replace(spec.stream, fairness_key=line)
            placed.append(replace(spec, stream=streams[line]))
        return placed


#: Between a fairness key and the number of its line.
LINE_MARK: Final = "\x1f"
#: The highest weight, and how much longer than its key a line's name can be.
MOST_TURNS: Final = 100
LONGEST_LINE: Final = len(LINE_MARK) + len(str(MOST_TURNS - 1))
_turns = count()


# Cached so that jobs of one stream share one object: stores look a stream up once per object.
@lru_cache(maxsize=1024)
def _stream(
    queue: str,
    lane: Lane,
    resource: str | None,
    breaker: str | None,
    limit_key: str | None,
    fairness_key: str | None,
) -> StreamKey:
    return StreamKey(
        queue=queue,
        lane=lane,
        resource=resource,
        breaker=breaker,
        limit_key=limit_key,
        fairness_key=fairness_key,
    )


# --- steps that belong together ---------------------------------------------------------------------


@dataclass(slots=True)
class Submission:
    """Everything that one ``submit()`` stores, all or none."""

    specs: list[JobSpec] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    batch: BatchSpec | None = None
    limits: dict[str, KeyLimit] = field(default_factory=dict)
    uncommitted: bool = False  # it was sent in a transaction that somebody else commits

    def add(self, other: Submission) -> None:
        """Take over what *other* would store."""
        self.specs += other.specs
        self.edges += other.edges
        self.limits |= other.limits


@dataclass(slots=True)
class Follower:
    """A step that follows another one under a condition."""

    parent: Step
    step: Step
    condition: Condition
    order: int = 0
    description: str | None = None
    type: JobType = JobType.WORKFLOW_BRANCH

    def spec(self, backend: Backend, now: datetime, *, root: UUID, caller: str | None) -> JobSpec:
        """The job that waits for the step before it."""
        return self.step.checked(backend).spec(
            self.step.identified(backend),
            now,
            status=JobStatus.WAITING,
            type=self.type,
            root_id=root,
            parent_id=self.parent.identified(backend),
            needs=1,
            caller=caller,
        )

    def edge(self, backend: Backend, position: int) -> Edge:
        """The edge to it; *position* is its number among the followers of the same step."""
        return Edge(
            parent_id=self.parent.identified(backend),
            child_id=self.step.identified(backend),
            kind=self.condition.edge,
            position=position,
            condition=self.condition.stored(backend, order=self.order, description=self.description),
        )


class Composition:
    """
    A first step with the chain and the branches that follow it.

    Due time, keys and signal are said about the whole and stored with its first job. If it is
    compiled again, after a `StoreUnavailable`, its jobs keep their ids.
    """

    __slots__ = (
        "_backend",
        "_followers",
        "_needs",
        "_parents",
        "business_key",
        "busy",
        "delay",
        "due",
        "idempotency_key",
        "signal",
        "trunk",
    )

    def __init__(
        self, backend: Backend, first: Step, parents: Sequence[UUID | Composition] = (), needs: int = 0
    ) -> None:
        self._backend = backend
        #: The jobs that the first step waits for, stored before or together with it,
        self._parents = parents
        #: and how many of them must succeed.
        self._needs = needs
        #: The first step and the chain after it.
        self.trunk = [first]
        self._followers: list[Follower] = []  # those of the chain too, in the order in which they were named
        self.delay: timedelta | None = None
        self.due: datetime | None = None
        self.idempotency_key: str | None = None
        self.business_key: str | None = None
        self.busy = Busy.RAISE
        self.signal: tuple[str, timedelta | None] | None = None

    # --- described ---

    @property
    def first(self) -> Step:
        """The step that follows no other."""
        return self.trunk[0]

    @property
    def last(self) -> Step:
        """The end of the chain: branches follow this step."""
        return self.trunk[-1]

    @property
    def steps(self) -> list[Step]:
        """All steps, in the order in which they were named."""
        return [self.first, *(follower.step for follower in self._followers)]

    @property
    def single(self) -> bool:
        """True while there is only the first step."""
        return not self._followers

    @property
    def joins(self) -> bool:
        """True if the first step waits for other jobs."""
        return bool(self._parents)

    def chain(self, step: Step) -> None:
        """Run *step* when the last one of the chain has succeeded."""
        self._followers.append(Follower(self.last, step, Condition.success(), type=JobType.CHAIN_STEP))
        self.trunk.append(step)

    def branch(self, condition: Condition, step: Step, order: int, description: str | None) -> None:
        """Run *step* when *condition* holds for the last one of the chain."""
        self._followers.append(Follower(self.last, step, condition, order, description))

    # --- compiled ---

    def compile(self, now: datetime, root: UUID | None = None) -> Submission:
        """Specs and edges, in the order in which the steps were named; *root* if it is part of a larger graph."""
        if root is None and self.single and not self._parents:
            spec = self._first_spec(now, caller=self._backend.caller())
            return Submission([spec], limits=dict(self.first.limits))
        submission = Submission()
        first = self.first.identified(self._backend)
        root = root or first
        for parent in self._parents:
            if isinstance(parent, Composition):
                submission.add(parent.compile(now, root))
        caller = self._backend.caller()
        given: dict[str, Any] = {"caller": caller}
        if not self.single or root != first:
            given["root_id"] = root
        submission.specs.append(self._first_spec(now, **given))
        for follower in self._followers:
            submission.specs.append(follower.spec(self._backend, now, root=root, caller=caller))
        for step in self.steps:
            submission.limits |= step.limits
        submission.edges += self._edges()
        return submission

    def _first_spec(self, now: datetime, **given: Any) -> JobSpec:
        first = self.first.checked(self._backend)
        job_id = self.first.identified(self._backend)
        return first.spec(job_id, now, **given, **self._terms(first, now))

    def _terms(self, first: CheckedStep, now: datetime) -> dict[str, Any]:
        """What was said about the whole: its first job has it."""
        given: dict[str, Any] = {"scheduled_at": self._due_at(now)}
        if self.idempotency_key is not None:
            given["idempotency_key"] = self.idempotency_key
        if self.business_key is not None:
            given |= {"business_key": self.business_key, "busy": self.busy}
        if len(self.trunk) > 1:
            given["type"] = JobType.CHAIN_STEP
        if self._parents:
            given |= {"type": JobType.WORKFLOW_JOIN, "status": JobStatus.WAITING, "needs": self._needs}
            return given
        first.require_no_placeholders()
        if self.signal is not None:
            key, limit = self.signal
            deadline = None if limit is None else after(now, limit, "the signal's timeout")
            given |= {"status": JobStatus.WAITING, "signal": SignalWait(key=key, deadline=deadline)}
        return given

    def _due_at(self, now: datetime) -> datetime:
        if self.due is not None:
            return self.due
        return now if self.delay is None else after(now, self.delay, "the delay")

    def _edges(self) -> list[Edge]:
        """One edge per joined job, in the order in which RESULTS lists them, then one per follower."""
        edges = [
            Edge(
                parent_id=parent if isinstance(parent, UUID) else parent.last.identified(self._backend),
                child_id=self.first.identified(self._backend),
                kind=EdgeKind.SUCCESS,
                position=position,
            )
            for position, parent in enumerate(self._parents)
        ]
        positions: dict[Step, int] = {}
        for follower in self._followers:
            position = positions[follower.parent] = positions.get(follower.parent, -1) + 1
            edges.append(follower.edge(self._backend, position))
        return edges
