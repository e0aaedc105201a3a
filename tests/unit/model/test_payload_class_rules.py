"""A type tag obeys the rules of a stored target: it may name little, and makes nothing run."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet import Scheduler
from ratchet.model.errors import TargetNotAllowed, TargetNotFound
from ratchet.model.job import JobSpec
from ratchet.model.payload import ParameterTypes, StoredObject, decode, encode
from ratchet.testing import manual_scheduler

SHOP = """
import dataclasses, enum, msgspec, pydantic, subprocess
from typing import NamedTuple
from outside_of_shop import Tool, Box

made = []

def make():
    made.append("factory")
    return 7

@dataclasses.dataclass
class Order:
    number: int
    plain: list = dataclasses.field(default_factory=list)
    costly: int = dataclasses.field(default_factory=make)

    @dataclasses.dataclass
    class Line:
        sku: str

class Struct(msgspec.Struct):
    number: int
    costly: int = msgspec.field(default_factory=make)

class Model(pydantic.BaseModel):
    number: int
    costly: int = pydantic.Field(default_factory=make)

class Size(enum.Enum):
    S = 1

def take(order): ...
def take_order(order: Order): ...
"""
OUTSIDE = """
import dataclasses

@dataclasses.dataclass
class Tool:
    name: str

class Box:
    @dataclasses.dataclass
    class Inner:
        name: str
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package `shop_of_tags`, not imported yet, that re-exports what another module defines."""
    package = tmp_path / "shop_of_tags"
    package.mkdir()
    (package / "__init__.py").write_text(SHOP)
    (package / "__main__.py").write_text("raise SystemExit('the program was run')")
    (package / "broken.py").write_text("raise SystemExit('imported')")
    (tmp_path / "outside_of_shop.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield None
    for name in [name for name in sys.modules if name.startswith(("shop_of_tags", "outside_of_shop"))]:
        del sys.modules[name]


def tagged(name: str, fields: Any, kind: str = "dataclass") -> str:
    return json.dumps({"args": [{"$": kind, "t": name, "v": fields}], "kwargs": {}})


def allow(*prefixes: str) -> Callable[[str, str], bool]:
    return lambda module, qualname: module.partition(".")[0] in prefixes


class TestWhatATagMayName:
    def test_a_class_of_an_allowed_module_is_restored(self, shop: None) -> None:
        """Also one inside another; its module is imported for a run."""
        ((order,), _) = decode(
            tagged("shop_of_tags:Order", {"number": 1, "costly": 2}), allow_type=allow("shop_of_tags")
        )
        assert (order.number, order.plain, order.costly) == (1, [], 2)
        ((line,), _) = decode(
            tagged("shop_of_tags:Order.Line", {"sku": "a"}), allow_type=allow("shop_of_tags")
        )
        assert line.sku == "a"

    @pytest.mark.parametrize(
        "name",
        [
            "shop_of_tags.__main__:Order",
            "shop_of_tags:__builtins__",
            "shop_of_tags:Order.__class__",
            "shop_of_tags:Order.__init__.__globals__",
            "shop_of_tags",
            "shop_of_tags:",
            "shop_of_tags:Order..Line",
            "shop_of_tags:Order.<locals>.X",
            ":Order",
            "shop_of_tags:Order:Line",
            "shop of tags:Order",
        ],
    )
    def test_names_that_are_not_plain_are_refused_before_an_import(self, shop: None, name: str) -> None:
        """A package's program is not run, and nothing of Python's own is reached, whatever the policy says."""
        with pytest.raises(TargetNotAllowed):
            decode(tagged(name, {}), allow_type=lambda module, qualname: True)
        assert "shop_of_tags" not in sys.modules

    @pytest.mark.parametrize("name", ["Tool", "Box.Inner", "subprocess.Popen", "dataclasses.Field"])
    def test_what_an_allowed_module_only_imports_is_refused(self, shop: None, name: str) -> None:
        """`from outside import Tool` does not make it restorable, nor what is in it, nor a module's contents."""
        with pytest.raises((TargetNotAllowed, TargetNotFound)):
            decode(tagged(f"shop_of_tags:{name}", {"name": "x"}), allow_type=allow("shop_of_tags"))

    def test_a_class_that_moved_is_found_where_it_is_exported(self, shop: None) -> None:
        """A re-export of a class from a module that is allowed too keeps the old name working."""
        both = allow("shop_of_tags", "outside_of_shop")
        ((tool,), _) = decode(tagged("shop_of_tags:Tool", {"name": "saw"}), allow_type=both)
        assert tool.name == "saw"

    def test_a_module_that_exits_is_not_found(self, shop: None) -> None:
        """Importing it fails the job; it must not end the worker."""
        with pytest.raises(TargetNotFound, match="SystemExit: imported"):
            decode(tagged("shop_of_tags.broken:X", {}), allow_type=allow("shop_of_tags"))


