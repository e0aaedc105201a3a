"""Payloads and classes: which may be restored, and what annotations say about plain values."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType
from uuid import UUID, uuid4

import pytest

from ratchet.model.errors import InvalidJob, TargetNotAllowed, TargetNotFound
from ratchet.model.payload import ParameterTypes, StoredObject, decode, decode_result, encode, encode_result
from tests.unit.model.payload_samples import (
    HERE,
    Color,
    Item,
    Level,
    Node,
    Numbers,
    Order,
    Point,
    Shape,
    User,
    alike,
    allow_here,
)

if TYPE_CHECKING:
    from decimal import Context as OnlyForTypeCheckers


class TestClassPolicy:
    def test_unmentioned_class_is_refused(self) -> None:
        """Without an annotation or a policy no class is restored, and the message says what to add."""
        stored = encode((Item("a", Decimal(1)),), {})
        with pytest.raises(TargetNotAllowed, match=rf"args\[0\]: {HERE}:Item may not.*allow=\['{HERE}'\]"):
            decode(stored)
        with pytest.raises(TargetNotAllowed):
            decode(stored, allow_type=lambda module, qualname: False)

    def test_policy_is_asked_with_module_and_name(self) -> None:
        """The policy decides by module and qualified name."""
        asked: list[tuple[str, str]] = []

        def allow(module: str, qualname: str) -> bool:
            asked.append((module, qualname))
            return True

        assert decode(encode((Level.LOW,), {}), allow_type=allow) == ((Level.LOW,), {})
        assert asked == [(HERE, "Level")]

    def test_annotations_allow_what_they_mention(self) -> None:
        """A class in the signature, also inside containers and other classes, needs no policy."""

        def target(
            first: list[Order | None], /, *rest: Level, user: User, **named: Annotated[Color, "x"]
        ) -> Shape:
            raise NotImplementedError

        types = ParameterTypes.of(target)
        order = Order(uuid4(), (Item("a", Decimal(1)),))
        user = User(name="Ann", born=date(2000, 1, 1))
        args: tuple[Any, ...] = ([order, None], Level.LOW, Level.HIGH)
        kwargs = {"user": user, "color": Color.RED}
        assert decode(encode(args, kwargs), types) == (args, kwargs)
        shape = Shape("line", [Point(1)])
        assert decode_result(encode_result(shape).text, types) == shape

    def test_refused_class_is_never_imported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module named in stored text is not imported unless the policy says yes."""
        (tmp_path / "evil_module_of_test_payload.py").write_text("raise SystemExit('executed')")
        monkeypatch.syspath_prepend(str(tmp_path))
        stored = '{"args":[{"$":"dataclass","t":"evil_module_of_test_payload:X","v":{}}],"kwargs":{}}'
        with pytest.raises(TargetNotAllowed):
            decode(stored, ParameterTypes.of(print), allow_type=allow_here)
        assert decode(stored, strict=False)[0] == (StoredObject("evil_module_of_test_payload:X", {}),)
        assert "evil_module_of_test_payload" not in sys.modules

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            ("dataclass", "subprocess:Popen"),
            ("dataclass", "os:system"),
            ("enum", "builtins:eval"),
            ("namedtuple", f"{HERE}:Order"),
            ("pydantic", f"{HERE}:Order"),
        ],
    )
    def test_even_an_allowed_name_must_be_a_class_of_its_kind(self, kind: str, name: str) -> None:
        """A policy that allows everything still builds nothing but data classes of the stored kind."""
        stored = json.dumps({"args": [{"$": kind, "t": name, "v": {"args": "true"}}], "kwargs": {}})
        with pytest.raises(TargetNotAllowed):
            decode(stored, allow_type=lambda module, qualname: True)

    def test_vanished_class_is_not_found(self) -> None:
        """An allowed class that is gone is TargetNotFound, with its name."""
        stored = encode((Level.LOW,), {}).replace(":Level", ":Gone")
        with pytest.raises(TargetNotFound, match=rf"{HERE}:Gone"):
            decode(stored, allow_type=allow_here)

    def test_submit_can_refuse_what_the_worker_would(self) -> None:
        """With the policy at hand, encode refuses a class that could not be restored."""

        def takes_order(order: Order) -> None: ...

        def deny(module: str, qualname: str) -> bool:
            return False

        order = Order(uuid4())
        types = ParameterTypes.of(takes_order)
        assert encode((order,), {}, types=types, allow_type=deny)
        with pytest.raises(TargetNotAllowed, match=r"^args\[1\] is an instance of .*Node"):
            encode((order, Node("a")), {}, types=types, allow_type=deny)

    def test_readers_that_only_show_get_a_stand_in(self) -> None:
        """With strict=False a class that may not be restored is shown by name and fields."""
        (shown, level), _ = decode(encode((Item("a", Decimal(1)), Level.LOW), {}), strict=False)
        assert shown == StoredObject(f"{HERE}:Item", {"sku": "a", "price": Decimal(1), "at": None})
        assert level == StoredObject(f"{HERE}:Level", "LOW")


Money = NewType("Money", Decimal)


