"""Declared jobs: stable names, aliases and defaults."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet.api.targets import DECLARATION, JobDeclaration, TargetRegistry, declaration_of, default_name
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.model.status import Lane, Priority
from tests.unit.api.target_samples import HERE, ShopMaker, charge, traced


@pytest.fixture
def registry() -> TargetRegistry:
    return TargetRegistry(PrefixTargetPolicy([HERE]))


class TestDeclared:
    def test_a_stable_name_is_what_is_stored(self) -> None:
        """The declared name wins over module:qualname and needs no policy."""
        registry = TargetRegistry(PrefixTargetPolicy())

        def job(number: int) -> int:
            return number

        registry.declare(
            job, JobDeclaration(name="billing.job", aliases=("shop.old:job",), priority=Priority.HIGH)
        )
        assert registry.reference(job).name == "billing.job"
        assert registry.describe(job, (1,)).target == "billing.job"
        assert registry.resolve("billing.job").function is job
        assert registry.resolve("shop.old:job").function is job
        assert registry.declared_names == {"billing.job", "shop.old:job"}
        assert declaration_of(job) is getattr(job, DECLARATION)

    def test_its_options_reach_the_worker(self) -> None:
        """The lane and what must not be retried come with the invocation."""
        registry = TargetRegistry(PrefixTargetPolicy())

        def job() -> None: ...

        registry.declare(job, JobDeclaration(name="job", lane=Lane.PROCESS, no_retry_for=(ValueError,)))
        invocation = registry.resolve("job")
        assert invocation.lane is Lane.PROCESS
        assert invocation.no_retry_for == (ValueError,)

    def test_a_name_belongs_to_one_function(self) -> None:
        """Two functions under one name would make the stored name ambiguous."""
        registry = TargetRegistry(PrefixTargetPolicy())
        try:
            registry.declare(charge, JobDeclaration(name="billing.charge"))
            with pytest.raises(InvalidJob, match=f"already taken by {HERE}:charge"):
                registry.declare(traced, JobDeclaration(name="other", aliases=("billing.charge",)))
            assert registry.declared_names == {"billing.charge"}
        finally:
            delattr(charge, DECLARATION)

    def test_declaring_again_replaces(self) -> None:
        """A reloaded module or an application factory that runs twice is no conflict."""
        registry = TargetRegistry(PrefixTargetPolicy())

        def factory() -> Callable[..., Any]:
            def job() -> None: ...

            registry.declare(job, JobDeclaration(name="factory.job"))
            return job

        first = factory()
        assert registry.resolve("factory.job").function is first
        second = factory()
        assert registry.resolve("factory.job").function is second

    def test_a_job_of_another_scheduler_must_be_allowed_here(self) -> None:
        """A declaration allows the function on its own scheduler, not on every one of the process."""

        def job() -> None: ...

        TargetRegistry(PrefixTargetPolicy()).declare(job, JobDeclaration(name="theirs"))
        other = TargetRegistry(PrefixTargetPolicy())
        with pytest.raises(
            TargetNotAllowed, match="declared on another scheduler, and this one does not allow"
        ):
            other.describe(job)
        with pytest.raises(TargetNotFound, match="no job named 'theirs' is declared on this node"):
            other.resolve("theirs")

    def test_a_job_of_another_scheduler_that_is_allowed_here(self) -> None:
        """It is stored under the name that workers of this scheduler import; a local one has its declared name only."""

        def job() -> None: ...

        theirs, other = (
            TargetRegistry(PrefixTargetPolicy()),
            TargetRegistry(PrefixTargetPolicy([HERE, __name__])),
        )
        try:
            theirs.declare(charge, JobDeclaration(name="billing.charge", lane=Lane.PROCESS))
            theirs.declare(job, JobDeclaration(name="theirs"))
            stored = other.describe(charge, (1,))
            assert (stored.target, stored.lane) == (f"{HERE}:charge", Lane.PROCESS)
            assert other.resolve(stored.target).function is charge
            assert other.describe(job).target == "theirs"
            assert other.resolve("theirs").function is job
        finally:
            delattr(charge, DECLARATION)

    def test_two_schedulers_declare_one_function(self) -> None:
        """Each knows it under the name that was declared on it; it belongs to the first."""

        def job() -> None: ...

        first, second = TargetRegistry(PrefixTargetPolicy()), TargetRegistry(PrefixTargetPolicy())
        assert first.declare(job, JobDeclaration(name="first", priority=Priority.HIGH)) is True
        assert second.declare(job, JobDeclaration(name="second", lane=Lane.PROCESS)) is False
        assert first.declare(job, JobDeclaration(name="first", priority=Priority.LOW)) is True
        assert (first.describe(job).target, second.describe(job).target) == ("first", "second")
        assert (first.describe(job).lane, second.describe(job).lane) == (Lane.THREAD, Lane.PROCESS)
        own = declaration_of(job, first)
        assert own is not None
        assert (own.priority, declaration_of(job)) == (Priority.LOW, own)
        assert getattr(declaration_of(job, second), "name", None) == "second"
        assert (first.declares(job), second.declares(job)) == (True, True)
        with pytest.raises(TargetNotFound):
            first.resolve("second")

    def test_a_decorator_on_top_of_a_declared_job_runs_too(self, shop: ShopMaker) -> None:
        """What the module exports under the name is what runs, outermost decorator included."""
        module = shop(
            """
            import functools
            from ratchet.api.targets import JobDeclaration, TargetRegistry
            from ratchet.defaults.target_policy import PrefixTargetPolicy
            registry = TargetRegistry(PrefixTargetPolicy())
            def job(function):
                registry.declare(function, JobDeclaration(name="shop.job"))
                return function
            def loud(function):
                @functools.wraps(function)
                def wrapper():
                    return function() + "!"
                return wrapper
            @loud
            @job
            def hello():
                return "hello"
            class Greeter:
                def __init__(self):
                    self.name = "ann"
                def greet(self):
                    return self.name
                registry.declare(greet, JobDeclaration(name="shop.greet"))
            """
        )
        registry: TargetRegistry = module.registry
        assert registry.describe(module.hello).target == "shop.job"
        assert registry.resolve("shop.job").function() == "hello!"
        assert registry.describe(module.Greeter.greet).target == "shop.greet"
        assert registry.resolve("shop.greet").bind(DefaultInstanceResolver())() == "ann"

    def test_a_declared_method_of_a_local_class_is_refused(self) -> None:
        """Its instance could not be made on any worker."""
        registry = TargetRegistry(PrefixTargetPolicy())

        class Local:
            def run(self) -> None: ...

        registry.declare(Local.run, JobDeclaration(name="local.run"))
        with pytest.raises(InvalidTarget, match="move the class to module level"):
            registry.describe(Local.run)

    @pytest.mark.parametrize(
        ("lane", "coroutine"), [(Lane.ASYNC, False), (Lane.THREAD, True), ("nowhere", False)]
    )
    def test_a_lane_that_cannot_run_the_function_is_refused(self, lane: Any, coroutine: bool) -> None:
        """A plain function has no place on the event loop, nor a coroutine function on a thread."""
        registry = TargetRegistry(PrefixTargetPolicy())

        def plain() -> None: ...

        async def asynchronous() -> None: ...

        job = asynchronous if coroutine else plain
        registry.declare(job, JobDeclaration(name="job", lane=lane))
        with pytest.raises(InvalidJob, match="cannot run in the"):
            registry.reference(job)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": ""},
            {"name": " "},
            {"name": "x" * 501},
            {"name": "a\nb"},
            {"name": "a", "aliases": ("",)},
            {"name": "a", "max_retries": -1},
            {"name": "a", "no_retry_for": ("ValueError",)},
        ],
    )
    def test_a_declaration_that_makes_no_sense_is_refused(self, wrong: dict[str, Any]) -> None:
        """Mistakes are found where the job is declared."""
        with pytest.raises(InvalidJob):
            JobDeclaration(**wrong)

    def test_the_defaults_are_the_documented_ones(self) -> None:
        """No retries, no timeout, normal priority."""
        declaration = JobDeclaration(name="a")
        assert (declaration.max_retries, declaration.timeout, declaration.priority) == (
            0,
            None,
            Priority.NORMAL,
        )
        assert declaration.backoff_base == timedelta(0)
        assert default_name(charge) == f"{HERE}:charge"
