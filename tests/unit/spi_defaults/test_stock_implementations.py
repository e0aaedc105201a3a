from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest

from ratchet.api.targets import TargetRegistry
from ratchet.defaults.circuit_breaker import StoreBreakers
from ratchet.defaults.cluster_coordinator import NoOpClusterCoordinator
from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy
from ratchet.defaults.principal_provider import ContextPrincipalProvider
from ratchet.defaults.resilience import NoOpResilience
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import ConfigurationError
from ratchet.model.status import Priority
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
from ratchet.spi.target_policy import TargetPolicy

PAIRS = [
    (ClusterCoordinator, NoOpClusterCoordinator),
    (ErrorSanitizer, DefaultErrorSanitizer),
    (ExecutorProvider, DefaultExecutorProvider),
    (InstanceResolver, DefaultInstanceResolver),
    (InvocationResolver, TargetRegistry),
    (PollingStrategy, AdaptivePollingStrategy),
    (PrincipalProvider, ContextPrincipalProvider),
    (ResilienceStrategy, NoOpResilience),
    (ResilienceStrategy, StoreBreakers),
    (RetryPolicy, DefaultRetryPolicy),
    (TargetPolicy, PrefixTargetPolicy),
]


@pytest.mark.parametrize(("protocol", "stock"), PAIRS, ids=lambda cls: cls.__name__)
def test_a_stock_implementation_has_the_protocols_methods(protocol: type, stock: type) -> None:
    """Every method of the Protocol exists with the same parameter names, in the same order."""
    for name, method in inspect.getmembers(protocol, inspect.isfunction):
        if not name.startswith("_"):
            own = getattr(stock, name)
            assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters), name
            assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(method), name


class TestDefaultRetryPolicy:
    def test_the_job_decides(self) -> None:
        """Always True and zero, so that max_retries and the backoff draw the line."""
        policy = DefaultRetryPolicy()
        assert policy.should_retry(1_000, ValueError())
        assert policy.delay(1_000, ValueError()) == timedelta(0)


class Counted:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1


class NeedsArguments:
    def __init__(self, url: str) -> None:
        self.url = url


class TestDefaultInstanceResolver:
    def test_one_instance_however_many_threads_ask(self) -> None:
        """Twenty threads that ask at once share one instance, made once."""
        Counted.made = 0
        resolver, barrier, seen = DefaultInstanceResolver(), Barrier(20), []

        def ask() -> None:
            barrier.wait()
            seen.append(resolver.resolve(Counted))

        threads = [Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counted.made == 1
        assert len({id(instance) for instance in seen}) == 1

    def test_each_node_has_its_own(self) -> None:
        """Two resolvers share nothing."""
        assert DefaultInstanceResolver().resolve(Counted) is not DefaultInstanceResolver().resolve(Counted)

    def test_a_class_that_needs_arguments_is_explained(self) -> None:
        """The message says which class, what is missing, and what to do."""
        with pytest.raises(ConfigurationError, match=r"NeedsArguments.*'url'.*instance_resolver"):
            DefaultInstanceResolver().resolve(NeedsArguments)

    def test_a_constructor_that_fails_is_tried_again(self) -> None:
        """Its own error comes through, also a TypeError, and the next run gets another chance."""
        answers: list[Any] = [TypeError("database is down"), None]

        class Flaky:
            def __init__(self) -> None:
                answer = answers.pop(0)
                if answer is not None:
                    raise answer

        resolver = DefaultInstanceResolver()
        with pytest.raises(TypeError, match="database is down"):
            resolver.resolve(Flaky)
        assert isinstance(resolver.resolve(Flaky), Flaky)

    def test_a_constructor_may_resolve_another_class(self) -> None:
        """No deadlock with itself."""
        resolver = DefaultInstanceResolver()

        class Outer:
            def __init__(self) -> None:
                self.inner = resolver.resolve(Counted)

        assert resolver.resolve(Outer).inner is resolver.resolve(Counted)


class TestPrincipalProviders:
    def test_nobody_by_default(self) -> None:
        """Outside of every block there is no caller."""
        assert ContextPrincipalProvider().current() is None

    def test_the_innermost_block_counts_and_ends(self) -> None:
        """Blocks nest, and leave nothing behind, also after an error."""
        provider = ContextPrincipalProvider()
        with provider.acting_as("ann"):
            try:
                with provider.acting_as("bob"):
                    assert provider.current() == "bob"
                    raise ValueError("out")
            except ValueError:
                pass
            assert provider.current() == "ann"
        assert provider.current() is None

    def test_tasks_do_not_see_each_other(self) -> None:
        """Two concurrent requests keep their own principals."""
        provider = ContextPrincipalProvider()

        async def request(user: str) -> str | None:
            with provider.acting_as(user):
                await asyncio.sleep(0)
                return provider.current()

        async def both() -> list[str | None]:
            return await asyncio.gather(request("ann"), request("bob"))

        assert asyncio.run(both()) == ["ann", "bob"]


class TestNoOps:
    def test_the_coordinator_accepts_everything(self) -> None:
        """Without a transport, notifying is silent and listeners are never called."""
        coordinator = NoOpClusterCoordinator()
        called: list[int] = []
        coordinator.register_wakeup_listener(lambda: called.append(1))
        coordinator.start()
        coordinator.notify_new_work(Priority.CRITICAL)
        coordinator.stop()
        assert called == []

    def test_resilience_lets_results_and_errors_through(self) -> None:
        """Everything is permitted, and neither results nor errors are touched."""
        resilience = NoOpResilience()
        assert resilience.permits("gateway")
        assert resilience.retry_after("gateway") == timedelta(0)
        assert resilience.execute("gateway", lambda: 7) == 7

        async def fail() -> int:
            raise ValueError("down")

        with pytest.raises(ValueError, match="down"):
            asyncio.run(resilience.execute_async("gateway", fail))

    def test_a_hook_overrides_only_what_it_needs(self) -> None:
        """The other three do nothing."""
        seen: list[str] = []

        class Migrating(LifecycleHook):
            def before_start(self) -> None:
                seen.append("migrated")

        hook = Migrating()
        hook.before_start()
        hook.after_start()
        hook.before_stop()
        hook.after_stop()
        assert seen == ["migrated"]


class TestDefaultExecutorProvider:
    def test_threads_are_daemons_with_a_name(self) -> None:
        """A job that ignores its interruption must not keep the process alive."""
        ran: list[int] = []
        thread = DefaultExecutorProvider().thread(lambda: ran.append(1), name="ratchet-worker-1")
        assert thread.daemon
        assert thread.name == "ratchet-worker-1"
        assert not thread.is_alive()
        thread.start()
        thread.join(5)
        assert ran == [1]

    def test_processes_are_never_forked(self) -> None:
        """A forked child would inherit locks and connections in the middle of their use."""
        assert DefaultExecutorProvider().process_context().get_start_method() != "fork"
