from __future__ import annotations

import pytest

from ratchet.defaults.target_policy import PrefixTargetPolicy
from ratchet.model.errors import ConfigurationError


class TestPrefixTargetPolicy:
    def test_nothing_is_allowed_by_default(self) -> None:
        """Deny-all until prefixes are given."""
        policy = PrefixTargetPolicy()
        assert not policy.allows("shop.jobs:charge")
        assert not policy.allows("os:system")
        assert not policy.allows("")

    @pytest.mark.parametrize(
        "module", ["builtins", "os", "os.path", "subprocess", "importlib.util", "ctypes", "sys"]
    )
    def test_modules_that_run_code_are_refused(self, module: str) -> None:
        """Allowing one of them would make write access to the database code execution; one function may be named."""
        with pytest.raises(ConfigurationError, match="run code here"):
            PrefixTargetPolicy(["shop", module])
        assert PrefixTargetPolicy([f"{module}:abs"]).allows(f"{module}:abs")

    def test_a_module_of_the_user_s_may_begin_like_one(self) -> None:
        """Whole names count."""
        assert PrefixTargetPolicy(["system", "os_jobs"]).allows("os_jobs:run")

    @pytest.mark.parametrize(
        ("prefix", "target", "allowed"),
        [
            ("shop", "shop:charge", True),
            ("shop", "shop.jobs:charge", True),
            ("shop", "shop.jobs:Orders.process", True),
            ("shop", "shopping:charge", False),
            ("shop", "shopping.jobs:charge", False),
            ("shop", "workshop:charge", False),
            ("shop", "Shop:charge", False),
            ("shop.jobs", "shop.jobs:charge", True),
            ("shop.jobs", "shop.jobs.nightly:charge", True),
            ("shop.jobs", "shop:jobs", False),
            ("shop.jobs", "shop.jobs2:charge", False),
            ("shop.jobs:Orders", "shop.jobs:Orders.process", True),
            ("shop.jobs:Orders", "shop.jobs:OrdersAdmin.process", False),
            ("shop.jobs:charge", "shop.jobs:charge", True),
            ("shop.jobs:charge", "shop.jobs:charge_all", False),
            ("__main__", "__main__:charge", True),
        ],
    )
    def test_a_prefix_matches_whole_names_only(self, prefix: str, target: str, allowed: bool) -> None:
        """A prefix ends at a dot or colon of the target, never inside a name."""
        assert PrefixTargetPolicy([prefix]).allows(target) is allowed

    @pytest.mark.parametrize(
        "prefix", ["", " ", "*", "shop.*", "shop.", ".shop", "shop jobs", "shop:", "shop/jobs", 7]
    )
    def test_a_prefix_that_is_no_name_is_refused(self, prefix: str) -> None:
        """A wildcard or an empty prefix must not allow everything or silently nothing."""
        with pytest.raises(ConfigurationError, match="module prefix"):
            PrefixTargetPolicy([prefix])

    def test_a_single_string_is_refused(self) -> None:
        """allow="shop" would otherwise mean the four letters."""
        with pytest.raises(ConfigurationError, match=r"allow=\['shop'\]"):
            PrefixTargetPolicy("shop")

    def test_the_hint_names_the_module_to_add(self) -> None:
        """The error message can tell a person exactly what to write."""
        assert "'shop.jobs'" in PrefixTargetPolicy().hint("shop.jobs:charge")
