from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread
from types import FunctionType, ModuleType
from typing import Any

import pytest

from ratchet.api.targets import (
    DECLARATION,
    JobDeclaration,
    TargetReference,
    TargetRegistry,
    declaration_of,
    default_name,
)
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.model.status import Lane, Priority

HERE = __name__


def charge(invoice_id: int, *, currency: str = "EUR") -> str:
    return f"{invoice_id} {currency}"


async def charge_async(invoice_id: int) -> str:
    return f"{invoice_id}"


def numbers() -> Iterator[int]:
    yield 1


async def numbers_async() -> AsyncIterator[int]:
    yield 1


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return ("traced", function(*args, **kwargs))

    return wrapper


def careless(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
def wrapped(number: int) -> int:
    return number


@careless
def hidden(number: int) -> int:
    return number


@functools.lru_cache
def cached(number: int) -> int:
    return number


class Ledger:
    """What OrderService inherits from."""

    def close(self, day: str) -> str:
        return f"{type(self).__name__} closed {day}"


class OrderService(Ledger):
    """A class whose methods run as jobs."""

    def __init__(self) -> None:
        self.made = True

    def process(self, order_id: int) -> tuple[bool, int]:
        return (self.made, order_id)

    async def process_async(self, order_id: int) -> int:
        return order_id

    @staticmethod
    def check(order_id: int) -> int:
        return order_id

    @classmethod
    def audit(cls, order_id: int) -> tuple[str, int]:
        return (cls.__name__, order_id)

    class Inner:
        """A class in a class."""

        def run(self) -> str:
            return "inner"

    def __call__(self) -> None: ...


orders = OrderService()


@pytest.fixture
def registry() -> TargetRegistry:
    return TargetRegistry(PrefixTargetPolicy([HERE]))


def run(registry: TargetRegistry, target: Any, *args: Any) -> Any:
    """Store the target, resolve the stored name in a registry that never saw it, and call it."""
    stored = registry.describe(target, args)
    worker = TargetRegistry(PrefixTargetPolicy([HERE]))
    return worker.resolve(stored.target).bind(DefaultInstanceResolver())(*stored.args, **stored.kwargs)


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


def add_function(module: ModuleType, name: str) -> Any:
    """Give *module* a function of its own, as running it would."""
    function = FunctionType(charge.__code__, vars(module), name)
    function.__qualname__ = name
    function.__kwdefaults__ = {"currency": "EUR"}
    setattr(module, name, function)
    return function


def nested() -> Callable[..., Any]:
    def inner() -> None: ...

    return inner


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

    def test_a_job_of_another_scheduler_keeps_its_name(self) -> None:
        """A submit-only scheduler may enqueue what another one declared."""

        def job() -> None: ...

        TargetRegistry(PrefixTargetPolicy()).declare(job, JobDeclaration(name="theirs"))
        other = TargetRegistry(PrefixTargetPolicy())
        assert other.describe(job).target == "theirs"
        assert other.resolve("theirs").function is job

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


ShopMaker = Callable[..., ModuleType]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable directory whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def shop(package: Path) -> ShopMaker:
    """Writes the module ``shopjobs``, and imports it unless told otherwise."""

    def make(source: str, *, load: bool = True) -> ModuleType:
        (package / "shopjobs.py").write_text(textwrap.dedent(source))
        return __import__("shopjobs") if load else ModuleType("not loaded")

    return make


class TestResolve:
    def test_the_module_is_imported_when_first_needed(self, shop: ShopMaker) -> None:
        """A node imports lazily, once, and remembers the answer."""
        shop("def charge(x): return x", load=False)
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs"]))
        assert "shopjobs" not in sys.modules
        invocation = registry.resolve("shopjobs:charge")
        assert invocation.function(7) == 7
        assert registry.resolve("shopjobs:charge") is invocation

    def test_importing_may_declare_the_name(self, shop: ShopMaker, monkeypatch: pytest.MonkeyPatch) -> None:
        """An alias in module:qualname form is found after its module has been imported."""
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs"]))
        monkeypatch.setattr(sys.modules[__name__], "the_registry", registry, raising=False)
        shop(
            f"""
            import sys
            from ratchet.api.targets import JobDeclaration
            def renamed(): return "renamed"
            sys.modules[{__name__!r}].the_registry.declare(
                renamed, JobDeclaration(name="shopjobs:renamed", aliases=("shopjobs:old",)))
            """,
            load=False,
        )
        assert registry.resolve("shopjobs:old").function() == "renamed"

    def test_a_missing_module_and_a_missing_function_are_told_apart(self, shop: ShopMaker) -> None:
        """The message says which of the two this node lacks."""
        shop("def charge(): ...")
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs", "absent"]))
        with pytest.raises(TargetNotFound, match="no module 'absent'"):
            registry.resolve("absent.jobs:charge")
        with pytest.raises(TargetNotFound, match="has no function or method 'refund'"):
            registry.resolve("shopjobs:refund")

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("import module_that_is_missing", "ModuleNotFoundError"),
            ("raise RuntimeError('no settings')", "RuntimeError: no settings"),
            ("raise SystemExit(2)", "SystemExit"),
            ("def broken(:", "SyntaxError"),
        ],
    )
    def test_a_module_that_fails_to_import_is_explained(
        self, shop: ShopMaker, source: str, reason: str
    ) -> None:
        """A broken deployment is TargetNotFound with the cause, not a crash of the worker."""
        shop(source, load=False)
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs"]))
        with pytest.raises(TargetNotFound, match=reason) as caught:
            registry.resolve("shopjobs:charge")
        assert caught.value.__cause__ is not None

    def test_a_failed_import_is_tried_again(self, shop: ShopMaker) -> None:
        """A node recovers when the deployment is completed."""
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs"]))
        with pytest.raises(TargetNotFound):
            registry.resolve("shopjobs:charge")
        shop("def charge(): return 1", load=False)
        __import__("importlib").invalidate_caches()
        assert registry.resolve("shopjobs:charge").function() == 1

    def test_a_module_that_another_thread_is_importing_is_waited_for(self, shop: ShopMaker) -> None:
        """Eight threads that need a slow module at once all get its function."""
        shop("import time\ntime.sleep(0.1)\ndef charge(): return 1", load=False)
        registry = TargetRegistry(PrefixTargetPolicy(["shopjobs"]))
        barrier, answers = Barrier(8), []

        def ask() -> None:
            barrier.wait()
            answers.append(registry.resolve("shopjobs:charge").function())

        threads = [Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [1] * 8

    def test_an_unknown_stable_name_says_how_to_declare_it(self, registry: TargetRegistry) -> None:
        """Such a name cannot be imported; only a declaration makes it known."""
        with pytest.raises(TargetNotFound, match=r"name='billing\.charge'"):
            registry.resolve("billing.charge")

    def test_the_method_runs_on_what_the_resolver_chose(self, registry: TargetRegistry) -> None:
        """A subclass or proxy that the InstanceResolver returns is respected."""

        class Special(OrderService):
            def process(self, order_id: int) -> tuple[bool, int]:
                return (False, -order_id)

        class Resolver:
            def resolve(self, cls: type) -> Any:
                return Special()

        invocation = registry.resolve(f"{HERE}:OrderService.process")
        assert invocation.bind(Resolver())(3) == (False, -3)


HOSTILE = """
    import os
    import subprocess
    from os import system
    from subprocess import Popen
    secret = [].append
    def charge(): ...
    def outer():
        def inner(): ...
        return inner
    class Orders:
        helper = os
        spawn = subprocess.Popen
        shell = staticmethod(os.system)
        def process(self): ...
        @property
        def danger(self):
            raise AssertionError("a descriptor ran")
    class Shell(Popen):
        pass
    orders = Orders()
"""


class TestWriteAccessIsNotCodeExecution:
    def test_nothing_is_imported_before_the_policy_has_agreed(self, shop: ShopMaker) -> None:
        """Naming a module in the database must not run its top-level code."""
        shop("raise AssertionError('imported')", load=False)
        for policy in (PrefixTargetPolicy(), PrefixTargetPolicy(["shop", "shopjobs2"])):
            with pytest.raises(TargetNotAllowed, match="add 'shopjobs' to allow"):
                TargetRegistry(policy).resolve("shopjobs:charge")
        assert "shopjobs" not in sys.modules

    @pytest.mark.parametrize(
        "target",
        [
            "shopjobs:system",
            "shopjobs:Popen.communicate",
            "shopjobs:Shell.communicate",
            "shopjobs:Orders.shell",
            "os:system",
            "builtins:eval",
            "posix:system",
            "shopjobs:charge.__globals__",
            "shopjobs:__builtins__.eval",
            "shopjobs:Orders.__init__",
            "shopjobs:Orders.__class__",
            "shopjobs:Orders.process.__globals__",
            "shopjobs.__loader__:load_module",
        ],
    )
    def test_what_the_module_merely_imported_is_not_allowed(self, shop: ShopMaker, target: str) -> None:
        """An allowed module is no door to other modules, nor to Python's own attributes."""
        shop(HOSTILE)
        with pytest.raises(TargetNotAllowed):
            TargetRegistry(PrefixTargetPolicy(["shopjobs"])).resolve(target)

    @pytest.mark.parametrize(
        "target",
        [
            "shopjobs:os.system",
            "shopjobs:subprocess.Popen.communicate",
            "shopjobs:Orders.helper.system",
            "shopjobs:orders.process",
            "shopjobs:Popen",
            "shopjobs:Orders",
            "shopjobs:Orders.spawn",
            "shopjobs:Orders.danger",
            "shopjobs:orders",
            "shopjobs:outer.inner",
            "shopjobs:charge.anything",
        ],
    )
    def test_only_functions_and_methods_of_classes_are_found(self, shop: ShopMaker, target: str) -> None:
        """Modules and instances are not passed through; classes, properties and values are no targets."""
        shop(HOSTILE)
        with pytest.raises((TargetNotFound, TargetNotAllowed)):
            TargetRegistry(PrefixTargetPolicy(["shopjobs"])).resolve(target)

    @pytest.mark.parametrize("target", ["shopjobs:os.system", "shopjobs:subprocess.run"])
    def test_allowing_the_other_module_does_not_open_the_detour(self, shop: ShopMaker, target: str) -> None:
        """Even where os is allowed, it is reached as os:…, and never through another module."""
        shop(HOSTILE)
        with pytest.raises(TargetNotFound):
            TargetRegistry(PrefixTargetPolicy(["shopjobs", "os", "posix", "subprocess"])).resolve(target)

    @pytest.mark.parametrize(
        "target",
        [
            "",
            ":",
            "shopjobs",
            "shopjobs:",
            ":charge",
            "shopjobs:charge()",
            "shopjobs:charge:x",
            "shopjobs..x:charge",
            "../shopjobs:charge",
            "shopjobs:charge\n",
            "shopjobs:outer.<locals>.inner",
            "shopjobs; import os:charge",
        ],
    )
    def test_malformed_names_are_not_found(self, shop: ShopMaker, target: str) -> None:
        """Nothing that is not module:qualname gets as far as an import."""
        shop(HOSTILE)
        with pytest.raises(TargetNotFound, match="no job named"):
            TargetRegistry(PrefixTargetPolicy(["shopjobs"])).resolve(target)

    def test_a_function_with_a_forged_module_is_not_allowed(self, shop: ShopMaker) -> None:
        """Claiming another __module__ does not hide where the code comes from."""
        module = shop("")
        forged = type(charge)(subprocess.run.__code__, vars(subprocess), "run")
        forged.__module__ = "shopjobs"
        forged.__qualname__ = "run"
        module.run = forged  # type: ignore[attr-defined]
        with pytest.raises(TargetNotAllowed, match="subprocess"):
            TargetRegistry(PrefixTargetPolicy(["shopjobs"])).resolve("shopjobs:run")

    def test_the_same_holds_at_submit(self) -> None:
        """os.system is refused where it is submitted, not only where it would run."""
        with pytest.raises(TargetNotAllowed):
            TargetRegistry(PrefixTargetPolicy([HERE])).describe(os.system, ("true",))
