"""Rates over time: what nodes have stored about each minute, merged and deleted when it is old."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from ratchet.model.flow_history import ALL, LOAD, MERGED, MINUTE, TOTAL, Depth, FlowPeriod, Tally, floor
from ratchet.tck.harness import Harness
from ratchet.tck.race import results


def minute(at: datetime, source: str = "node-1", queue: str = "mail", runs: int = 1) -> FlowPeriod:
    """A node has started and ended so many runs of one queue, which waited a second and took two."""
    tally = Tally(started=runs, succeeded=runs, wait={50: runs}, run={54: runs})
    return FlowPeriod(at=at, source=source, runs={queue: tally})


class TestRecordFlow:
    def test_what_was_stored_comes_back(self, harness: Harness) -> None:
        """All counts, the names of queues, and the time to the microsecond; oldest first, then by source."""
        begin = floor(harness.now, MERGED)
        full = FlowPeriod(
            at=begin + MINUTE,
            source="node-2",
            runs={"mail": Tally(5, 3, 1, 1, {0: 2, 149: 3}, {7: 5}), "päckchen 📦": Tally(started=1)},
        )
        sample = FlowPeriod(
            at=begin, source=LOAD, depths={"mail": Depth(70_000, 2**40), TOTAL: Depth(70_001, 2**41)}
        )
        assert harness.store.record_flow([full, sample, minute(begin)]) == 3
        assert harness.store.flow(since=begin, until=begin + MERGED) == [sample, minute(begin), full]

    def test_nothing_to_store(self, harness: Harness) -> None:
        """No period is no error."""
        assert harness.store.record_flow([]) == 0

    def test_a_repeated_call_changes_nothing(self, harness: Harness) -> None:
        """After a lost answer a node stores its minute again: the first one counts, and new ones are stored."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin, runs=1)])
        assert harness.store.record_flow([minute(begin, runs=2), minute(begin + MINUTE)]) == 1
        found = harness.store.flow(since=begin, until=begin + MERGED)
        assert found == [minute(begin, runs=1), minute(begin + MINUTE)]

    def test_only_one_queue(self, harness: Harness) -> None:
        """What is known of one queue, or of all together, can be read without the others."""
        begin = floor(harness.now, MERGED)
        runs = {"mail": Tally(started=3), "video": Tally(started=4), TOTAL: Tally(started=7)}
        depths = {"mail": Depth(1, 2), "video": Depth(3, 4), TOTAL: Depth(4, 4)}
        harness.store.record_flow([FlowPeriod(at=begin, source="node-1", runs=runs, depths=depths)])
        found = {
            only: harness.store.flow(since=begin, until=begin + MINUTE, only=only)[0]
            for only in ("mail", TOTAL, "nothing")
        }
        assert found["mail"].runs == {"mail": Tally(started=3)}
        assert found["mail"].depths == {"mail": Depth(1, 2), TOTAL: Depth(4, 4)}
        assert (found[TOTAL].runs, found[TOTAL].depths) == ({TOTAL: Tally(started=7)}, {TOTAL: Depth(4, 4)})
        assert (found["nothing"].runs, found["nothing"].depths) == ({}, {TOTAL: Depth(4, 4)})

    def test_only_what_was_asked_for(self, harness: Harness) -> None:
        """The first moment belongs to it, the last does not."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin + n * MINUTE) for n in range(4)])
        found = harness.store.flow(since=begin + MINUTE, until=begin + 3 * MINUTE)
        assert [period.at for period in found] == [begin + MINUTE, begin + 2 * MINUTE]


class TestMergeFlow:
    def test_minutes_become_one_period(self, harness: Harness) -> None:
        """Runs are added up over nodes and minutes; of what waited the worst is kept."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow(
            [
                minute(begin, runs=2),
                minute(begin, source="node-2", runs=3),
                minute(begin + MINUTE, queue="video"),
                FlowPeriod(at=begin, source=LOAD, depths={"mail": Depth(7, 10), TOTAL: Depth(7, 10)}),
                FlowPeriod(
                    at=begin + MINUTE, source=LOAD, depths={"mail": Depth(2, 90), TOTAL: Depth(3, 90)}
                ),
                minute(begin + MERGED),
            ]
        )
        assert harness.store.merge_flow(before=begin + MERGED) == 5
        merged, later = harness.store.flow(since=begin, until=begin + 2 * MERGED)
        assert (merged.at, merged.seconds, merged.source) == (begin, MERGED.total_seconds(), ALL)
        assert merged.runs["mail"] == Tally(5, 5, 0, 0, {50: 5}, {54: 5})
        assert merged.runs["video"] == Tally(1, 1, 0, 0, {50: 1}, {54: 1})
        assert merged.depths == {"mail": Depth(7, 90), TOTAL: Depth(7, 90)}
        assert later == minute(begin + MERGED)

    def test_one_slot_at_a_time(self, harness: Harness) -> None:
        """The oldest first; 0 says that nothing is left that is old enough."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin + n * MINUTE) for n in range(0, 30, 5)])
        before = begin + 2 * MERGED
        assert [harness.store.merge_flow(before=before) for _ in range(3)] == [2, 2, 0]

    def test_a_late_minute_is_added(self, harness: Harness) -> None:
        """A node that could not reach the store for hours stores its minutes at last."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin)])
        harness.store.merge_flow(before=begin + MERGED)
        harness.store.record_flow([minute(begin, source="node-2", runs=4)])
        assert harness.store.merge_flow(before=begin + MERGED) == 1
        (merged,) = harness.store.flow(since=begin, until=begin + MERGED)
        assert merged.runs["mail"].started == 5

    def test_racing_nodes_count_nothing_twice(self, harness: Harness) -> None:
        """Four nodes merge the same minutes at once."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin + n * MINUTE) for n in range(10)])
        stores = harness.reopen_many(4)
        merged = results([partial(one.merge_flow, before=begin + MERGED) for one in stores])
        assert sum(merged) == 10
        (period,) = harness.store.flow(since=begin, until=begin + MERGED)
        assert period.runs["mail"].started == 10


class TestPurgeFlow:
    def test_old_periods_go_in_portions(self, harness: Harness) -> None:
        """Minutes and merged ones alike."""
        begin = floor(harness.now, MERGED)
        harness.store.record_flow([minute(begin), minute(begin + MINUTE)])
        harness.store.merge_flow(before=begin + MERGED)
        harness.store.record_flow([minute(begin + MERGED + n * MINUTE) for n in range(3)])
        before = begin + MERGED + 2 * MINUTE
        assert [harness.store.purge_flow(before=before, limit=2) for _ in range(3)] == [2, 1, 0]
        (left,) = harness.store.flow(since=begin, until=begin + timedelta(days=1))
        assert left.at == before
