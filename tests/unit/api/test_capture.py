"""Shapes of lambdas; run this file on every supported interpreter, since bytecode differs."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from datetime import date
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ratchet.api.submit.capture import capture, is_lambda, reader
from ratchet.api.submit.capture.expressions import CapturedCall
from ratchet.model.errors import InvalidTarget

CALLS: list[str] = []


def process(*args: Any, **kwargs: Any) -> None:
    CALLS.append("process")


async def process_async(*args: Any) -> None:
    CALLS.append("process_async")


class Orders:
    """A class whose methods and attributes the lambdas below use."""

    region = "eu"

    def __init__(self) -> None:
        self.settings = SimpleNamespace(limit=7, nested=SimpleNamespace(deep="d"))

    def process(self, *args: Any, **kwargs: Any) -> None:
        CALLS.append("Orders.process")

    @staticmethod
    def check(*args: Any) -> None:
        CALLS.append("Orders.check")

    @classmethod
    def audit(cls, *args: Any) -> None:
        CALLS.append("Orders.audit")


orders = Orders()
service = SimpleNamespace(orders=orders)
handlers = {"process": process}
LIMIT = 9


def accepted() -> list[tuple[str, Callable[[], object], Any, tuple[Any, ...], dict[str, Any]]]:
    """Name, lambda, expected function, arguments and keywords of every shape that is a call."""
    order_id, data, items = 42, {"a": 1, 2: "two"}, [1, 2]
    pair, options, key = (3, 4), {"x": 1, "y": 2}, "a"
    local = orders
    p, m = process, orders.process
    n: Any = None
    big = list(range(40))
    return [
        ("no arguments", lambda: process(), p, (), {}),
        ("constant", lambda: process(1), p, (1,), {}),
        ("constants", lambda: process(None, True, ..., 300, -1, 1.5, "s", b"b", (1, 2)), p,
         (None, True, ..., 300, -1, 1.5, "s", b"b", (1, 2)), {}),
        ("closure variable", lambda: process(order_id), p, (42,), {}),
        ("closure variable twice", lambda: process(order_id, order_id), p, (42, 42), {}),
        ("None from a closure", lambda: process(n), p, (None,), {}),
        ("global", lambda: process(LIMIT), p, (9,), {}),
        ("builtin as value", lambda: process(__debug__), p, (True,), {}),
        ("keywords", lambda: process(k=1), p, (), {"k": 1}),
        ("mixed keywords", lambda: process(1, order_id, a=data, b=2), p, (1, 42), {"a": {"a": 1, 2: "two"}, "b": 2}),
        ("async function", lambda: process_async(order_id), process_async, (42,), {}),
        ("method of a global", lambda: orders.process(order_id), m, (42,), {}),
        ("method with keywords", lambda: orders.process(1, k=order_id), m, (1,), {"k": 42}),
        ("method of a closure variable", lambda: local.process(order_id), m, (42,), {}),
        ("method through attributes", lambda: service.orders.process(order_id), m, (42,), {}),
        ("method through a class", lambda: Orders.process(1), Orders.process, (1,), {}),
        ("static method", lambda: Orders.check(1), Orders.check, (1,), {}),
        ("class method", lambda: Orders.audit(1), Orders.audit, (1,), {}),
        ("function from a dict", lambda: handlers["process"](1), p, (1,), {}),
        ("function from a closure", lambda: p(1), p, (1,), {}),
        ("attribute", lambda: process(orders.region), p, ("eu",), {}),
        ("attributes of attributes", lambda: process(orders.settings.limit, orders.settings.nested.deep), p, (7, "d"), {}),
        ("subscripts", lambda: process(data["a"], data[2], items[0], items[-1]), p, (1, "two", 1, 2), {}),
        ("subscript with a variable", lambda: process(data[key]), p, (1,), {}),
        ("tuple", lambda: process((order_id, 1)), p, ((42, 1),), {}),
        ("list", lambda: process([order_id, 1]), p, ([42, 1],), {}),
        ("constant list", lambda: process([1, 2, 3, 4]), p, ([1, 2, 3, 4],), {}),
        ("set", lambda: process({order_id, 1}), p, ({42, 1},), {}),
        ("constant set", lambda: process({1, 2, 3, 4}), p, ({1, 2, 3, 4},), {}),
        ("dict", lambda: process({"id": order_id, "x": 1}), p, ({"id": 42, "x": 1},), {}),
        ("dict with one key", lambda: process({"id": 1}), p, ({"id": 1},), {}),
        ("dict with a variable key", lambda: process({key: order_id, "b": 2}), p, ({"a": 42, "b": 2},), {}),
        ("empty displays", lambda: process([], {}, ()), p, ([], {}, ()), {}),
        ("nested displays", lambda: process([{"a": (order_id, [1])}]), p, ([{"a": (42, [1])}],), {}),
        ("spread list", lambda: process([0, *items, 9]), p, ([0, 1, 2, 9],), {}),
        ("spread dict", lambda: process({"z": 0, **options}), p, ({"z": 0, "x": 1, "y": 2},), {}),
        ("spread dict overwrites", lambda: process({"x": 0, **options, "y": 5}), p, ({"x": 1, "y": 5},), {}),
        ("star arguments", lambda: process(*pair), p, (3, 4), {}),
        ("star arguments after others", lambda: process(1, *items, 9, *pair), p, (1, 1, 2, 9, 3, 4), {}),
        ("double star arguments", lambda: process(**options), p, (), {"x": 1, "y": 2}),
        ("everything", lambda: process(0, *pair, k=order_id, **options), p, (0, 3, 4), {"k": 42, "x": 1, "y": 2}),
        ("method with stars", lambda: orders.process(*pair, **options), m, (3, 4), {"x": 1, "y": 2}),
        ("text", lambda: process(f"order-{order_id}"), p, ("order-42",), {}),
        ("text only of a value", lambda: process(f"{order_id}"), p, ("42",), {}),
        ("text with formats", lambda: process(f"{order_id:05d}|{key!r:>5}|{key!s}"), p, ("00042|  'a'|a",), {}),
        ("text with a variable format", lambda: process(f"{order_id:{LIMIT}}"), p, ("       42",), {}),
        ("default parameter", lambda i=order_id: process(i), p, (42,), {}),
        ("default parameters", lambda i=order_id, j=7: process(i, j, i), p, (42, 7, 42), {}),
        ("keyword-only default", lambda *, i=order_id: process(i), p, (42,), {}),
        ("over thirty elements", lambda: process([
            order_id, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39]), p, ([42, *big[1:]],), {}),
        ("over thirty arguments", lambda: process(
            order_id, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39), p, (42, *big[1:]), {}),
        ("over fifteen keywords", lambda: process(
            a=order_id, b=1, c=2, d=3, e=4, f=5, g=6, h=7, i=8, j=9, k=10, l=11, m=12, n=13, o=14, p=15, q=16, r=17),
         p, (), dict(zip("abcdefghijklmnopqr", [42, *range(1, 18)], strict=True))),
        ("over fifteen keys", lambda: process({
            "a": order_id, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7, "i": 8, "j": 9, "k": 10, "l": 11,
            "m": 12, "n": 13, "o": 14, "p": 15, "q": 16, "r": 17}), p,
         (dict(zip("abcdefghijklmnopqr", [42, *range(1, 18)], strict=True)),), {}),
    ]  # fmt: skip


def refused() -> list[tuple[str, Callable[..., object], str]]:
    """Name, lambda and a word of the reason for every shape that is not one call of plain values."""
    x: Any = 5
    data: Any = {"a": 1}
    items: Any = [1, 2]
    iterator: Any = iter(items)
    number: Any = 7
    return [
        ("constant result", lambda: 5, "not a call"),
        ("variable result", lambda: x, "not a call"),
        ("forgotten parentheses", lambda: orders.process, "not a call"),
        ("nested call", lambda: process(str(x)), "second call"),
        ("nested call as keyword", lambda: process(k=str(x)), "second call"),
        ("nested call in a list", lambda: process([str(x)]), "second call"),
        ("call of a result", lambda: handlers.get("process")(x), "second call"),  # type: ignore[misc]
        ("method of a new object", lambda: Orders().process(x), "second call"),
        ("attribute of a result", lambda: process(Orders().region), "second call"),
        ("subscript by a result", lambda: process(data[str(x)]), "second call"),
        ("double star of a result", lambda: process(**dict(data)), "second call"),
        ("addition", lambda: process(x + 1), "operator"),
        ("negation", lambda: process(-x), "operator"),
        ("not", lambda: process(not x), "condition|operator"),
        ("comparison", lambda: process(x == 1), "comparison"),
        ("identity", lambda: process(x is None), "comparison"),
        ("membership", lambda: process(x in items), "comparison"),
        ("conditional argument", lambda: process(x if data else 1), "condition"),
        ("conditional call", lambda: process(x) if data else process(1), "condition"),
        ("or argument", lambda: process(x or 1), "condition"),
        ("two calls", lambda: process(x) and process(1), "condition"),
        ("two calls in a tuple", lambda: (process(x), process(1)), "second call"),
        ("slice", lambda: process(items[1:2]), "slice"),
        ("slice with a step", lambda: process(items[::x]), "slice"),
        ("list comprehension", lambda: process([i for i in items]), "."),  # noqa: C416 - the shape under test
        ("dict comprehension", lambda: process({i: i for i in items}), "."),
        ("generator expression", lambda: process(i for i in items), "."),
        ("inner lambda", lambda: process(lambda: x), "."),
        ("assignment expression", lambda: process(y := 1), "assignment"),  # noqa: F841 - the shape under test
        ("yield", lambda: (yield process(x)), "yield"),
        ("parameter without a default", lambda y: process(y), "takes arguments"),
        ("unused parameter without a default", lambda y: process(1), "takes arguments"),
        ("keyword-only without a default", lambda *, y: process(y), "takes arguments"),
        ("variable arguments", lambda *y: process(*y), "takes arguments"),
        ("variable keywords", lambda **y: process(**y), "takes arguments"),
        ("undefined name", lambda: process(undefined), "'undefined' is not defined"),  # type: ignore[name-defined]  # noqa: F821
        ("missing attribute", lambda: process(orders.missing), "AttributeError"),  # type: ignore[attr-defined]
        ("missing key", lambda: process(data["b"]), "KeyError"),
        ("star of an iterator", lambda: process(*iterator), r"\* takes"),
        ("double star of no dict", lambda: process(**number), r"\*\* takes"),
        ("keyword given twice", lambda: process(a=1, **data), "twice"),
        ("keyword that is no string", lambda: process(**{1: 2}), "strings"),  # type: ignore[misc]
        ("unhashable element", lambda: process({x, items}), "unhashable"),  # type: ignore[arg-type]
        ("text of an object", lambda: process(f"{orders}"), "plain values"),
        ("text with a bad format", lambda: process(f"{x:zz}"), "ValueError"),
        ("star display of a call", lambda: process(*map(str, items)), "second call"),
    ]


class TestShapes:
    @pytest.mark.parametrize("row", accepted(), ids=lambda row: row[0].replace(" ", "_"))
    def test_a_call_is_taken_apart(
        self, row: tuple[str, FunctionType, Any, tuple[Any, ...], dict[str, Any]]
    ) -> None:
        """Function, arguments and keywords are what the call would have passed; nothing ran."""
        CALLS.clear()
        _, function, expected, args, kwargs = row
        call = capture(function)
        assert call == CapturedCall(expected, args, kwargs)
        assert [type(a) for a in call.args] == [type(a) for a in args]
        assert list(call.kwargs) == list(kwargs)
        assert CALLS == []

    @pytest.mark.parametrize("row", refused(), ids=lambda row: row[0].replace(" ", "_"))
    def test_everything_else_is_refused_with_the_right_form(self, row: tuple[str, FunctionType, str]) -> None:
        """The message says where the lambda is, why it is refused, and what to write; nothing ran."""
        CALLS.clear()
        _, function, reason = row
        with pytest.raises(InvalidTarget, match=reason) as caught:
            capture(function)
        assert f"test_capture.py:{function.__code__.co_firstlineno}" in str(caught.value)
        assert "lambda: orders.process(order_id)" in str(caught.value)
        assert "enqueue(orders.process, order_id)" in str(caught.value)
        assert CALLS == []

    def test_the_captured_call_equals_the_real_one(self) -> None:
        """Calling what was captured does what calling the lambda does."""
        seen: list[Any] = []

        def record(*args: Any, **kwargs: Any) -> None:
            seen.append((args, kwargs))

        data = {"a": [1, date(2025, 1, 2)]}
        function = lambda: record(data["a"], *data["a"], k=f"{data['a'][1]:%d}")  # noqa: E731 - a lambda is the subject
        call = capture(function)  # type: ignore[arg-type]
        function()
        call.function(*call.args, **call.kwargs)
        assert seen[0] == seen[1]


class TestValues:
    def test_each_capture_takes_the_values_of_its_own_lambda(self) -> None:
        """The plan is shared by all lambdas of one place in the code; their variables are not."""

        def make(number: int) -> Any:
            return lambda: process(number)

        assert [capture(make(n)).args for n in range(3)] == [(0,), (1,), (2,)]

    def test_a_loop_binds_with_a_default(self) -> None:
        """The usual idiom for a loop variable works, and without it the last value counts, as in Python."""
        bound: list[Any] = [lambda i=i: process(i) for i in range(3)]
        shared: list[Any] = [lambda: process(i) for i in range(3)]  # noqa: B023 - that is the point
        assert [capture(f).args for f in bound] == [(0,), (1,), (2,)]
        assert [capture(f).args for f in shared] == [(2,), (2,), (2,)]

    def test_a_variable_without_a_value_is_refused(self) -> None:
        """A closure variable that is not yet assigned is named in the message."""

        def outer() -> Any:
            function = lambda: process(later)  # noqa: E731 - a lambda is the subject
            if not CALLS:
                return function
            later = 1
            return later

        CALLS.clear()
        with pytest.raises(InvalidTarget, match="'later' has no value yet"):
            capture(outer())

    def test_equal_constants_of_different_types_do_not_mix(self) -> None:
        """1, 1.0 and True are equal and make different plans."""
        functions: list[Any] = [lambda: process(1), lambda: process(1.0), lambda: process(True)]
        assert [type(capture(f).args[0]) for f in functions] == [int, float, bool]

    def test_a_display_is_new_each_time(self) -> None:
        """Two captures of one lambda do not share a list."""
        function: Any = lambda: process([1, 2, 3])  # noqa: E731 - a lambda is the subject
        capture(function).args[0].append(4)
        assert capture(function).args == ([1, 2, 3],)

    def test_a_traced_lambda_is_captured_too(self) -> None:
        """Coverage and debuggers rewrite bytecode while it runs; the original is read."""
        function: Any = lambda: process(LIMIT)  # noqa: E731 - a lambda is the subject
        previous = sys.gettrace()
        sys.settrace(lambda *_: None)
        try:
            for _ in range(100):
                function()
        finally:
            sys.settrace(previous)
        reader.plan_of.cache_clear()
        assert capture(function).args == (9,)

    def test_a_lambda_that_ran_often_is_captured_too(self) -> None:
        """The interpreter specializes hot code in place; the original is read."""
        function: Any = lambda: orders.process(LIMIT, k=orders.region)  # noqa: E731 - a lambda is the subject
        for _ in range(5_000):
            function()
        reader.plan_of.cache_clear()
        assert capture(function).kwargs == {"k": "eu"}


class TestIsLambda:
    def test_only_lambda_expressions_are(self) -> None:
        """Named functions, methods and objects are not."""
        assert is_lambda(lambda: process())
        assert not is_lambda(process)
        assert not is_lambda(orders.process)
        assert not is_lambda(orders)


class TestInterpreters:
    @pytest.mark.parametrize(
        ("version", "implementation"), [((3, 10), "cpython"), ((3, 15), "cpython"), ((3, 11), "pypy")]
    )
    def test_an_unknown_interpreter_is_told_what_to_use(
        self, version: tuple[int, int], implementation: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bytecode that nobody has checked is never guessed at."""
        require = reader._require_known_interpreter
        monkeypatch.setattr(reader, "_require_known_interpreter", lambda *_: require(version, implementation))
        reader.plan_of.cache_clear()
        function: Any = lambda: process(1)  # noqa: E731 - a lambda is the subject
        with pytest.raises(InvalidTarget, match=r"3\.11 to 3\.14 only.*enqueue\(function, \*arguments\)"):
            capture(function)

    @pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
    def test_the_supported_interpreters_pass(self, version: tuple[int, int]) -> None:
        """The gate is open for exactly the versions the package supports."""
        reader._require_known_interpreter(version, "cpython")

    def test_unknown_bytecode_is_refused(self) -> None:
        """An instruction that a later patch release might add is named, not skipped."""
        function: Any = lambda: process(1)  # noqa: E731 - a lambda is the subject
        with pytest.raises(reader.Refusal, match="LOAD_SOMETHING_NEW"):
            read(function, [Step("LOAD_SOMETHING_NEW")], (3, 14))


