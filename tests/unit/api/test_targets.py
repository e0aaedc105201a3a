"""From name to object: what a worker finds, and what no name in the database leads to."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Barrier, Thread
from typing import Any

import pytest

from ratchet.api.targets import TargetRegistry
from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import TargetNotAllowed, TargetNotFound
from tests.unit.api.target_samples import HERE, OrderService, ShopMaker, charge


@pytest.fixture
def registry() -> TargetRegistry:
    return TargetRegistry(PrefixTargetPolicy([HERE]))


class Anything:
    """A policy that allows every target."""

    def allows(self, target: str) -> bool:
        return True

    def hint(self, target: str) -> str:
        return "nothing is missing"


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
        """Even where a policy of the user's allows everything, os is reached as os:…, never through another module."""
        shop(HOSTILE)
        with pytest.raises(TargetNotFound):
            TargetRegistry(Anything()).resolve(target)

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