class TestFactories:
    @pytest.mark.parametrize(
        ("kind", "name"), [("dataclass", "Order"), ("struct", "Struct"), ("pydantic", "Model")]
    )
    def test_a_row_that_omits_a_field_calls_nothing(self, shop: None, kind: str, name: str) -> None:
        """The default of a field is not made by code for a class that only the row names."""
        with pytest.raises(TargetNotAllowed, match="no field 'costly'"):
            decode(tagged(f"shop_of_tags:{name}", {"number": 1}, kind), allow_type=allow("shop_of_tags"))
        assert sys.modules["shop_of_tags"].made == []

    def test_a_field_that_a_deploy_adds_is_filled(self, shop: None) -> None:
        """For a class in the target's annotations, which the code names, its default is made."""
        import shop_of_tags  # type: ignore[import-not-found]  # made by the fixture

        types = ParameterTypes.of(shop_of_tags.take_order)
        ((order,), _) = decode(tagged("shop_of_tags:Order", {"number": 1}), types)
        assert (order.plain, order.costly) == ([], 7)


class TestReaders:
    @pytest.fixture
    def scheduler(self) -> Iterator[Scheduler]:
        made = manual_scheduler(allow=["shop_of_tags"])
        yield made
        made.close()

    def stored(self, scheduler: Any, payload: str) -> Any:
        now = scheduler.backend.now()
        spec = JobSpec(
            job_id=scheduler.backend.ids(),
            target="shop_of_tags:take",
            payload=payload,
            params=json.dumps({"p": json.loads(payload)["args"][0]}),
            scheduled_at=now,
        )
        scheduler.store.insert([spec], now=now)
        return spec.job_id

    def test_reading_imports_nothing(self, shop: None, scheduler: Any) -> None:
        """`jobs.get`, `find` and `handle.job()` show name and fields of a class that is not loaded, also an allowed one."""
        job_id = self.stored(scheduler, tagged("shop_of_tags:Order", {"number": 1, "plain": []}))
        for job in (scheduler.jobs.get(job_id), *scheduler.jobs.find(), scheduler.handle(job_id).job()):
            assert job.args == (StoredObject("shop_of_tags:Order", {"number": 1, "plain": []}),)
            assert repr(job.args[0]) == "shop_of_tags:Order(number=1, plain=[])"
            assert job.params["p"] == job.args[0]
        assert "shop_of_tags" not in sys.modules

    def test_reading_runs_no_code_of_a_loaded_class(self, shop: None, scheduler: Any) -> None:
        """An instance of an allowed class that is loaded is shown as such; a default is never made for it."""
        import shop_of_tags

        order = shop_of_tags.Order(1, [], 2)
        whole = self.stored(scheduler, encode((order,), {}))
        partial = self.stored(scheduler, tagged("shop_of_tags:Order", {"number": 1}))
        again = self.stored(scheduler, tagged("shop_of_tags:Tool", {"name": "saw"}))
        assert scheduler.jobs.get(whole).args == (order,)
        assert scheduler.jobs.get(partial).args == (StoredObject("shop_of_tags:Order", {"number": 1}),)
        assert scheduler.jobs.get(again).args == (StoredObject("shop_of_tags:Tool", {"name": "saw"}),)
        assert shop_of_tags.made == []

    def test_fields_that_a_class_refuses_are_shown(self, shop: None, scheduler: Any) -> None:
        """A model that does not validate, and a member that is gone, spoil nothing."""
        import shop_of_tags  # noqa: F401  # the class is to be loaded

        bad = tagged("shop_of_tags:Model", {"number": "x", "costly": 1}, "pydantic")
        model = self.stored(scheduler, bad)
        size = self.stored(scheduler, tagged("shop_of_tags:Size", "XL", "enum"))
        assert scheduler.jobs.get(model).args[0].value == {"number": "x", "costly": 1}
        assert repr(scheduler.jobs.get(size).args[0]) == "shop_of_tags:Size('XL')"


def test_a_class_of_the_started_script_is_stored_as_others_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that imports the script as a module finds the class under that module's name."""

    @dataclasses.dataclass
    class Receipt:
        number: int

    Receipt.__module__, Receipt.__qualname__ = "__main__", "Receipt"
    monkeypatch.setattr(sys.modules["__main__"], "Receipt", Receipt, raising=False)
    monkeypatch.setattr("ratchet.model.payload.classes.importable_name", lambda module: "shop_script")
    assert json.loads(encode((Receipt(1),), {}))["args"][0]["t"] == "shop_script:Receipt"
