"""`SubmittingVerbs`: the verbs that store one job, many jobs, or a schedule."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from ratchet.api.batches.builders import BatchBuilder, StreamingBatchBuilder
from ratchet.api.observe.handles import JobHandle
from ratchet.api.recurring import (
    FIRE_ONCE,
    Misfire,
    Overlap,
    Recurrence,
    RunOptions,
    Schedule,
    ScheduleOptions,
    Timing,
)
from ratchet.api.submit.builders import GraphDraft, JobBuilder
from ratchet.api.submit.bulk import send_many, submit_together
from ratchet.api.submit.forms import ArgumentMissing, PlainT
from ratchet.api.submit.immediate import submit_now
from ratchet.api.submit.joins import Join, JoinBuilder
from ratchet.api.submit.sending import joined_transaction
from ratchet.api.submit.steps import Step
from ratchet.model.durations import Duration
from ratchet.model.status import Priority
from ratchet.scheduler.core import Core

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class SubmittingVerbs:
    """Verbs that make jobs: now, later, many together, or by a timetable."""

    _core: Core

    @overload
    def enqueue(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def enqueue(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def enqueue(
        self, target: Callable[Concatenate[PlainT, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def enqueue(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    def enqueue(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> JobBuilder[Any]:
        """
        A builder for a job that calls ``target(*args, **kwargs)``; nothing is stored before ``submit()``.

        *target*: an importable function, a method (its instance comes from the `InstanceResolver`),
        ``call(...)``, or a lambda that is one call.
        """
        return JobBuilder(self._core, target, args, kwargs)

    def enqueue_by_name(self, name: str, /, *args: Any, **kwargs: Any) -> JobBuilder[Any]:
        """
        A builder for a job of ``module:function``, or of a declared name, that need not be importable here.

        Nothing is imported. The name must be declared here or allowed by the target policy. Arguments are
        checked by the worker; the defaults of a declaration that is not known here do not apply.
        """
        return JobBuilder(self._core, self._core.parts.registry.named(name), args, kwargs)

    @overload
    def enqueue_now(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    def enqueue_now(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    def enqueue_now(
        self, target: Callable[Concatenate[PlainT, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ArgumentMissing: ...
    @overload
    def enqueue_now(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    def enqueue_now(  # type: ignore[misc]  # one form is an error for type checkers only
        self, target: Any, /, *args: Any, **kwargs: Any
    ) -> JobHandle[Any]:
        """Store a job that is due at once, and return its handle."""
        return submit_now(self._core, target, args, kwargs)

    @overload
    def schedule(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        when: Duration | datetime,
        target: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobBuilder[R]: ...
    @overload
    def schedule(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self, when: Duration | datetime, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[Concatenate[PlainT, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ArgumentMissing: ...
    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[Concatenate[Any, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobBuilder[R]: ...
    def schedule(  # type: ignore[misc]  # one form is an error for type checkers only
        self, when: Duration | datetime, target: Any, /, *args: Any, **kwargs: Any
    ) -> JobBuilder[Any]:
        """A builder for a job that is due after a delay, or at a time."""
        builder: JobBuilder[Any] = JobBuilder(self._core, target, args, kwargs)
        return builder.at(when) if isinstance(when, datetime) else builder.with_delay(when)

    @overload
    def enqueue_many(
        self,
        target: Callable[..., Coroutine[Any, Any, R]],
        arguments: Iterable[Sequence[Any]],
        *,
        within: object | None = None,
    ) -> list[JobHandle[R]]: ...
    @overload
    def enqueue_many(
        self,
        target: Callable[..., R],
        arguments: Iterable[Sequence[Any]],
        *,
        within: object | None = None,
    ) -> list[JobHandle[R]]: ...
    def enqueue_many(
        self,
        target: Callable[..., Any],
        arguments: Iterable[Sequence[Any]],
        *,
        within: object | None = None,
    ) -> list[JobHandle[Any]]:
        """
        Store one job of *target* per tuple of arguments, a thousand or more per transaction; their handles, in order.

        All are checked before the first is stored.
        """
        specs = send_many(self._core, Step(target, (), {}), arguments, within=within)
        joined = joined_transaction(self._core, within) is not None
        return [JobHandle(self._core, spec.job_id, target=spec.target, uncommitted=joined) for spec in specs]

    def submit_all(
        self, builders: Iterable[GraphDraft[Any]], *, within: object | None = None
    ) -> list[JobHandle[Any]]:
        """Submit many builders, about a thousand jobs per round trip; their handles, in order."""
        return submit_together(self._core, builders, within=within)

    def join(self, jobs: Iterable[Any], join: Join = Join.ALL) -> JoinBuilder:
        """Wait for several jobs (handles, ids or builders); ``.then(...)`` names the job that waits."""
        return JoinBuilder(self._core, jobs, join)

    def enqueue_batch(self, name: str) -> BatchBuilder:
        """A builder for a batch: one job per item, counted together."""
        return BatchBuilder(self._core, name)

    def streaming_batch(self, name: str) -> StreamingBatchBuilder:
        """A builder for a batch whose items are read while the first already run."""
        return StreamingBatchBuilder(self._core, name)

    @overload
    def schedule_recurring(
        self,
        expression: str | timedelta,
        target: Callable[[], Any],
        /,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule: ...
    @overload
    def schedule_recurring(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        expression: str | timedelta,
        target: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule: ...
    @overload
    def schedule_recurring(  # type: ignore[overload-overlap]  # a call that fits this one needs no other
        self,
        expression: str | timedelta,
        target: Callable[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Schedule: ...
    @overload
    def schedule_recurring(
        self,
        expression: str | timedelta,
        target: Callable[[PlainT, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[ScheduleOptions],
    ) -> ArgumentMissing: ...
    @overload
    def schedule_recurring(
        self,
        expression: str | timedelta,
        target: Callable[[Any, *Ts], Any],
        /,
        *args: *Ts,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule: ...
    def schedule_recurring(  # type: ignore[misc]  # what is no option is an argument of the target
        self,
        expression: str | timedelta,
        target: Callable[..., Any],
        /,
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
        within: object | None = None,
        **kwargs: Any,
    ) -> Schedule:
        """
        Run *target* by a timetable: a cron expression, or an interval.

        The same *name* (else the target's) changes the schedule that is there. A *zone* decides what a
        cron time means. From *priority* to *business_key*, the keywords say what each run is like, where that differs from
        what the target declares; while a run holds the *business_key*, fire times are skipped. With *within*, the
        schedule is stored when your transaction commits. Arguments named like the keywords here go into
        ``call(target, ...)``.
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
        return Recurrence(name, timing, options.step(target, args, kwargs)).store(self._core, within)
