"""`DeclaringVerbs`: the decorators, with which a module declares jobs, schedules, listeners and middleware."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, overload

from ratchet.api.listeners import as_middleware, checked_event, checked_listener
from ratchet.api.recurring import FIRE_ONCE, Misfire, Overlap, Recurrence, RunOptions, Timing
from ratchet.api.targets import declaration_of
from ratchet.api.targets.declarations import Declaration, DeclaredJob, JobDecorator
from ratchet.model.durations import Duration
from ratchet.model.events import Event
from ratchet.model.status import BackoffPolicy, Lane, Priority
from ratchet.scheduler.core import Core
from ratchet.scheduler.importing import discover
from ratchet.spi.meters import Meters
from ratchet.spi.tracer import Tracer

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Callable[..., Any])


class DeclaringVerbs:
    """Decorators: jobs, timetables, listeners and middleware. Nothing is stored or opened by them."""

    _core: Core

    @overload
    def job(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredJob[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> DeclaredJob[P, R, R]: ...
    @overload
    def job(
        self,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        max_retries: int = 0,
        backoff: BackoffPolicy = BackoffPolicy.NONE,
        backoff_base: Duration = 0,
        jitter: float = 0.0,
        timeout: Duration | None = None,
        priority: Priority = Priority.NORMAL,
        tags: Sequence[str] = (),
        resource: str | None = None,
        no_retry_for: tuple[type[BaseException], ...] = (),
        lane: Lane | str | None = None,
        queue: str | None = None,
        masked: Sequence[str] = (),
    ) -> JobDecorator: ...
    def job(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        max_retries: int = 0,
        backoff: BackoffPolicy = BackoffPolicy.NONE,
        backoff_base: Duration = 0,
        jitter: float = 0.0,
        timeout: Duration | None = None,
        priority: Priority = Priority.NORMAL,
        tags: Sequence[str] = (),
        resource: str | None = None,
        no_retry_for: tuple[type[BaseException], ...] = (),
        lane: Lane | str | None = None,
        queue: str | None = None,
        masked: Sequence[str] = (),
    ) -> Any:
        """
        Declare a function as a job: allow it, name it for good, and set the defaults of its jobs.

        The same function comes back, with ``.enqueue(...)`` and ``.options``. *name* and *aliases*
        let it be renamed while jobs wait; ``lane="process"`` is for CPU-bound work. *masked* names parameters, and
        paths into them (``customer.card``), that people do not see: ``•••`` stands there.
        """
        declaration: Declaration[Any] = Declaration(
            name=name,
            aliases=aliases,
            max_retries=max_retries,
            backoff=backoff,
            backoff_base=backoff_base,
            jitter=jitter,
            timeout=timeout,
            priority=priority,
            tags=tags,
            resource=resource,
            no_retry_for=no_retry_for,
            lane=lane,
            queue=queue,
            masked=masked,
        )

        def declare(target: Any) -> Any:
            return declaration.apply(target, self._core.parts.registry, self._core)

        if function is None:
            return declare
        return declaration.apply(function, self._core.parts.registry, self._core)

    def discover(self, package: str) -> list[str]:
        """
        Import every module named ``jobs`` in *package* and in the packages below it; their names.

        Call it where the scheduler is made, after it: what these modules declare is then known wherever that is.
        """
        return discover(package)

    def recurring(
        self,
        expression: str | timedelta,
        *args: Any,
        name: str | None = None,
        zone: str = "UTC",
        misfire: Misfire = FIRE_ONCE,
        overlap: Overlap = Overlap.SKIP,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        jitter: Duration = 0,
        priority: Priority | None = None,
        tags: Sequence[str] = (),
        queue: str | None = None,
        max_retries: int | None = None,
        timeout: Duration | None = None,
        business_key: str | None = None,
        **kwargs: Any,
    ) -> Callable[[F], F]:
        """
        Declare that a function runs by a timetable; the schedule is stored at ``start()``.

        *args* and *kwargs* are the arguments of each run. See `schedule_recurring`.
        """
        options = RunOptions(
            priority=priority,
            tags=tags,
            queue=queue,
            max_retries=max_retries,
            timeout=timeout,
            business_key=business_key,
        )
        timing = Timing.of(
            expression,
            zone=zone,
            misfire=misfire,
            overlap=overlap,
            starts_at=starts_at,
            ends_at=ends_at,
            jitter=jitter,
        )

        def declare(function: F) -> F:
            declared = declaration_of(function)
            if declared is None:
                self.job(function)
            elif not self._core.parts.registry.declares(function):
                # It is to run here as well, with the options that another scheduler was told; it stays that one's.
                self._core.parts.registry.declare(function, declared)
            step = options.step(function, args, kwargs)
            self._core.recurrences.append(Recurrence(name, timing, step, declared=True))
            return function

        return declare

    def on(self, event: type[E], *more: type[Event]) -> Callable[[F], F]:
        """Call the decorated function for every event of this kind (`JobEvent`: for all of jobs), in this process."""
        kinds = [checked_event(kind) for kind in (event, *more)]

        def listen(listener: F) -> F:
            for kind in kinds:
                self._core.bus.subscribe(kind, checked_listener(listener))
            return listener

        return listen

    def add_meters(self, meters: Meters) -> None:
        """Send the measurements of nodes that start from now on to *meters* too."""
        self._core.meters.append(meters)

    def add_tracer(self, tracer: Tracer) -> None:
        """Let *tracer* follow too what is submitted from now on, and the runs of nodes that start from now on."""
        self._core.add_tracer(tracer)

    def off(self, listener: Callable[..., object]) -> bool:
        """Call *listener* no more, whatever it was listening for; False if it was not listening."""
        return self._core.bus.unsubscribe(checked_listener(listener))

    def around(self, function: F) -> F:
        """Run each job inside this context manager: ``def session(ctx): ...; yield; ...``. The first one is outermost."""
        self._core.middleware.append(as_middleware(function))
        return function
