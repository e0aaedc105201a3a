"""Results, single values and placeholders, and what damaged text is read as."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

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
    decode,
    decode_result,
    decode_value,
    encode_result,
    encode_value,
    placeholders_in,
    substitute,
    truncation,
)
from tests.unit.model.payload_samples import Node, Point, User, alike, allow_here, one, through, values


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

    def test_a_preview_tells_the_size_of_the_whole(self) -> None:
        """What is stored says how large the result was; of what 0.1.0 stored, the beginning alone, it is not known."""
        job_id = UUID(int=7)
        cut = truncation(job_id, encode_result(list(range(1000)), limit=100).text, 64 * 1024)
        assert (cut.job_id, cut.size, cut.limit) == (job_id, 3891, 100)
        for stored in ('"[0,1,2"', '"[0,1', None):
            older = truncation(job_id, stored, 100)
            assert (older.job_id, older.size, older.limit) == (job_id, None, 100)
            assert "takes more than the limit of 100 bytes" in str(older)

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
