from __future__ import annotations

import collections
import copy
import enum
import io
import json
import math
import pickle
import re
import subprocess
import sys
import threading
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.model.errors import (
    InvalidJob,
    PayloadTooLarge,
    TargetNotAllowed,
    TargetNotFound,
    UnstorableValue,
)
from ratchet.model.payload import (
    RESULT,
    RESULTS,
    ParameterTypes,
    StoredObject,
    decode,
    decode_result,
    decode_value,
    encode,
    encode_many,
    encode_result,
    encode_value,
    placeholders_in,
    substitute,
)

if TYPE_CHECKING:
    from decimal import Context as OnlyForTypeCheckers


class Color(enum.Enum):
    RED = "r"
    GREEN = (0, 255, 0)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass
class Item:
    sku: str
    price: Decimal
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Order:
    id: UUID
    items: tuple[Item, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Doubling:
    amount: int
    factor: InitVar[int]
    total: int = field(init=False)

    def __post_init__(self, factor: int) -> None:
        self.amount *= factor
        self.total = self.amount + 1


@dataclass
class Node:
    name: str
    next: Node | None = None


@dataclass
class WithLock:
    lock: Any


class Point(NamedTuple):
    x: int
    y: int = 0


class Shape(msgspec.Struct):
    name: str
    corners: list[Point] = []


class User(pydantic.BaseModel):
    name: str
    born: date
    site: pydantic.HttpUrl | None = None
    address: Annotated[str, pydantic.Field(alias="addr")] = "here"


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Texty(str):
    __slots__ = ()


class Stamp(datetime):
    pass


class Numbers(TypedDict):
    order: Order


class AttrsLike:
    """Follows the protocol of an attrs class, without attrs."""

    class _Attribute(NamedTuple):
        name: str
        default: Any

    __attrs_attrs__ = (_Attribute("x", "NOTHING"), _Attribute("y", 5))

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttrsLike) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it is mutable


HERE = __name__


def allow_here(module: str, qualname: str) -> bool:
    return module == HERE


def through(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What comes back of these arguments, every class of this module being allowed."""
    text = encode(args, kwargs, limit=None)
    json.loads(text)
    return decode(text, allow_type=allow_here)


def one(value: Any) -> Any:
    return through(value)[0][0]


def alike(one: Any, other: Any) -> bool:
    """Equal, of the same type, all the way down; NaN is like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            alike(a, b) and alike(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Node):
        return alike(vars(one), vars(other))
    if isinstance(one, datetime | time):
        return bool(one == other and one.tzinfo == other.tzinfo and one.fold == other.fold)
    return bool(one == other)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=20),
    st.uuids(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=-3, minutes=30)))),
    st.decimals(allow_nan=False),
    st.sampled_from([*Color, *Level, Mode.READ | Mode.WRITE, Mode(0)]),
)
leaves = st.one_of(hashable, st.floats(), st.decimals(), st.binary().map(bytearray))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(text | st.just("$"), inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=4),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.builds(Node, name=text, next=inner),
    ),
    max_leaves=15,
)


