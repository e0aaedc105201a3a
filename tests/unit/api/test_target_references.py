"""From object to name: what can be a job, how it is stored, and with which arguments."""

from __future__ import annotations

import functools
import math
import sys
from types import ModuleType
from typing import Any

import pytest

from ratchet.api.targets import TargetReference, TargetRegistry
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.model.status import Lane
from tests.unit.api.target_samples import (
    HERE,
    Ledger,
    OrderService,
    add_function,
    cached,
    charge,
    charge_async,
    hidden,
    nested,
    numbers,
    numbers_async,
    orders,
    run,
    traced,
    wrapped,
)


@pytest.fixture
def registry() -> TargetRegistry:
    return TargetRegistry(PrefixTargetPolicy([HERE]))


class TestReference:
    def test_a_function(self, registry: TargetRegistry) -> None:
        """A plain function is stored as module:qualname and runs in a thread."""
        assert registry.reference(charge) == TargetReference(
            name=f"{HERE}:charge", function=charge, is_coroutine=False, lane=Lane.THREAD
        )

    def test_a_coroutine_function(self, registry: TargetRegistry) -> None:
        """An async function runs on the event loop."""
        reference = registry.reference(charge_async)
        assert reference.is_coroutine
        assert reference.lane is Lane.ASYNC

    def test_a_method_through_its_class(self, registry: TargetRegistry) -> None:
        """The class is the owner, whose instance the worker asks the resolver for."""
        reference = registry.reference(OrderService.process)
        assert reference.name == f"{HERE}:OrderService.process"
        assert (reference.owner, reference.method) == (OrderService, "process")

    def test_a_bound_method_is_its_class_and_name(self, registry: TargetRegistry) -> None:
        """The instance's state is not stored: a bound method is the same target as Class.method."""
        assert registry.reference(orders.process).name == registry.reference(OrderService.process).name
        assert registry.reference(orders.process).owner is OrderService

    def test_an_inherited_bound_method_belongs_to_the_instances_class(self, registry: TargetRegistry) -> None:
        """The worker makes an OrderService, not the base that defines the method."""
        assert registry.reference(orders.close).name == f"{HERE}:OrderService.close"
        assert registry.reference(orders.close).owner is OrderService
        assert run(registry, orders.close, "today") == "OrderService closed today"

    def test_an_inherited_method_through_its_class_belongs_to_the_base(
        self, registry: TargetRegistry
    ) -> None:
        """Python hands over the base's function and nothing else, as documented."""
        assert registry.reference(OrderService.close).owner is Ledger

    def test_static_and_class_methods_need_no_instance(self, registry: TargetRegistry) -> None:
        """They have no owner, and a class method keeps its class."""
        assert registry.reference(OrderService.check).owner is None
        assert registry.reference(OrderService.audit).owner is None
        assert run(registry, OrderService.audit, 7) == ("OrderService", 7)
        assert run(registry, orders.audit, 7) == ("OrderService", 7)
        assert run(registry, OrderService.check, 7) == 7

    @pytest.mark.parametrize(
        ("target", "args", "expected"),
        [
            (charge, (42,), "42 EUR"),
            (wrapped, (1,), ("traced", 1)),
            (OrderService.process, (42,), (True, 42)),
            (orders.process, (42,), (True, 42)),
            (OrderService.Inner.run, (), "inner"),
            (lambda: charge(42, currency="USD"), (), "42 USD"),
            (lambda: orders.process(42), (), (True, 42)),
        ],
        ids=["function", "wrapped", "method", "bound_method", "nested_class", "lambda", "lambda_with_method"],
    )
    def test_what_is_stored_runs_on_a_worker(
        self, registry: TargetRegistry, target: Any, args: tuple[Any, ...], expected: Any
    ) -> None:
        """Every accepted form finds its way back to the same code."""
        assert run(registry, target, *args) == expected

    def test_a_builtin_of_an_allowed_module(self) -> None:
        """A function written in C has a module and a name like any other."""
        registry = TargetRegistry(PrefixTargetPolicy(["math"]))
        assert registry.reference(math.sqrt).name == "math:sqrt"
        assert registry.resolve("math:sqrt").function(9) == 3

    def test_a_target_of_the_main_script_is_flagged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only nodes started from the same script can run it, so the caller must know."""
        main = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        job = add_function(main, "job")
        registry = TargetRegistry(PrefixTargetPolicy(["__main__"]))
        reference = registry.reference(job)
        assert reference.in_main
        assert registry.describe(job, (1,)).in_main
        assert reference.name == "__main__:job"
        assert registry.resolve("__main__:job").function is job
        with pytest.raises(TargetNotFound, match="the script this node was started from"):
            registry.resolve("__main__:other")

    def test_asking_again_is_cheap(self, registry: TargetRegistry) -> None:
        """The reference of a target is made once."""
        assert registry.reference(charge) is registry.reference(charge)
        assert registry.reference(orders.process) is registry.reference(OrderService().process)


class TestRefused:
    @pytest.mark.parametrize(
        ("target", "form"),
        [
            (nested(), r"inside a function.*module level"),
            (lambda: 5, "not a call"),
            (functools.partial(charge, 42), r"enqueue\(charge, …\)"),
            (OrderService, r"enqueue\(OrderService.method, …\)"),
            (orders, r"object of class OrderService.*named method"),
            (cached, r"object of class.*lru_cache"),
            ([].append, "method of a built-in object"),
            (dict.get, "object of class method_descriptor"),
            (hidden, "inside a function"),
            (wrapped.__wrapped__, "does not give the object that was passed"),  # type: ignore[attr-defined]
            (numbers, "yields"),
            (numbers_async, "yields"),
            (42, r"did you call the function\?"),
            (None, r"did you call the function\?"),
            ("shop.jobs:charge", r"did you call the function\?"),
            ([charge], r"did you call the function\?"),
            (orders.__call__, "not a plain name"),
        ],
        ids=lambda value: value if isinstance(value, str) else type(value).__name__,
    )
    def test_the_message_shows_the_form_that_works(
        self, registry: TargetRegistry, target: Any, form: str
    ) -> None:
        """What no worker could find is refused at submit, with what to write instead."""
        with pytest.raises(InvalidTarget, match=form):
            registry.describe(target)

    def test_a_coroutine_that_was_already_made(self, registry: TargetRegistry) -> None:
        """enqueue(f(42)) instead of enqueue(f, 42) is recognized, and leaves no warning behind."""
        with pytest.raises(InvalidTarget, match=r"enqueue\(charge_async, …\)"):
            registry.describe(charge_async(42))  # type: ignore[arg-type]

    def test_a_lambda_with_arguments_beside_it(self, registry: TargetRegistry) -> None:
        """A lambda brings its own arguments."""
        with pytest.raises(InvalidTarget, match="brings its own arguments"):
            registry.describe(lambda: charge(42), (1,))

    def test_a_lambda_where_a_function_is_needed(self, registry: TargetRegistry) -> None:
        """Predicates and callbacks are references, not calls."""
        with pytest.raises(InvalidTarget, match="module level"):
            registry.reference(lambda: charge(42))

    def test_a_broken_repr_does_not_hide_the_refusal(self, registry: TargetRegistry) -> None:
        """The message is made without trusting the object."""

        class Broken:
            def __repr__(self) -> str:
                raise ValueError

        with pytest.raises(InvalidTarget, match=r"object of class .*Broken"):
            registry.describe(Broken())  # type: ignore[arg-type]

    def test_the_policy_is_asked_at_submit(self) -> None:
        """A target that is not allowed is refused before anything is stored, saying what to add."""
        with pytest.raises(TargetNotAllowed, match=f"add '{HERE}' to allow"):
            TargetRegistry(PrefixTargetPolicy()).describe(charge, (1,))

    def test_an_inherited_method_needs_its_origin_allowed(self) -> None:
        """A bound method whose code lives elsewhere is refused at submit already."""
        class_name = f"{HERE}:OrderService"
        with pytest.raises(TargetNotAllowed, match=r"is really .*Ledger\.close"):
            TargetRegistry(PrefixTargetPolicy([class_name])).describe(orders.close, ("today",))


class TestArguments:
    @pytest.mark.parametrize(
        ("target", "args", "kwargs"),
        [
            (charge, (), {}),
            (charge, (1, 2), {}),
            (charge, (1,), {"invoice_id": 1}),
            (charge, (1,), {"price": 1}),
            (OrderService.process, (), {}),
            (OrderService.process, (orders, 1), {}),
            (OrderService.audit, (), {}),
            (wrapped, (), {}),
        ],
    )
    def test_arguments_that_do_not_fit_are_refused_at_submit(
        self, registry: TargetRegistry, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A job that could only raise TypeError is not stored."""
        with pytest.raises(InvalidJob, match="do not fit"):
            registry.describe(target, args, kwargs)

    @pytest.mark.parametrize(
        ("target", "args", "kwargs"),
        [
            (charge, (1,), {}),
            (charge, (), {"invoice_id": 1, "currency": "USD"}),
            (OrderService.process, (1,), {}),
            (OrderService.audit, (1,), {}),
            (OrderService.check, (), {"order_id": 1}),
            (traced, (charge,), {}),
        ],
    )
    def test_arguments_that_fit_are_kept_as_they_are(
        self, registry: TargetRegistry, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Positional stays positional and keyword stays keyword."""
        stored = registry.describe(target, args, kwargs)
        assert (stored.args, stored.kwargs) == (args, kwargs)

    def test_the_worker_knows_the_parameters_without_the_receiver(self, registry: TargetRegistry) -> None:
        """Annotations line up with the stored arguments, for methods too."""
        assert len(registry.resolve(f"{HERE}:OrderService.process").parameters.positional) == 1
        assert len(registry.resolve(f"{HERE}:OrderService.audit").parameters.positional) == 1
        assert len(registry.resolve(f"{HERE}:charge").parameters.positional) == 1
