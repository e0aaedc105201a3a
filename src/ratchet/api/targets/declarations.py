"""``@scheduler.job``: the same function, with a stable name, defaults, and ``.enqueue``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from ratchet.api.backend import Backend
from ratchet.api.checks import (
    count_of,
    exceptions_of,
    member_of,
    priority_of,
    queue_of,
    resource_of,
    tags_of,
    text_of,
)
from ratchet.api.submit.builders import JobBuilder, backoff_settings
from ratchet.api.targets import NAME_LIMIT, JobDeclaration, default_name
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import DeclaredTwiceWarning, InvalidJob
from ratchet.model.masking import checked_paths, require_parameters
from ratchet.model.status import BackoffPolicy, Lane, Priority

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class DeclaredJob(Protocol[P, R_co, T]):
    """A function that was declared as a job: still that function, with two attributes more."""

    __name__: str
    __qualname__: str
    __module__: str

    #: What the declaration says.
    options: JobDeclaration

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and now."""
        ...

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobBuilder[T]:
        """A builder for one job of this function; nothing is stored before its ``submit()``."""
        ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: DeclaredJob[Concatenate[Any, Q], R_co, T], instance: object, owner: type | None = None, /
    ) -> DeclaredJob[Q, R_co, T]: ...


class JobDecorator(Protocol):
    """What ``@scheduler.job(...)`` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DeclaredJob[P, R, R]: ...


class Declarer(Protocol):
    """Whoever keeps declarations (the target registry)."""

    def declare(self, function: Callable[..., Any], declaration: JobDeclaration) -> bool:
        """Make *function* known under its declared name and aliases; False if it belongs to another scheduler."""
        ...


class Declaration(Generic[R]):
    """The arguments of ``@scheduler.job``, checked once, for whatever function they are put on."""

    def __init__(
        self,
        *,
        name: str | None,
        aliases: Sequence[str],
        max_retries: int,
        backoff: BackoffPolicy,
        backoff_base: Duration,
        jitter: float,
        timeout: Duration | None,
        priority: Priority,
        tags: Sequence[str],
        resource: str | None,
        no_retry_for: tuple[type[BaseException], ...],
        lane: Lane | str | None,
        queue: str | None,
        masked: Sequence[str] = (),
    ) -> None:
        self._name = None if name is None else text_of(name, "a job's name", limit=NAME_LIMIT)
        if isinstance(aliases, str):
            raise InvalidJob(f"aliases is a list of names; write aliases=[{aliases!r}]")
        self._settings: dict[str, Any] = {
            "aliases": tuple(text_of(alias, "an alias", limit=NAME_LIMIT) for alias in aliases),
            "max_retries": count_of(max_retries, "max_retries"),
            **backoff_settings(backoff, backoff_base, jitter),
            "timeout": None if timeout is None else to_timedelta(timeout, "the timeout", zero=False),
            "priority": priority_of(priority),
            "tags": tags_of(tags),
            "resource": None if resource is None else resource_of(resource),
            "no_retry_for": exceptions_of(no_retry_for, "no_retry_for"),
            "lane": None if lane is None else member_of(Lane, lane, "a lane"),
            "queue": None if queue is None else queue_of(queue),
            "masked": checked_paths(masked, "masked"),
        }

    def apply(self, function: Any, declarer: Declarer, backend: Backend) -> Any:
        """Declare *function* and attach ``enqueue`` and ``options`` to it; the same object comes back."""
        if isinstance(function, classmethod | staticmethod):
            kind = type(function).__name__
            raise InvalidJob(f"put @scheduler.job below @{kind}, directly above the function")
        if not callable(function) or not hasattr(function, "__qualname__") or isinstance(function, type):
            raise InvalidJob(f"@scheduler.job goes on a function, not on {function!r}")
        require_parameters(function, self._settings["masked"])
        declaration = JobDeclaration(name=self._name or default_name(function), **self._settings)
        if not declarer.declare(function, declaration):
            warnings.warn(
                f"{declaration.name} belongs to the scheduler that declared it first: its .enqueue() and .options stay "
                f"those of that one. To submit it here, write scheduler.enqueue({function.__name__}, …)",
                DeclaredTwiceWarning,
                stacklevel=3,
            )
            return function

        def enqueue(*args: Any, **kwargs: Any) -> JobBuilder[Any]:
            return JobBuilder(backend, function, args, kwargs)

        enqueue.__doc__ = DeclaredJob.enqueue.__doc__
        function.enqueue = enqueue
        function.options = declaration
        return function