class TestRoundTrip:
    @given(st.lists(values, max_size=3), st.dictionaries(text, values, max_size=3))
    def test_everything_comes_back_equal_and_of_the_same_type(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        """For any nesting of supported values, what is read is what was written, types included."""
        read_args, read_kwargs = decode(encode(args, kwargs, limit=None), allow_type=allow_here)
        assert alike(read_args, tuple(args))
        assert alike(read_kwargs, kwargs)

    def test_plain_json_is_written_as_it_is(self) -> None:
        """The common case is readable JSON, without tags."""
        written = encode((42, "x", 1.5, None, True, [1, {"a": "é"}]), {"k": {}})
        assert written == '{"args":[42,"x",1.5,null,true,[1,{"a":"é"}]],"kwargs":{"k":{}}}'

    @pytest.mark.parametrize(
        "value",
        [
            2**63,
            -(2**63) - 1,
            2**63 - 1,
            10**6000,
            True,
            1,
            1.0,
            -0.0,
            1e16,
            math.inf,
            -math.inf,
            math.nan,
            Decimal("1.10"),
            Decimal("NaN"),
            Decimal("-Infinity"),
            Decimal("1E+500"),
            b"\x00\xff",
            bytearray(b"\x00"),
            timedelta(days=-1, microseconds=1),
            timedelta.max,
            time(12, 30, fold=1),
            time(12, 30, tzinfo=ZoneInfo("Europe/Berlin")),
            (),
            ((1, 2), [3]),
            {1: "a", "1": "b", None: "c", (1, 2): "d"},
            {"$": "datetime", "v": "not one"},
            {"$": {"$": 1}},
            {"a": {"$": None}},
            "$",
            ["$", {"x": "$"}],
            frozenset({1, "a"}),
            set(),
            Level.HIGH,
            Color.GREEN,
            Mode.READ | Mode.WRITE,
            Point(1, 2),
            Order(
                UUID("d8331339-a8c1-4cba-b068-8d1a6d4d3c11"),
                (Item("a", Decimal("1.5"), datetime(2026, 1, 1, tzinfo=UTC)),),
                {"$": 1},
            ),
            Shape("triangle", [Point(0), Point(1, 1)]),
            AttrsLike(1, 2),
            "back\\u0000slash",
        ],
        ids=lambda value: type(value).__name__,  # not its repr: a set's differs from process to process
    )
    def test_awkward_values(self, value: Any) -> None:
        """Values at the edges of JSON come back exactly."""
        assert alike(one(value), value)
        assert alike(one({"deep": [value]}), {"deep": [value]})

    def test_naive_datetimes_stay_naive(self) -> None:
        """Arguments are the user's: a naive time is neither refused nor given a zone."""
        assert one(datetime(2026, 1, 1)).tzinfo is None

    def test_zones_keep_their_name_and_fold(self) -> None:
        """A ZoneInfo comes back as that zone, on the same side of the autumn hour."""
        late = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
        read = one(late)
        assert read.tzinfo == ZoneInfo("Europe/Berlin")
        assert read.fold == 1
        assert read.utcoffset() == timedelta(hours=1)

    def test_dataclasses_are_restored_without_running_their_code_again(self) -> None:
        """A __post_init__ that changes fields ran once; its effect is stored, not repeated."""
        made = Doubling(10, factor=2)
        assert one(made) == made
        assert one(made).total == 21

    def test_pydantic_models_use_their_own_json(self) -> None:
        """Aliases and pydantic's own types survive."""
        fields = {"name": "Ann", "born": "2000-01-01", "site": "https://a.example/", "addr": "there"}
        user = User.model_validate(fields)
        assert user.address == "there"
        assert one(user) == user

    def test_subclasses_of_times_become_plain(self) -> None:
        """A datetime subclass is stored as the datetime it is; the instant survives, the class does not."""
        read = one(Stamp(2026, 1, 1, tzinfo=UTC))
        assert type(read) is datetime
        assert read == datetime(2026, 1, 1, tzinfo=UTC)

    def test_key_order_and_whitespace_do_not_matter(self) -> None:
        """A database that reformats JSON, as jsonb does, changes nothing."""
        order = Order(uuid4(), (Item("a", Decimal(1)),))
        reformatted = json.dumps(json.loads(encode((order, {1: 2}), {})), sort_keys=True, indent=2)
        assert decode(reformatted, allow_type=allow_here)[0] == (order, {1: 2})


class TestRefusals:
    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            ((1, {"user": WithLock(threading.Lock())}), {}, r"^args\[1\]\['user'\]\.lock is a _thread\.lock.*inside the job"),
            ((), {"key": [lambda: 1]}, r"^kwargs\['key'\]\[0\] is a function.*pass its name"),
            (((n for n in [1]),), {}, r"^args\[0\] is a generator.*list\(value\)"),
            ((io.StringIO(),), {}, r"_io\.StringIO.*the path"),
            ((object(),), {}, r"^args\[0\] is a object.*plain values"),
            ((Texty("a"),), {}, r"Texty.*str\(value\)"),
            ((collections.OrderedDict(a=1),), {}, r"OrderedDict.*dict\(value\)"),
            ((collections.deque([1]),), {}, r"deque.*list\(value\)"),
            ((Path("x"),), {}, r"Path.*str\(value\)"),
            ((ValueError("x"),), {}, r"ValueError.*str\(error\)"),
            ((Order,), {}, r"type.*name"),
            ((memoryview(b"x"),), {}, r"memoryview.*bytes\(value\)"),
            (({1: {"a\0": 1}},), {}, r"^args\[0\]\[1\] key 'a\\x00' is text that contains U\+0000"),
            (("a\0b",), {}, r"^args\[0\] is text that contains U\+0000"),
            ((["x", "\ud800"],), {}, r"^args\[0\]\[1\] is text that contains half of a surrogate"),
            ((Login(password=pydantic.SecretStr("s")),), {}, r"^args\[0\] cannot be stored faithfully.*Login"),
            ((User(name="a\0", born=date(2000, 1, 1)),), {}, r"args\[0\]\['name'\].*U\+0000"),
        ],
    )  # fmt: skip
    def test_message_names_the_path_and_the_way_out(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
    ) -> None:
        """What JSON cannot carry is refused with where it is and what to pass instead."""
        with pytest.raises(UnstorableValue, match=message):
            encode(args, kwargs)

    def test_refuses_nul_in_keyword_names(self) -> None:
        """Keyword names are text like any other."""
        with pytest.raises(UnstorableValue, match=r"keyword.*U\+0000"):
            encode((), {"a\0": 1})

    def test_refuses_cycles(self) -> None:
        """A structure that contains itself is refused with the place where it closes."""
        loop: list[Any] = [1]
        loop.append({"again": loop})
        with pytest.raises(UnstorableValue, match=r"^args\[0\]\[1\]\['again'\] is the list that contains it"):
            encode((loop,), {})
        node = Node("a")
        node.next = node
        with pytest.raises(UnstorableValue, match=r"^args\[0\]\.next is the Node"):
            encode((node,), {})

    def test_the_same_value_twice_is_no_cycle(self) -> None:
        """Two references to one list are two lists in JSON, and allowed."""
        shared = [(1,)]
        assert one([shared, shared]) == [[(1,)], [(1,)]]

    def test_refuses_bottomless_nesting(self) -> None:
        """Deep nesting is an UnstorableValue, not a RecursionError."""
        deep: Any = 1
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(UnstorableValue, match="levels deep"):
            encode((deep,), {})
        # freeing it recursively would overflow the C stack on some versions
        while isinstance(deep, list):
            deep = deep.pop()

    def test_refuses_classes_nobody_can_import(self) -> None:
        """A class defined inside a function has no name that leads to it."""

        @dataclass
        class Local:
            x: int

        with pytest.raises(UnstorableValue, match=r"<locals>\.Local.*top level"):
            encode((Local(1),), {})

    def test_too_large_says_how_large_and_what_to_do(self) -> None:
        """The cap counts bytes of JSON, not characters, and the message has the size."""
        encode(("x" * 100_000,), {})
        with pytest.raises(PayloadTooLarge, match=r"120,025 bytes.*102,400.*pass a reference"):
            encode(("é" * 60_000,), {})
        with pytest.raises(PayloadTooLarge):
            encode((b"x" * 100_000,), {})
        assert encode(("x" * 200_000,), {}, limit=None)


