"""Stored text that is too large, too deep or too costly is refused, whoever wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratchet.model.errors import UnreadablePayload
from ratchet.model.payload import ParameterTypes, bounds, decode, decode_result, decode_value, encode

#: What Python computes hashes of numbers with: its multiples all have the hash 0.
MODULUS = 2**61 - 1


def stored(*args: Any) -> str:
    return json.dumps({"args": args, "kwargs": {}})


def large(number: int) -> dict[str, str]:
    return {"$": "int", "v": hex(number)}


COLLIDING = [large(index * MODULUS) for index in range(1, 1001)]
HARMLESS = [large(2**64 + index) for index in range(1000)]


class TestDepth:
    @pytest.mark.parametrize("levels", [320, 900, 5_000, 100_000])
    @pytest.mark.parametrize("pair", ["[]", '{"a":}'])
    def test_deep_json_is_refused_wherever_it_is(self, levels: int, pair: str) -> None:
        """Lists and objects, plain or beside a tag, in arguments, results and other values."""
        opening, closing = pair[:-1], pair[-1]
        deep = opening * levels + "1" + closing * levels
        tagged = f'[{{"$":"uuid","v":"{MODULUS}"}},{deep}]'
        for text in (deep, tagged):
            with pytest.raises(UnreadablePayload):
                decode(f'{{"args":[{text}],"kwargs":{{}}}}')
            with pytest.raises(UnreadablePayload):
                decode(f'{{"args":[],"kwargs":{{"x":{text}}}}}')
            with pytest.raises(UnreadablePayload):
                decode_value(text)
            with pytest.raises(UnreadablePayload):
                decode_result(text)

    @pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}, lambda v: {"a": v}])
    def test_whatever_can_be_submitted_can_be_read(self, wrap: Any) -> None:
        """The deepest value that `encode` takes is within the bounds of `decode`, however it is tagged."""
        value: Any = 1
        for _ in range(100):
            value = wrap(value)
        assert decode(encode((value,), {}))[0] == (value,)

    def test_brackets_in_text_are_no_depth(self) -> None:
        """Many brackets inside text, or side by side, do not count."""
        args = ("[" * 5_000, [[]] * 5_000)
        assert decode(encode(args, {}))[0] == args


class TestSize:
    def test_text_over_the_limit_is_refused_before_it_is_parsed(self) -> None:
        """The limit is the caller's, or 16 MiB."""
        with pytest.raises(UnreadablePayload, match=r"1,0\d\d characters, the limit is 1,000"):
            decode(stored("x" * 1000), limit=1000)
        with pytest.raises(UnreadablePayload, match="the limit is 16,777,216"):
            decode_value('"' + "x" * bounds.READ_LIMIT + '"')


class TestCost:
    @pytest.mark.parametrize(
        "value",
        [
            {"$": "set", "v": COLLIDING},
            {"$": "frozenset", "v": COLLIDING},
            {"$": "dict", "v": [[key, 1] for key in COLLIDING]},
            [{"deep": {"$": "set", "v": COLLIDING + HARMLESS}}],
            {"$": "set", "v": [{"$": "decimal", "v": str(index * MODULUS)} for index in range(1, 1001)]},
            {"$": "set", "v": [{"$": "tuple", "v": [key]} for key in COLLIDING]},
        ],
    )
    def test_keys_made_to_collide_are_refused(self, value: Any) -> None:
        """A set or dict of keys with one hash takes quadratic time; it is refused for runs and for readers."""
        for strict in (True, False):
            with pytest.raises(UnreadablePayload, match="one and the same hash"):
                decode(stored(value), strict=strict)

    def test_colliding_keys_are_refused_where_an_annotation_makes_the_set(self) -> None:
        """A plain list for a parameter that is a set is no way around it."""

        def target(numbers: set[Any]) -> None: ...

        with pytest.raises(UnreadablePayload, match="one and the same hash"):
            decode(stored(COLLIDING), ParameterTypes.of(target))

    def test_equal_and_ordinary_keys_are_fine(self) -> None:
        """One number a thousand times is one key; large numbers are as good as small ones."""

        def target(numbers: set[int]) -> None: ...

        assert decode(stored([0] * 1000), ParameterTypes.of(target))[0] == ({0},)
        ((numbers,), _) = decode(stored({"$": "set", "v": HARMLESS}))
        assert numbers == {2**64 + index for index in range(1000)}

    def test_restoring_ends_when_its_time_is_used_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The CPU time of the thread is looked at while values are restored, in sets and dicts too."""
        monkeypatch.setattr(bounds, "_SECONDS", -1000.0)
        for value in (HARMLESS, {"$": "set", "v": HARMLESS}, {"$": "dict", "v": [[k, 1] for k in HARMLESS]}):
            with pytest.raises(UnreadablePayload, match="too long"):
                decode(stored(value))


@pytest.mark.parametrize(
    "value",
    [
        {"$": "datetime", "v": "2026-01-01T00:00:00", "z": "America"},
        {"$": "datetime", "v": "2026-01-01T00:00:00", "z": "../../etc/passwd"},
        {"$": "timedelta", "v": [10**30]},
        {"$": "dataclass"},
        {"$": "dataclass", "t": 7, "v": {}},
        {"$": ["list"]},
        {"$": "set", "v": [[1]]},
        {"$": "tuple", "v": 7},
        {"$": "dict", "v": [1]},
        {"$": "no such tag"},
    ],
)
def test_a_damaged_tag_is_unreadable(value: Any) -> None:
    """Whatever is wrong with a tag, it is one error that says where; no raw error of Python."""
    with pytest.raises(UnreadablePayload, match=r"^args\[0\]: "):
        decode(stored(value), allow_type=lambda module, qualname: True)