class Step(NamedTuple):
    """One instruction, as far as the reader looks at it."""

    opname: str
    arg: int | None = None
    argval: Any = None
    argrepr: str = ""


def read(function: FunctionType, steps: list[Step], version: tuple[int, int]) -> CapturedCall:
    instructions: list[dis.Instruction] = steps  # type: ignore[assignment]
    return reader.Reader(function.__code__, version).read(instructions).call(function)


def global_function(name: str = "process") -> Step:
    return Step("LOAD_GLOBAL", 1, name)


class TestPython314:
    """
    The instructions that are new in 3.14, written down by hand and not yet seen on a real 3.14.

    They hold wherever 3.14 itself is not at hand; TestShapes is the real proof on 3.14.
    """

    def test_small_integers_and_borrowed_locals(self) -> None:
        """LOAD_SMALL_INT carries its value, the borrowing loads are loads."""
        function: Any = lambda a=1, b=2: process(5, a, b, a)  # noqa: E731 - a lambda is the subject
        steps = [
            Step("RESUME", 0),
            global_function(),
            Step("LOAD_SMALL_INT", 5, 5),
            Step("LOAD_FAST_BORROW_LOAD_FAST_BORROW", 1, ("a", "b")),
            Step("LOAD_FAST_BORROW", 0, "a"),
            Step("CALL", 4),
            Step("RETURN_VALUE"),
        ]
        assert read(function, steps, (3, 14)).args == (5, 1, 2, 1)

    def test_subscripts_are_a_binary_operation(self) -> None:
        """BINARY_OP with the operator [] replaces BINARY_SUBSCR; a constant slice is still refused."""
        function: Any = lambda: process(handlers["process"])  # noqa: E731 - a lambda is the subject

        def steps(key: Any) -> list[Step]:
            return [
                global_function(),
                Step("LOAD_GLOBAL", 2, "handlers"),
                Step("LOAD_CONST", 1, key),
                Step("BINARY_OP", 26, 26, "[]"),
                Step("CALL", 1),
                Step("RETURN_VALUE"),
            ]

        assert read(function, steps("process"), (3, 14)).args == (process,)
        with pytest.raises(reader.Refusal, match="slice"):
            read(function, steps(slice(1, 2)), (3, 14))

    @pytest.mark.parametrize("flagged", [False, True], ids=["empty_slot", "flag"])
    def test_star_arguments_are_read_in_both_forms(self, flagged: bool) -> None:
        """Without keywords there is an empty slot or a flag of 0; with them a mapping in either form."""
        function: Any = lambda: process(*(1, 2), k=3)  # noqa: E731 - a lambda is the subject
        begin = [global_function(), Step("LOAD_CONST", 1, (1, 2))]
        keywords = [Step("LOAD_CONST", 2, "k"), Step("LOAD_SMALL_INT", 3, 3), Step("BUILD_MAP", 1)]
        absent = [] if flagged else [Step("PUSH_NULL")]

        def end(flag: int) -> list[Step]:
            return [Step("CALL_FUNCTION_EX", flag if flagged else None), Step("RETURN_VALUE")]

        assert read(function, [*begin, *absent, *end(0)], (3, 14)) == CapturedCall(process, (1, 2), {})
        assert read(function, [*begin, *keywords, *end(1)], (3, 14)) == CapturedCall(
            process, (1, 2), {"k": 3}
        )