class TestMany:
    @given(st.lists(st.tuples(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))))
    def test_many_calls_are_encoded_as_each_is(self, calls: list[tuple[Any, ...]]) -> None:
        """The same text as one by one, and where one by one is refused, so are all."""
        try:
            one_by_one = [encode(args, {}) for args in calls]
        except UnstorableValue as refused:
            with pytest.raises(UnstorableValue, match=re.escape(str(refused))):
                encode_many(calls)
        else:
            assert encode_many(calls) == one_by_one

    def test_what_needs_a_tag_and_what_is_nested(self) -> None:
        """Values under a tag, mappings, lists, placeholders, a named tuple as the arguments."""
        calls = [
            (),
            (1, [2, {"$": 3}]),
            (Decimal(1), date(2026, 1, 1)),
            ({"k": [None]},),
            (RESULT,),
            Point(1, 2),
        ]
        assert encode_many(calls) == [encode(args, {}) for args in calls]

    def test_the_limit_is_that_of_one(self) -> None:
        """To the byte, with the same message."""
        size = len(encode(("x" * 50,), {}))
        assert encode_many([("x" * 50,)], limit=size) == [encode(("x" * 50,), {})]
        with pytest.raises(PayloadTooLarge, match=f"{size} bytes"):
            encode_many([(1,), ("x" * 50,)], limit=size - 1)
        assert encode_many([("x" * 200_000,)], limit=None)

    def test_the_policy_is_asked(self) -> None:
        """A class that the worker's policy would refuse is refused here already."""
        with pytest.raises(TargetNotAllowed):
            encode_many([(1,), (Item("a", Decimal(1)),)], allow_type=lambda module, qualname: False)


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


