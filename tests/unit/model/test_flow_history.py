"""Rates over time: how they are counted in classes, added up, and cut into steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from ratchet import Percentiles
from ratchet.model.flow import percentiles
from ratchet.model.flow_history import (
    LOAD,
    MERGED,
    MINUTE,
    TOTAL,
    Depth,
    FlowPeriod,
    Tally,
    class_of,
    depths_of,
    floor,
    merged,
    percentiles_of,
    points_of,
    usual_step,
    with_total,
)
from ratchet.model.job import StreamKey
from ratchet.model.load import Load, StreamLoad

NOW = datetime(2026, 6, 1, 12, 34, 56, 789, tzinfo=UTC)
BEGIN = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestClasses:
    def test_percentiles_are_at_most_a_fifth_too_high(self) -> None:
        """Compared with those of the values themselves, from a tenth of a millisecond to a day."""
        random = Random(4)
        values = [10 ** random.uniform(-4, 5) for _ in range(5000)]
        exact = percentiles(timedelta(seconds=value) for value in values)
        counts: dict[int, int] = {}
        for value in values:
            counts[class_of(value)] = counts.get(class_of(value), 0) + 1
        found = percentiles_of(counts)
        for one, other in ((found.p50, exact.p50), (found.p95, exact.p95), (found.p99, exact.p99)):
            assert one is not None
            assert other is not None
            assert other <= one + timedelta(microseconds=1)
            assert one <= other * 1.2

    @pytest.mark.parametrize("seconds", [-5.0, 0.0, 1e-9, 1e12])
    def test_values_beyond_the_classes(self, seconds: float) -> None:
        """A clock that was set back, and a run of ten thousand years, are in the first and the last class."""
        assert class_of(seconds) in (0, 150)
        assert percentiles_of({class_of(seconds): 1}).p50 is not None

    def test_no_values(self) -> None:
        """There is no percentile of nothing."""
        assert percentiles_of({}) == Percentiles()

    def test_one_value(self) -> None:
        """It is every percentile."""
        found = percentiles_of({class_of(1.0): 1})
        assert found.p50 == found.p99
        assert timedelta(seconds=1) <= (found.p50 or timedelta()) <= timedelta(seconds=1.2)


class TestDepths:
    def load(self, *streams: tuple[str, int, timedelta]) -> Load:
        """Streams of these queues, with so many due jobs, of which the first waits for so long."""
        return Load(
            streams=tuple(
                StreamLoad(stream_id=number, key=StreamKey(queue=queue), due=due, first_at=NOW - oldest)
                for number, (queue, due, oldest) in enumerate(streams, 1)
            )
        )

    def test_streams_of_one_queue_are_added_up(self) -> None:
        """The jobs of all its streams, and the longest wait of any; all queues together have a name of their own."""
        second = timedelta(seconds=1)
        found = depths_of(self.load(("a", 2, second), ("b", 1, 9 * second), ("a", 3, 4 * second)), NOW, 10)
        assert found == {"a": Depth(5, 4_000_000), "b": Depth(1, 9_000_000), TOTAL: Depth(6, 9_000_000)}

    def test_many_queues(self) -> None:
        """Those with most jobs keep their names, the rest is together; the total has all."""
        found = depths_of(self.load(*((f"q{n:03}", n, MINUTE) for n in range(1, 101))), NOW, 3)
        assert sorted(found) == [TOTAL, "other", "q098", "q099", "q100"]
        assert found["other"].due == sum(range(1, 98))
        assert found[TOTAL].due == sum(range(1, 101))

    def test_what_is_not_due(self) -> None:
        """A queue whose jobs wait for their time has no depth."""
        assert depths_of(self.load(("a", 0, -MINUTE)), NOW, 10) == {TOTAL: Depth()}


class TestPeriods:
    def test_a_document_comes_back(self) -> None:
        """What a store keeps is the whole period."""
        period = FlowPeriod(
            at=BEGIN, source="n", runs={"a": Tally(1, 2, 3, 4, {5: 6}, {7: 8})}, depths={TOTAL: Depth(9, 10)}
        )
        assert FlowPeriod.of_document(60, BEGIN, "n", period.document) == period

    @pytest.mark.parametrize("document", ["", "{", '{"runs": 3}', '{"runs": {"a": ["x"]}}', "[]"])
    def test_a_document_that_is_none(self, document: str) -> None:
        """Whoever reads it can pass it by: it raises a ValueError."""
        with pytest.raises(ValueError, match=r"."):
            FlowPeriod.of_document(60, BEGIN, "n", document)

    def test_a_plain_minute_is_small(self) -> None:
        """A queue takes less than a hundred bytes in the store."""
        tally = Tally(600, 598, 1, 1, {8: 500, 9: 100}, {3: 300, 4: 200, 5: 100})
        assert len(FlowPeriod(at=BEGIN, source="n", runs={"default": tally}).document) < 100

    def test_merging_names_few_queues(self) -> None:
        """The busiest keep their names; nothing is lost."""
        periods = [
            FlowPeriod(at=BEGIN, source="n", runs={f"q{n}": Tally(started=n) for n in range(1, 21)}),
            FlowPeriod(at=BEGIN, source="m", runs={"other": Tally(started=1000)}),
        ]
        found = merged(periods, BEGIN, most=2)
        assert {name: tally.started for name, tally in found.runs.items()} == {
            "q20": 20,
            "q19": 19,
            "other": 1000 + sum(range(1, 19)),
        }
        assert found.seconds == MERGED.total_seconds()


class TestPoints:
    def test_every_step_has_a_point(self) -> None:
        """Also one in which nothing happened; the last may be shorter."""
        periods = [
            FlowPeriod(at=BEGIN, source="n", runs=with_total({"a": Tally(3, 1, 1, 1), "b": Tally(2, 2)})),
            FlowPeriod(at=BEGIN + MINUTE, source="m", runs=with_total({"a": Tally(1, 1)})),
            FlowPeriod(at=BEGIN + 4 * MINUTE, source="n", runs=with_total({"a": Tally(7, 7)})),
        ]
        until = BEGIN + 5 * MINUTE
        found = points_of(periods, since=BEGIN, until=until, step=2 * MINUTE)
        assert [point.at for point in found] == [BEGIN, BEGIN + 2 * MINUTE, BEGIN + 4 * MINUTE]
        assert [point.span for point in found] == [2 * MINUTE, 2 * MINUTE, MINUTE]
        assert [point.started for point in found] == [6, 0, 7]
        assert (found[0].succeeded, found[0].failed, found[0].retried) == (4, 1, 1)
        of_a = points_of(periods, since=BEGIN, until=until, step=2 * MINUTE, queue="a")
        assert [point.started for point in of_a] == [4, 0, 7]

    def test_each_queue(self) -> None:
        """By name, where something is known of it."""
        periods = [
            FlowPeriod(at=BEGIN, source="n", runs={"b": Tally(2, 2), "a": Tally(1, 1)}),
            FlowPeriod(at=BEGIN, source=LOAD, depths={"c": Depth(4, 5), TOTAL: Depth(4, 5)}),
        ]
        found = points_of(periods, since=BEGIN, until=BEGIN + 2 * MINUTE, step=MINUTE, each_queue=True)
        assert [(point.queue, point.started, point.depth) for point in found] == [
            ("a", 1, 0),
            ("b", 2, 0),
            ("c", 0, 4),
        ]

    def test_what_waited_is_the_worst_of_the_step(self) -> None:
        """Where nobody looked it is unknown, and not zero."""
        periods = [
            FlowPeriod(at=BEGIN, source=LOAD, depths={"a": Depth(9, 1_000_000), TOTAL: Depth(10, 3_000_000)}),
            FlowPeriod(at=BEGIN + MINUTE, source=LOAD, depths={TOTAL: Depth()}),
        ]
        one, other = points_of(periods, since=BEGIN, until=BEGIN + 4 * MINUTE, step=2 * MINUTE)
        assert (one.depth, one.oldest_wait) == (10, timedelta(seconds=3))
        assert (other.depth, other.oldest_wait) == (None, None)
        (of_b, _) = points_of(periods, since=BEGIN, until=BEGIN + 4 * MINUTE, step=2 * MINUTE, queue="b")
        assert (of_b.depth, of_b.oldest_wait) == (0, None)

    @pytest.mark.parametrize(
        ("window", "step"),
        [(MINUTE, 1), (60 * MINUTE, 1), (120 * MINUTE, 2), (121 * MINUTE, 10), (timedelta(days=1), 30)],
    )
    def test_the_usual_step(self, window: timedelta, step: int) -> None:
        """A minute for an hour; beyond two hours, where minutes are merged, a multiple of ten."""
        assert usual_step(window) == step * MINUTE

    def test_the_usual_step_of_a_long_time(self) -> None:
        """There are never many more than sixty points."""
        for days in (7, 59, 61, 365, 40_000):
            step = usual_step(timedelta(days=days))
            assert timedelta(days=days) / step <= 61
            assert not step % MERGED


def test_floor() -> None:
    """Steps are the same for everybody, whenever they ask."""
    assert floor(NOW, MINUTE) == datetime(2026, 6, 1, 12, 34, tzinfo=UTC)
    assert floor(NOW, MERGED) == datetime(2026, 6, 1, 12, 30, tzinfo=UTC)
    assert floor(BEGIN, MERGED) == BEGIN