class TestAnnotations:
    @pytest.mark.parametrize(
        ("annotation", "stored", "expected"),
        [
            (datetime, "2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
            (date | None, "2026-01-01", date(2026, 1, 1)),
            (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
            (Money, "1.50", Decimal("1.50")),
            (Level, 2, Level.HIGH),
            (Item, {"sku": "a", "price": "2", "at": None}, Item("a", Decimal(2))),
            (User, {"name": "a", "born": "2000-01-01"}, User(name="a", born=date(2000, 1, 1))),
            (list[date], ["2026-01-01"], [date(2026, 1, 1)]),
            (dict[str, Decimal], {"a": "1"}, {"a": Decimal(1)}),
            (dict[date, int], {"2026-01-01": 1}, {date(2026, 1, 1): 1}),
            (tuple[int, date], [1, "2026-01-01"], (1, date(2026, 1, 1))),
            (set[int], [1, 2], {1, 2}),
            (str | date, "2026-01-01", "2026-01-01"),
            (float, 1, 1),
            (int, "x", "x"),
            (UUID, "no uuid", "no uuid"),
            (Item, {"sku": "a"}, {"sku": "a"}),
            (Any, "2026-01-01", "2026-01-01"),
            (object, {"a": 1}, {"a": 1}),
            (Literal["a"], "a", "a"),
        ],
    )  # fmt: skip
    def test_plain_json_becomes_what_the_annotation_names(
        self, annotation: Any, stored: Any, expected: Any
    ) -> None:
        """Untagged values are converted where exactly one type is named and fits; else they stay."""

        def target(value: Any) -> None: ...

        target.__annotations__ = {"value": annotation}
        written = json.dumps({"args": [stored], "kwargs": {}})
        assert alike(decode(written, ParameterTypes.of(target))[0][0], expected)
        written = json.dumps({"args": [], "kwargs": {"value": stored}})
        assert alike(decode(written, ParameterTypes.of(target))[1]["value"], expected)

    def test_tags_win_over_annotations(self) -> None:
        """A value that was tagged stays what it was, also where the annotation is wider or wrong."""

        def target(a: date, b: str, c: list[int]) -> None: ...

        args = (datetime(2026, 1, 1), b"x", (1, 2))
        assert alike(decode(encode(args, {}), ParameterTypes.of(target))[0], args)

    def test_a_class_that_moved_is_found_by_the_annotation(self) -> None:
        """The annotation's class is used for the same name in another module, as from __main__."""

        def target(order: Order | None, items: list[Item]) -> None: ...

        order = Order(uuid4())
        stored = encode((order, [Item("a", Decimal(1))]), {}).replace(f'"{HERE}:', '"__main__:')
        assert decode(stored, ParameterTypes.of(target))[0] == (order, [Item("a", Decimal(1))])

    def test_a_subclass_is_not_cut_down_to_the_annotated_class(self) -> None:
        """Another class than the annotated one is refused, never turned into it."""

        def target(item: Item) -> None: ...

        stored = encode((Node("a"),), {})
        with pytest.raises(TargetNotAllowed, match="Node"):
            decode(stored, ParameterTypes.of(target))

    def test_fields_added_and_removed_between_deploys(self) -> None:
        """A new field takes its default, a removed one is ignored, a new one without default is an error."""
        stored = encode((Item("a", Decimal(1), datetime(2026, 1, 1, tzinfo=UTC)),), {})
        without = stored.replace('"at"', '"removed"')
        assert decode(without, allow_type=allow_here)[0] == (Item("a", Decimal(1)),)
        with pytest.raises(InvalidJob, match=r"no field 'sku'.*needs a default"):
            decode(stored.replace('"sku"', '"removed"'), allow_type=allow_here)

    def test_one_unresolvable_annotation_does_not_cost_the_others(self) -> None:
        """A name imported for type checkers only counts as Any; the other parameters keep theirs."""

        def target(context: OnlyForTypeCheckers, item: Item) -> None: ...

        item = Item("a", Decimal(1))
        assert decode(encode((1, item), {}), ParameterTypes.of(target))[0] == (1, item)

    def test_self_is_skipped_for_methods(self) -> None:
        """For a function taken from a class the first stored argument is the second parameter."""

        class Service:
            def process(self, on: date) -> None: ...

        types = ParameterTypes.of(Service.process, skip_first=True)
        assert decode('{"args":["2026-01-01"],"kwargs":{}}', types)[0] == (date(2026, 1, 1),)
        assert decode('{"args":["2026-01-01"],"kwargs":{}}', ParameterTypes.of(Service().process))[0] == (
            date(2026, 1, 1),
        )

    def test_typed_dicts_mention_their_values(self) -> None:
        """Classes in the values of a TypedDict are mentioned by the annotation."""

        def target(numbers: Numbers) -> None: ...

        value = {"order": Order(uuid4())}
        assert decode(encode((value,), {}), ParameterTypes.of(target))[0] == (value,)

    def test_simple_signatures_take_the_fast_path(self) -> None:
        """Annotations that change no JSON value are recognized as such."""

        def simple(a: int, b: str | None, *rest: float, c: dict[str, list[Any]]) -> datetime:
            raise NotImplementedError

        def special(a: list[date]) -> None: ...

        assert ParameterTypes.of(simple).trivial
        assert not ParameterTypes.of(special).trivial