class TestDamage:
    @pytest.mark.parametrize(
        "stored",
        [
            "",
            "[]",
            '{"args":[]}',
            '{"args":{},"kwargs":{}}',
            '{"args":[{"$":"nonsense"}],"kwargs":{}}',
            '{"args":[{"$":["x"]}],"kwargs":{}}',
            '{"args":[{"$":"uuid","v":"x"}],"kwargs":{}}',
            '{"args":[{"$":"datetime","v":"2026-01-01","z":"../../etc/passwd"}],"kwargs":{}}',
            '{"args":[{"$":"set","v":[[]]}],"kwargs":{}}',
            '{"args":[{"$":"timedelta","v":[9999999999,0,0]}],"kwargs":{}}',
            '{"args":[{"$":"bytes","v":"é"}],"kwargs":{}}',
            '{"args":[{"$":"dict","v":[1]}],"kwargs":{}}',
            '{"args":' + "[" * 100_000,
        ],
        ids=lambda stored: stored[:40],
    )
    def test_foreign_text_is_a_clear_error(self, stored: str) -> None:
        """Text that encode did not write raises InvalidJob and nothing else."""
        with pytest.raises(InvalidJob):
            decode(stored)

    @given(st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(
        st.sampled_from(["$", "v", "t", "z"]), x | st.sampled_from(["dataclass", "enum", "datetime", "tuple", "dict"])
    )))  # fmt: skip
    def test_arbitrary_json_never_raises_anything_else(self, value: Any) -> None:
        """Whatever JSON stands in the database, reading it works or raises one of Ratchet's errors."""
        try:
            decode(json.dumps({"args": [value], "kwargs": {}}), allow_type=allow_here)
        except (InvalidJob, TargetNotAllowed, TargetNotFound):
            pass


