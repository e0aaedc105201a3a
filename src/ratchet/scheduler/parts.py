"""The replaceable parts of a scheduler, each with its stock implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.api.targets import TargetRegistry
from ratchet.defaults.cluster_coordinator import NoOpClusterCoordinator
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.guarded_coordinator import GuardedCoordinator
from ratchet.defaults.guarded_tracers import guarded_tracers
from ratchet.defaults.guards import (
    CheckedPrincipal,
    GuardedAuthorizer,
    GuardedExecutor,
    GuardedPolling,
    GuardedResilience,
    GuardedSanitizer,
    GuardedTargetPolicy,
    require_methods,
)
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy, PollingPace
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.clock import Clock
from ratchet.model.errors import ConfigurationError
from ratchet.model.masking import Masking, MaskingRule
from ratchet.model.options import Options
from ratchet.model.quotas import Quota
from ratchet.spi.authorizer import Authorizer
from ratchet.spi.broadcast import BroadcastCoordinator
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
from ratchet.spi.store.permits import BreakerStore
from ratchet.spi.target_policy import TargetPolicy
from ratchet.spi.tracer import Tracer

if TYPE_CHECKING:
    from ratchet.api.submit.quotas import Quotas
    from ratchet.defaults.circuit_breaker import Moved


@dataclass(slots=True, kw_only=True)
class Replacements:
    """What the user passed to `Scheduler`; None: the stock implementation."""

    retry_policy: RetryPolicy | None = None
    error_sanitizer: ErrorSanitizer | None = None
    target_policy: TargetPolicy | None = None
    instance_resolver: InstanceResolver | None = None
    invocation_resolver: InvocationResolver | None = None
    executor_provider: ExecutorProvider | None = None
    cluster_coordinator: ClusterCoordinator | None = None
    resilience: ResilienceStrategy | None = None
    polling_strategy: PollingStrategy | None = None
    principal_provider: PrincipalProvider | None = None
    authorizer: Authorizer | None = None
    quotas: Sequence[Quota] = ()
    lifecycle_hooks: Sequence[LifecycleHook] = ()
    meters: Meters | None = None
    tracer: Tracer | None = None
    clock: Clock | None = None
    codec: PayloadCodec | None = None
    masking: MaskingRule | None = None


class Parts:
    """The parts in force; what the user has replaced is guarded, so that nothing in it can strand a job."""

    def __init__(self, given: Replacements, allow: Iterable[str], options: Options) -> None:
        prefixes = PrefixTargetPolicy(allow)
        if prefixes.prefixes and given.target_policy is not None:
            raise ConfigurationError(
                "allow and target_policy were both given; a target_policy decides alone, so put the prefixes there"
            )
        _require_usable(given)
        self.policy: TargetPolicy = _policy(given.target_policy, prefixes)
        self.registry = TargetRegistry(self.policy)
        self.targets: InvocationResolver = given.invocation_resolver or self.registry
        self.retry_policy: RetryPolicy = given.retry_policy or DefaultRetryPolicy()
        stock_sanitizer = _StockSanitizer()
        self.sanitizer: ErrorSanitizer = GuardedSanitizer(
            given.error_sanitizer or stock_sanitizer, stock_sanitizer
        )
        #: None: values are stored as they are.
        self.codec: PayloadCodec | None = given.codec
        self.masking: Masking | None = None if given.masking is None else Masking(given.masking)
        self.instances: InstanceResolver = given.instance_resolver or DefaultInstanceResolver()
        self.executor: ExecutorProvider = DefaultExecutorProvider()
        if given.executor_provider is not None:
            self.executor = GuardedExecutor(given.executor_provider, self.executor)
        self._resilience = given.resilience
        #: None: jobs are stored without a caller.
        self.principal: PrincipalProvider | None = (
            None if given.principal_provider is None else CheckedPrincipal(given.principal_provider)
        )
        #: None: everything is permitted.
        self.authorizer: GuardedAuthorizer | None = (
            None if given.authorizer is None else GuardedAuthorizer(given.authorizer)
        )
        #: None: there are none.
        self.quotas: Quotas | None = _quotas(given.quotas) if given.quotas else None
        self.cluster: ClusterCoordinator | None = _guarded(given.cluster_coordinator)
        self.hooks: tuple[LifecycleHook, ...] = tuple(given.lifecycle_hooks)
        self.meters: tuple[Meters, ...] = () if given.meters is None else (given.meters,)
        #: None: nobody follows jobs.
        self.tracer: Tracer | None = None if given.tracer is None else guarded_tracers(None, given.tracer)
        self._given_polling = given.polling_strategy
        self.polling: Callable[[], PollingStrategy] = _polling(given.polling_strategy, options)
        #: The strategy is the user's: it alone says how long a poller rests.
        self.own_polling = given.polling_strategy is not None

    def follow(self, options: Options) -> None:
        """Go by *options* from now on."""
        self.polling = _polling(self._given_polling, options)

    def resilience(self, store: BreakerStore, clock: Clock, on_moved: Moved) -> ResilienceStrategy:
        """What stands between the jobs of a node and the services they depend on."""
        from ratchet.defaults.circuit_breaker import StoreBreakers  # only a node needs it

        # The stock one too: a row that cannot be read must not strand the jobs of its service.
        return GuardedResilience(self._resilience or StoreBreakers(store, clock, on_moved=on_moved))

    def require_something_allowed(self) -> None:
        """Refuse to start a node that could run nothing."""
        if self.targets is not self.registry or self.registry.declared_names:
            return
        if isinstance(self.policy, PrefixTargetPolicy) and not self.policy.prefixes:
            raise ConfigurationError(
                "this node could run nothing: no module is allowed and no job is declared. Pass "
                "Scheduler(allow=['shop']) with the modules whose functions may run as jobs, or declare "
                "functions with @scheduler.job and import the modules that do so before start()"
            )


class _StockSanitizer:
    """`DefaultErrorSanitizer`, made when the first error comes: its patterns take 10 ms to compile."""

    def sanitize(self, error: BaseException) -> str:
        return self._made().sanitize(error)

    def sanitize_text(self, text: str) -> str:
        return self._made().sanitize_text(text)

    @staticmethod
    def _made() -> ErrorSanitizer:
        from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer

        return DefaultErrorSanitizer()


def _quotas(given: Sequence[Quota]) -> Quotas | None:
    from ratchet.api.submit.quotas import quotas_of  # only who has some needs it

    return quotas_of(given)


def _policy(given: TargetPolicy | None, prefixes: PrefixTargetPolicy) -> TargetPolicy:
    if given is None:
        return prefixes
    return given if isinstance(given, PrefixTargetPolicy) else GuardedTargetPolicy(given)


def _guarded(given: ClusterCoordinator | None) -> ClusterCoordinator | None:
    """Ratchet's own coordinators never raise and never wait; a user's may do both."""
    if given is None or isinstance(given, BroadcastCoordinator | NoOpClusterCoordinator):
        return given
    return GuardedCoordinator(given)


def _polling(given: PollingStrategy | None, options: Options) -> Callable[[], PollingStrategy]:
    pace = PollingPace(
        burst=min(options.poll_delay_burst, options.poll_delay_min),
        shortest=options.poll_delay_min,
        longest=options.poll_delay_max,
        deep_idle=max(options.poll_delay_idle, options.poll_delay_max),
        deep_idle_after=options.poll_idle_after,
    )
    if given is None:
        return lambda: AdaptivePollingStrategy(pace)
    return lambda: GuardedPolling(given, AdaptivePollingStrategy(pace))


def _require_usable(given: Replacements) -> None:
    """Refuse a part without the methods that nothing can stand in for, before a job depends on it."""
    require_methods(given.target_policy, "target_policy", "allows")
    require_methods(given.instance_resolver, "instance_resolver", "resolve")
    require_methods(given.invocation_resolver, "invocation_resolver", "describe", "resolve")
    require_methods(given.principal_provider, "principal_provider", "current")
    require_methods(given.codec, "codec", "active_key", "encode", "decode", "has_key", "keys", "hashed")
    require_methods(given.authorizer, "authorizer", "__call__")
