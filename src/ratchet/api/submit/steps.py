"""One job while it is being described, and how it becomes a `JobSpec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from types import FunctionType
from typing import Any, Final, NamedTuple
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import after
from ratchet.api.submit.call import Call
from ratchet.api.submit.capture import capture, is_lambda
from ratchet.api.targets import JobDeclaration, declaration_of
from ratchet.api.targets.breakers import breaker_of
from ratchet.model.errors import InvalidJob
from ratchet.model.job import DEFAULT_QUEUE, JobSpec, StreamKey
from ratchet.model.payload import ParameterTypes, encode, encode_value, placeholders_in
from ratchet.model.status import BackoffPolicy, Lane, Priority
from ratchet.spi.invocation_resolver import StoredCall

_UNDECLARED: Final = JobDeclaration(name="-")
#: Every placeholder is stored under this tag.
PLACEHOLDER: Final = '"$"'


class Step:
    """
    A target, its arguments, and what was said about the job they will become.

    ``given`` holds only what was said; the rest comes from ``@scheduler.job``, which may not be
    known before a lambda is taken apart at submit.
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
        self.limits: dict[str, int] = {}  # concurrency keys and how many may run at once

    @property
    def label(self) -> str:
        """What messages call it."""
        return str(getattr(self.target, "__qualname__", None) or repr(self.target))

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function to store and its arguments; a lambda's variables are read now."""
        if is_lambda(self.target) and not self.args and not self.kwargs:
            found = capture(self.target)
            return found.function, found.args, found.kwargs
        return self.target, self.args, self.kwargs

    def identified(self, backend: Backend) -> UUID:
        """The id of the job that this step becomes."""
        if self.job_id is None:
            self.job_id = backend.ids()
        return self.job_id

    def prepare(self, backend: Backend) -> Prepared:
        """Everything that needs the target: checked, named, encoded."""
        function, args, kwargs = self.call()
        stored = backend.targets.describe(function, args, kwargs)
        return Prepared(
            backend,
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
        if not (self.given or self.tags or self.params):
            return dict(plain_of(function, lane).settings)
        declared = declaration_of(function) or _UNDECLARED
        settings = dict(_declared_settings(declared))
        settings.update(self.given)
        tags = (*declared.tags, *self.tags)
        if tags:
            settings["tags"] = tuple(dict.fromkeys(tags))
        if self.params:
            settings["params"] = encode_value(self.params, name="params", limit=backend.options.payload_limit)
        for callback, arguments in (("on_success", (None,)), ("on_failure", (None, None))):
            if (listener := settings.get(callback)) is not None:
                settings[callback] = backend.targets.describe(listener, arguments, {}).target
        _settle_stream(settings, lane, breaker_of(function))
        return settings


class Prepared:
    """A step that was checked and named; what is left are ids and times."""

    __slots__ = ("_settings", "backend", "expiry", "payload", "stored")

    def __init__(
        self, backend: Backend, *, stored: StoredCall, payload: str, settings: dict[str, Any]
    ) -> None:
        self.backend = backend
        self.stored = stored
        self.payload = payload
        self.expiry = settings.pop("expiry", None)
        self._settings = settings

    def require_no_placeholders(self) -> None:
        """Refuse RESULT and RESULTS in a job that follows no other."""
        if PLACEHOLDER in self.payload:
            require_no_placeholders(self.stored.target, (self.stored.args, dict(self.stored.kwargs)))

    def spec(self, job_id: UUID, now: datetime, **given: Any) -> JobSpec:
        """The finished spec; *given* adds the job's place in its graph."""
        given.setdefault("scheduled_at", now)
        if self.expiry is not None:
            given["expires_at"] = after(now, self.expiry, "the expiry")
        return JobSpec(
            job_id=job_id, target=self.stored.target, payload=self.payload, **self._settings, **given
        )


def plain_spec(
    backend: Backend, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], now: datetime
) -> JobSpec:
    """What a step with nothing but a call becomes, in one go; *function* is no lambda."""
    stored = backend.targets.describe(function, args, kwargs)
    plain = plain_of(function, stored.lane)
    payload = encode(
        stored.args,
        stored.kwargs,
        limit=backend.options.payload_limit,
        types=plain.types,
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
        **plain.settings,
    )


def require_no_placeholders(target: str, arguments: object) -> None:
    """Refuse RESULT and RESULTS among the arguments of a job that follows no other."""
    for placeholder in placeholders_in(arguments):
        raise InvalidJob(
            f"{placeholder} stands for {placeholder.stands_for}, but {target} is the first job here and follows "
            f"none; use it in .then(...), a branch or a join"
        )


@lru_cache(maxsize=1024)
def _types_of(function: Callable[..., Any]) -> ParameterTypes:
    try:
        return ParameterTypes.of(function)
    except (TypeError, ValueError, NameError):
        return ParameterTypes()


def parameter_types(function: Any) -> ParameterTypes:
    """
    What *function*'s annotations mention.

    Only which classes they name matters at submit, so it is no harm that a method's first
    parameter is counted here.
    """
    return _types_of(getattr(function, "__func__", function))


class Plain(NamedTuple):
    """What is the same for all jobs of a target about which only its declaration says anything."""

    declared: JobDeclaration | None
    breaker: str | None
    lane: Lane
    settings: Mapping[str, Any]
    types: ParameterTypes


_PLAIN: dict[FunctionType, Plain] = {}
_MOST_PLAIN = 4096


def plain_of(target: Any, lane: Lane) -> Plain:
    """What holds for all jobs of *target* in this lane; found out once for each function."""
    declared, breaker = declaration_of(target), breaker_of(target)
    if type(target) is not FunctionType:
        return _found_plain(target, declared, breaker, lane)
    known = _PLAIN.get(target)
    if known is None or known.declared is not declared or known.breaker != breaker or known.lane is not lane:
        if len(_PLAIN) >= _MOST_PLAIN:
            _PLAIN.clear()
        known = _PLAIN[target] = _found_plain(target, declared, breaker, lane)
    return known


def _found_plain(target: Any, declared: JobDeclaration | None, breaker: str | None, lane: Lane) -> Plain:
    settings = dict(_declared_settings(declared or _UNDECLARED))
    if declared is not None and declared.tags:
        settings["tags"] = tuple(dict.fromkeys(declared.tags))
    _settle_stream(settings, lane, breaker)
    return Plain(declared, breaker, lane, settings, parameter_types(target))


def _settle_stream(settings: dict[str, Any], lane: Lane, breaker: str | None) -> None:
    """Put the stream in place of the settings that it is made of."""
    settings["stream"] = _stream(
        settings.pop("queue", None) or DEFAULT_QUEUE,
        lane,
        settings.pop("resource", None),
        breaker,
        settings.pop("limit_key", None),
        settings.pop("fairness_key", None),
    )


@lru_cache(maxsize=1024)
def _declared_settings(declared: JobDeclaration) -> Mapping[str, Any]:
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
    return settings


def class_names(classes: tuple[type[BaseException], ...]) -> tuple[str, ...]:
    """Exception classes as a job keeps them."""
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in classes)


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
