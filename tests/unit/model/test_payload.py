"""Payloads: what is written comes back, of the same type, and what cannot be stored is refused."""

from __future__ import annotations

import collections
import io
import json
import math
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.model.errors import PayloadTooLarge, TargetNotAllowed, UnstorableValue
from ratchet.model.payload import RESULT, decode, encode, encode_many
from tests.unit.model.payload_samples import (
    AttrsLike,
    Color,
    Doubling,
    Item,
    Level,
    Login,
    Mode,
    Node,
    Order,
    Point,
    Shape,
    Stamp,
    Texty,
    User,
    WithLock,
    alike,
    allow_here,
    one,
    text,
    values,
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


def test_importing_the_codec_imports_no_pydantic() -> None:
    """Pydantic is optional: it is recognized, never imported."""
    code = "import sys, ratchet.model.payload; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
