"""`Scheduler`: what user code imports, and all it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ratchet.api.authorization import require
from ratchet.api.backend import Backend
from ratchet.api.checks import member_of, text_of
from ratchet.api.controls import Controls
from ratchet.api.event_loops import on_event_loop, refuse_on_event_loop, warn_on_event_loop
from ratchet.api.observe.audit import Audit
from ratchet.api.observe.health import Health, health_of
from ratchet.api.observe.nodes import Nodes
from ratchet.api.observe.queries import Batches, Breakers, DeadLetters, Jobs, Limits, Queues, Schedules
from ratchet.config import named_url, resolve_allow, resolve_options, resolve_url
from ratchet.model.audit import NAME_LIMIT, AuditSource
from ratchet.model.clock import Clock
from ratchet.model.durations import Duration
from ratchet.model.errors import InvalidJob
from ratchet.model.events import JobDeadLettered
from ratchet.model.masking import MaskingRule
from ratchet.model.options import Options
from ratchet.model.permissions import Permission
from ratchet.model.quotas import Quota
from ratchet.scheduler.controlling import ControlVerbs
from ratchet.scheduler.core import Core
from ratchet.scheduler.declaring import DeclaringVerbs
from ratchet.scheduler.parts import Parts, Replacements
from ratchet.scheduler.submitting import SubmittingVerbs
from ratchet.spi.authorizer import Authorizer
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.error_sanitizer import ErrorSanitizer
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.lifecycle_hook import LifecycleHook
from ratchet.spi.meters import Meters
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.polling_strategy import PollingStrategy
from ratchet.spi.principal_provider import PrincipalProvider
from ratchet.spi.resilience import ResilienceStrategy
from ratchet.spi.retry_policy import RetryPolicy
from ratchet.spi.store import JobStore
from ratchet.spi.target_policy import TargetPolicy
from ratchet.spi.tracer import Tracer

if TYPE_CHECKING:
    from ratchet.aio import AsyncScheduler
    from ratchet.api.storage import Storage


class Views:
    """Jobs, dead letters, nodes, queues, limits, breakers, schedules and batches, as the store has them."""

    _core: Core

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
    def audit(self) -> Audit:
        """Reads the audit log: who changed what."""
        return Audit(self._core)

    @cached_property
    def batches(self) -> Batches:
        """Finds batches."""
        return Batches(self._core)

    @cached_property
    def storage(self) -> Storage:
        """Shows how large the store is, and moves or deletes what has been kept long enough."""
        from ratchet.api.storage import Storage

        return Storage(self._core)

    def health(
        self, max_wait: Duration | None = None, max_dead_letters: int | None = None, min_nodes: int = 1
    ) -> Health:
        """
        Whether jobs can be stored and work that is due flows; never raises because of the store.

        Also not well: a due job has waited for longer than *max_wait*, there are more dead letters than
        *max_dead_letters*, or fewer than *min_nodes* nodes take jobs.
        """
        require(self._core, Permission.LIST, about="health")
        return health_of(
            self._core, max_wait=max_wait, max_dead_letters=max_dead_letters, min_nodes=min_nodes
        )


class Scheduler(DeclaringVerbs, SubmittingVerbs, ControlVerbs, Views):
    """
    Submits jobs, asks about them, and runs them while it is started.

    It submits and queries whether or not it runs. Nothing is opened before the first use, so a
    module that declares jobs costs nothing to import. *allow*: modules whose functions may run as
    jobs; *imports*: modules that a node imports before it starts, because they declare jobs.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        allow: Iterable[str] | None = None,
        imports: Iterable[str] = (),
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
        authorizer: Authorizer | None = None,
        quotas: Sequence[Quota] = (),
        lifecycle_hooks: Sequence[LifecycleHook] = (),
        meters: Meters | None = None,
        tracer: Tracer | None = None,
        clock: Clock | None = None,
        codec: PayloadCodec | None = None,
        masking: MaskingRule | None = None,
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
            authorizer=authorizer,
            quotas=quotas,
            lifecycle_hooks=lifecycle_hooks,
            meters=meters,
            tracer=tracer,
            clock=clock,
            codec=codec,
            masking=masking,
        )
        settings = resolve_options(options)
        self._core = self._make_core(
            store if store is not None else url or named_url(),
            settings,
            Parts(replacements, resolve_allow(allow) if target_policy is None else allow or (), settings),
            clock,
            alert,
        )
        self._core.also_import(imports)
        self._controls = Controls(self._core)

    def _make_core(
        self,
        store: JobStore | str | None,
        options: Options,
        parts: Parts,
        clock: Clock | None,
        alert: Callable[[JobDeadLettered], None] | None,
    ) -> Core:
        core = Core(
            open_store=None if store is None or isinstance(store, str) else lambda: store,
            options=options,
            parts=parts,
            clock=clock,
            alert=alert,
        )
        if isinstance(store, str):
            core.use_store(store, options)
        return core

    def configure(self, url: str | None = None, *, options: Options | None = None) -> None:
        """
        Name the store, and the options, of a scheduler that was made without: when your application knows its settings.

        Jobs may have been declared before. Once something was submitted, asked or started, it is a `ConfigurationError`.
        """
        self._core.use_store(
            resolve_url(url), self._core.options if options is None else resolve_options(options)
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

    @cached_property
    def aio(self) -> AsyncScheduler:
        """The same verbs, awaitable."""
        from ratchet.aio import AsyncScheduler

        return AsyncScheduler(self)

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied."""
        return self._core.migrate()

    def acting_as(
        self, principal: str | None, *, source: AuditSource | str = AuditSource.API
    ) -> AbstractContextManager[None]:
        """
        A block in which *principal* acts through this scheduler: the authorizer is asked about that name, the audit log has it, and
        jobs that are submitted have it as their ``caller``.

        It goes by context: other threads and tasks are not concerned, tasks that are started in the block are. None hides an
        outer block. It stands before what the `PrincipalProvider` says. *source*: through what they act, for the audit log.
        """
        who = None if principal is None else text_of(principal, "the name of a principal", limit=NAME_LIMIT)
        return self._core.acting_as(who, member_of(AuditSource, source, "source"))

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

        With *drain* running jobs get *timeout* to finish; what has not finished is interrupted and handed
        back, which costs it no attempt. Without *timeout*, the environment variable ``RATCHET_DRAIN`` says how
        long, then `Options.drain_timeout`.
        """
        if on_event_loop() and self._core.running and not self._core.driven_by_hand:
            warn_on_event_loop()
        return self._core.stop(drain=drain, timeout=timeout)

    def run(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """
        Run jobs in the foreground until SIGTERM or SIGINT, then stop; True if every run has ended.

        *drain* and *timeout* are those of ``stop()``. A second signal does not wait for running jobs.
        """
        from ratchet.scheduler.foreground import Foreground

        refuse_on_event_loop()
        return Foreground(self._core).run(drain=drain, timeout=timeout)

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
        return f"Scheduler({self._core.store_name}{', running' if self.running else ''})"