class TestResults:
    def test_none_is_no_text(self) -> None:
        """A job without a result stores none."""
        assert encode_result(None) == (None, False)
        assert decode_result(None) is None

    @given(values.filter(lambda value: value is not None))
    def test_results_round_trip_like_arguments(self, value: Any) -> None:
        """Whatever fits an argument fits a result."""
        encoded = encode_result(value, limit=10**9)
        assert not encoded.truncated
        assert alike(decode_result(encoded.text, allow_type=allow_here), value)

    @given(st.recursive(st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
    def test_any_text_survives_in_a_result(self, value: Any) -> None:
        """U+0000 and lone surrogates, in values and keys, are escaped in the store and restored exactly."""
        stored = encode_result(value, limit=10**9).text
        assert stored is not None
        stored.encode()
        assert "\\u0000" not in stored.replace("\\\\", "")
        assert decode_result(stored) == value

    def test_model_with_nul_is_kept(self) -> None:
        """A pydantic result with U+0000 does not fail the job."""
        user = User(name="a\0b", born=date(2000, 1, 1))
        stored = encode_result(user).text
        assert stored is not None
        assert "\\u0000" not in stored.replace("\\\\", "")
        assert decode_result(stored, allow_type=allow_here) == user

    @pytest.mark.parametrize(
        "value", ["é" * 100_000, '"' * 100_000, "\0" * 100_000, "\ud800" * 100_000, list(range(50_000)), {"a": b"x" * 10**6}]
    )  # fmt: skip
    @pytest.mark.parametrize("limit", [64, 1000, 64 * 1024])
    def test_too_large_becomes_a_flagged_preview(self, value: Any, limit: int) -> None:
        """A result over the limit is a JSON string within the limit that starts like the result."""
        encoded = encode_result(value, limit)
        assert encoded.truncated
        assert encoded.text is not None
        assert limit / 4 < len(encoded.text.encode()) <= limit
        preview = decode_result(encoded.text)
        assert isinstance(preview, str)
        if value == "é" * 100_000:
            assert set(preview) == {"é"}
        if isinstance(value, list):
            assert preview.startswith("[0,1,2,3")

    def test_exactly_at_the_limit_is_kept(self) -> None:
        """The limit itself is allowed."""
        assert encode_result("x" * 98, limit=100) == ('"' + "x" * 98 + '"', False)
        assert encode_result("x" * 99, limit=100).truncated

    def test_unstorable_result_names_the_path(self) -> None:
        """What JSON cannot carry raises, for the engine to record."""
        with pytest.raises(UnstorableValue, match=r"^result\['lock'\] is a _thread\.lock"):
            encode_result({"lock": threading.Lock()})
        with pytest.raises(UnstorableValue, match="only in the arguments"):
            encode_result([RESULT])


class TestValues:
    def test_params_and_state_follow_the_same_rules(self) -> None:
        """Parameters and state round trip, refuse the same things, and have a name in messages."""
        params = {"region": "eu", "at": datetime(2026, 1, 1, tzinfo=UTC), "n": (1,)}
        assert decode_value(encode_value(params, name="params")) == params
        with pytest.raises(UnstorableValue, match=r"^params\['x'\] is a object"):
            encode_value({"x": object()}, name="params")
        with pytest.raises(UnstorableValue, match=r"^state\['x'\].*U\+0000"):
            encode_value({"x": "\0"}, name="state")
        with pytest.raises(PayloadTooLarge, match=r"state takes 1,002 bytes.*1,000"):
            encode_value("x" * 1000, name="state", limit=1000)
        assert decode_value(encode_value("x", limit=3)) == "x"
        with pytest.raises(InvalidJob, match="the stored state cannot be read"):
            decode_value("{", name="state")


class TestPlaceholders:
    def test_they_are_singletons_through_everything(self) -> None:
        """Stored, copied or pickled, RESULT is RESULT."""
        assert repr(RESULT) == "RESULT"
        assert repr(RESULTS) == "RESULTS"
        for placeholder in (RESULT, RESULTS):
            assert copy.deepcopy(placeholder) is placeholder
            assert pickle.loads(pickle.dumps(placeholder)) is placeholder
            assert one({"a": [(placeholder,)]})["a"][0][0] is placeholder

    def test_substitute_reaches_every_depth(self) -> None:
        """Placeholders in containers, keys and dataclasses are replaced; the rest is left alone."""
        result: Any = RESULT
        args = (
            result,
            [RESULTS, {"a": (result,)}],
            {result: 1},
            Node("n", Node("m", result)),
            Point(result, 2),
            {result},
        )
        read = through(*args)[0]
        seven: Any = 7
        expected = (7, [[1, 2], {"a": (7,)}], {7: 1}, Node("n", Node("m", seven)), Point(7, 2), {7})
        assert substitute(read, result=7, results=[1, 2]) == expected
        assert read == args

    def test_substitute_returns_what_holds_none_as_it_is(self) -> None:
        """Nothing is copied without need."""
        args = ([1], {"a": Node("x")})
        assert substitute(args) is args

    def test_result_may_be_none_but_not_missing(self) -> None:
        """None is a result; no parent is an error that names the placeholder."""
        assert substitute((RESULT,), result=None) == (None,)
        with pytest.raises(InvalidJob, match="RESULTS stands for the results"):
            substitute((RESULTS,), result=1)

    def test_placeholders_in_finds_them(self) -> None:
        """A submission can see which parents its arguments need, even in a structure with a cycle."""
        loop: list[Any] = [RESULT]
        loop.append(loop)
        assert placeholders_in(([{"a": RESULTS}], loop)) == {RESULT, RESULTS}
        assert placeholders_in((1, "RESULT")) == frozenset()


def test_importing_the_codec_imports_no_pydantic() -> None:
    """Pydantic is optional: it is recognized, never imported."""
    code = "import sys, ratchet.model.payload; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
