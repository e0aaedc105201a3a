"""`Scheduler`: what user code imports, and all it needs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.batches import BatchBuilder, StreamingBatchBuilder
from ratchet.api.builders import GraphDraft, JobBuilder
from ratchet.api.bulk import submit_together
from ratchet.api.checks import id_of
from ratchet.api.controls import Controls
from ratchet.api.declarations import Declaration, DeclaredJob, JobDecorator
from ratchet.api.handles import JobHandle
from ratchet.api.health import Health, health_of
from ratchet.api.immediate import submit_now
from ratchet.api.joins import Join, JoinBuilder
from ratchet.api.listeners import as_middleware, checked_event, checked_listener
from ratchet.api.queries import Batches, Breakers, DeadLetters, Jobs, Limits, Nodes, Queues, Schedules
from ratchet.api.reasons import Reason
from ratchet.api.recurring import FIRE_ONCE, Misfire, Overlap, Recurrence, Schedule, Timing
from ratchet.api.steps import Step
from ratchet.api.submission import send_many
from ratchet.api.targets import declaration_of
from ratchet.config import resolve_allow, resolve_options, resolve_url
from ratchet.model.clock import Clock
from ratchet.model.durations import Duration
from ratchet.model.errors import InvalidJob
from ratchet.model.events import Event, JobDeadLettered
from ratchet.model.job import JobFilter
from ratchet.model.options import Options
from ratchet.model.status import BackoffPolicy, Lane, Priority
from ratchet.scheduler.core import Core
from ratchet.scheduler.parts import Parts, Replacements
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.lifecycle_hook import LifecycleHook
from ratchet.spi.polling_strategy import PollingStrategy
from ratchet.spi.principal_provider import PrincipalProvider
from ratchet.spi.resilience import ResilienceStrategy
from ratchet.spi.retry_policy import RetryPolicy
from ratchet.spi.store import JobStore
from ratchet.spi.target_policy import TargetPolicy

if TYPE_CHECKING:
    from ratchet.aio import AsyncScheduler

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Callable[..., Any])


class Scheduler:
    """
    Submits jobs, asks about them, and runs them while it is started.

    It submits and queries whether or not it runs. Nothing is opened before the first use, so a
    module that declares jobs costs nothing to import.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        allow: Iterable[str] | None = None,
        options: Options | None = None,
        store: JobStore | None = None,
        retry_policy: RetryPolicy | None = None,
        error_sanitizer: ErrorSanitizer | None = None,
        target_policy: TargetPolicy | None = None,
        instance_resolver: InstanceResolver | None = None,
        invocation_resolver: InvocationResolver | None = None,
        executor_provider: ExecutorProvider | None = None,
        cluster_coordinator: ClusterCoordinator | None = None,
        resilience: ResilienceStrategy | None = None,
        polling_strategy: PollingStrategy | None = None,
        principal_provider: PrincipalProvider | None = None,
        lifecycle_hooks: Sequence[LifecycleHook] = (),
        clock: Clock | None = None,
        alert: Callable[[JobDeadLettered], None] | None = None,
    ) -> None:
        if url is not None and store is not None:
            raise InvalidJob("a scheduler has one store: pass a URL or a store, not both")
        replacements = Replacements(
            retry_policy=retry_policy,
            error_sanitizer=error_sanitizer,
            target_policy=target_policy,
            instance_resolver=instance_resolver,
            invocation_resolver=invocation_resolver,
            executor_provider=executor_provider,
            cluster_coordinator=cluster_coordinator,
            resilience=resilience,
            polling_strategy=polling_strategy,
            principal_provider=principal_provider,
            lifecycle_hooks=lifecycle_hooks,
            clock=clock,
        )
        settings = resolve_options(options)
        self._core = self._make_core(
            store if store is not None else resolve_url(url),
            settings,
            Parts(replacements, resolve_allow(allow) if target_policy is None else allow or (), settings),
            clock,
            alert,
        )
        self._controls = Controls(self._core)

    def _make_core(
        self,
        store: JobStore | str,
        options: Options,
        parts: Parts,
        clock: Clock | None,
        alert: Callable[[JobDeadLettered], None] | None,
    ) -> Core:
        if isinstance(store, str):
            from ratchet.stores import open_store

            opened = open_store(store, options)
        else:
            opened = store
        url = store if isinstance(store, str) else None
        return Core(
            open_store=lambda: opened, options=options, parts=parts, clock=clock, alert=alert, url=url
        )

    @property
    def backend(self) -> Backend:
        """What builders and handles of this scheduler work with."""
        return self._core

    @property
    def store(self) -> JobStore:
        """The store; opened, and its schema checked, when it is first used."""
        return self._core.store

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._core.options

    # --- declare ---

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
    ) -> Any:
        """
        Declare a function as a job: allow it, name it for good, and set the defaults of its jobs.

        The same function comes back, with ``.enqueue(...)`` and ``.options``. *name* and *aliases*
        let it be renamed while jobs wait; ``lane="process"`` is for CPU-bound work.
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
        )

        def declare(target: Any) -> Any:
            return declaration.apply(target, self._core.parts.registry, self._core)

        return declare if function is None else declare(function)

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
        **kwargs: Any,
    ) -> Callable[[F], F]:
        """
        Declare that a function runs by a timetable; the schedule is stored at ``start()``.

        *args* and *kwargs* are the arguments of each run. See `schedule_recurring`.
        """
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
            if declaration_of(function) is None:
                self.job(function)
            step = Step(function, args, kwargs)
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

    def around(self, function: F) -> F:
        """Run each job inside this context manager: ``def session(ctx): ...; yield; ...``. The first one is outermost."""
        self._core.middleware.append(as_middleware(function))
        return function

    # --- submit ---

    @overload
    def enqueue(
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def enqueue(self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobBuilder[R]: ...
    @overload
    def enqueue(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    def enqueue(self, target: Any, /, *args: Any, **kwargs: Any) -> JobBuilder[Any]:
        """
        A builder for a job that calls ``target(*args, **kwargs)``; nothing is stored before ``submit()``.

        *target*: an importable function, a method (its instance comes from the `InstanceResolver`),
        ``call(...)``, or a lambda that is one call.
        """
        return JobBuilder(self._core, target, args, kwargs)

    @overload
    def enqueue_now(
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    def enqueue_now(self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
    @overload
    def enqueue_now(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    def enqueue_now(self, target: Any, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Store a job that is due at once, and return its handle."""
        return submit_now(self._core, target, args, kwargs)

    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobBuilder[R]: ...
    @overload
    def schedule(
        self, when: Duration | datetime, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobBuilder[R]: ...
    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[Concatenate[Any, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> JobBuilder[R]: ...
    def schedule(
        self, when: Duration | datetime, target: Any, /, *args: Any, **kwargs: Any
    ) -> JobBuilder[Any]:
        """A builder for a job that is due after a delay, or at a time."""
        builder: JobBuilder[Any] = JobBuilder(self._core, target, args, kwargs)
        return builder.at(when) if isinstance(when, datetime) else builder.with_delay(when)

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
        return [JobHandle(self._core, spec.job_id, target=spec.target) for spec in specs]

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

    def schedule_recurring(
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
        **kwargs: Any,
    ) -> Schedule:
        """
        Run *target* by a timetable: cron with five fields, six with seconds first, or an interval.

        The same *name* (else the target's) changes the schedule that is there. A *zone* decides what a
        cron time means. Arguments named like the keywords here go into ``call(target, ...)``.
        """
        timing = Timing.of(
            expression,
            zone=zone,
            misfire=misfire,
            overlap=overlap,
            starts_at=starts_at,
            ends_at=ends_at,
            jitter=jitter,
        )
        return Recurrence(name, timing, Step(target, args, kwargs)).store(self._core)

    def signal(
        self,
        key: str,
        payload: Any = None,
        *,
        job_id: UUID | str | None = None,
        rejected: str | None = None,
    ) -> int:
        """
        Release the jobs that wait for *key* (only *job_id*, if given); how many.

        *rejected* is a reason to say no: the job runs and sees ``ctx.signal.approved`` as False. A signal
        that released nobody is kept for a while, for the first job that waits for it.
        """
        return self._controls.signal(key, payload, job_id=job_id, rejected=rejected)

    # --- control ---

    def handle(self, job_id: UUID | str) -> JobHandle[Any]:
        """A handle made from an id; whether there is such a job is found out when it is asked."""
        return JobHandle(self._core, id_of(job_id))

    def cancel_job(self, job_id: UUID | str, *, reason: str = "requested") -> bool:
        """Cancel a job and what waits for it, also while it runs; False if it has ended."""
        return self._controls.cancel(job_id, reason)

    def pause_job(self, job_id: UUID | str) -> bool:
        """Take a PENDING or FAILED job out of the queue; True also if it was paused, else False."""
        return self._controls.pause(job_id)

    def resume_job(self, job_id: UUID | str) -> bool:
        """Put a paused job back to where it was; False if it was not paused."""
        return self._controls.resume(job_id)

    def retry_job(self, job_id: UUID | str) -> bool:
        """Run a FAILED job again, with all its attempts; False if it is in another state."""
        return self._controls.retry(job_id)

    def retry_jobs(self, where: JobFilter, *, limit: int | None = None) -> int:
        """Run matching FAILED jobs again, oldest first; how many. An empty filter is refused."""
        return self._controls.retry_matching(where, limit)

    def cancel_jobs(self, where: JobFilter, *, limit: int | None = None) -> int:
        """Cancel matching jobs and what waits for them, oldest first; how many. An empty filter is refused."""
        return self._controls.cancel_matching(where, limit)

    def reschedule_job(self, job_id: UUID | str, at: datetime | Duration) -> bool:
        """Move the due time of a job that has not started (a duration counts from now); False otherwise."""
        return self._controls.reschedule(job_id, at)

    def replace(
        self,
        job_id: UUID | str,
        target: Callable[..., Any],
        /,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: Any,
    ) -> JobHandle[Any] | None:
        """
        Cancel a job that has not started and store another in its place, atomically.

        The old job is CANCELED with ``superseded_by`` set, its business key passes on. None: it had
        started or ended, and nothing was changed.
        """
        if delay is not None and at is not None:
            raise InvalidJob("say when the new job is due with delay or with at, not with both")
        spec = self._controls.replace(job_id, Step(target, args, kwargs), at if at is not None else delay)
        return None if spec is None else JobHandle(self._core, spec.job_id, target=spec.target)

    def explain(self, job_id: UUID | str) -> list[Reason]:
        """Why a job is not running; empty when it would be claimed now."""
        return self._controls.explain(job_id)

    # --- query ---

    @cached_property
    def jobs(self) -> Jobs:
        """Reads jobs."""
        return Jobs(self._core)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Reads jobs that failed for good."""
        return DeadLetters(self._core)

    @cached_property
    def nodes(self) -> Nodes:
        """Shows the nodes of the cluster, and forgets those that are gone."""
        return Nodes(self._core)

    @cached_property
    def queues(self) -> Queues:
        """Shows queues, and closes and opens them."""
        return Queues(self._core)

    @cached_property
    def limits(self) -> Limits:
        """Says how many jobs of a resource may run at once, or start per period."""
        return Limits(self._core)

    @cached_property
    def breakers(self) -> Breakers:
        """Shows circuit breakers, and moves them by hand."""
        return Breakers(self._core)

    @cached_property
    def schedules(self) -> Schedules:
        """Finds schedules."""
        return Schedules(self._core)

    @cached_property
    def batches(self) -> Batches:
        """Finds batches."""
        return Batches(self._core)

    @cached_property
    def aio(self) -> AsyncScheduler:
        """The same verbs, awaitable."""
        from ratchet.aio import AsyncScheduler

        return AsyncScheduler(self)

    def health(self) -> Health:
        """Whether the store answers and jobs are being run; never raises because of the store."""
        return health_of(self._core)

    # --- run ---

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied."""
        return self._core.migrate()

    @property
    def running(self) -> bool:
        """True while this process is a node."""
        return self._core.running

    def start(self) -> None:
        """Become a node: run jobs on threads in the background, until ``stop()``."""
        self._core.start()

    def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """
        Stop running jobs; True if every run has ended. Idempotent; pending events are delivered first.

        With *drain* running jobs get *timeout* (`Options.drain_timeout`) to finish; what has not
        finished is interrupted and handed back, which costs it no attempt.
        """
        return self._core.stop(drain=drain, timeout=timeout)

    def run(self) -> bool:
        """Run jobs in the foreground until SIGTERM or SIGINT, then drain; True if every run has ended."""
        from ratchet.scheduler.foreground import Foreground

        return Foreground(self._core).run()

    def close(self) -> None:
        """Stop, and free every connection; the next use opens them again."""
        self._core.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Scheduler({self._core.raw_store.name}{', running' if self.running else ''})"
