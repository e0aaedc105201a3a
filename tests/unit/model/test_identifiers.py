from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.model.clock import ManualClock
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import IdFactory, is_young, many_ids, new_id, old_ids, timestamp_of


def ticking(times: list[int]) -> Callable[[], int]:
    """A clock that shows *times* one after the other, and then stays at the last."""
    rest: Iterator[int] = iter(times)
    last = times[-1]
    return lambda: next(rest, last)


def milliseconds_of(identifier: UUID) -> int:
    return identifier.int >> 80


def counter_of(identifier: UUID) -> int:
    return identifier.int >> 64 & 0xFFF


class TestLayout:
    def test_version_and_variant_are_those_of_rfc_9562(self) -> None:
        """Every id is a version 7 UUID of the RFC's variant, and reads back from its text."""
        made = new_id()
        assert made.version == 7
        assert made.variant == RFC_4122
        assert UUID(str(made)) == made
        assert hash(UUID(int=made.int)) == hash(made)
        assert made.is_safe == UUID(int=made.int).is_safe

    def test_bits_come_from_the_clock_the_counter_and_the_random_source(self) -> None:
        """The parts stand where the RFC puts them, and no random bit leaks into version or variant."""
        make = IdFactory(lambda: 0x0123456789AB, lambda size: b"\xff" * size)
        assert str(make()) == "01234567-89ab-7000-bfff-ffffffffffff"
        assert str(make()) == "01234567-89ab-7001-bfff-ffffffffffff"

    def test_random_bytes_are_never_used_twice(self) -> None:
        """Past the end of the buffered randomness new bytes are drawn, and each id gets its own."""
        source = random.Random(1)
        make = IdFactory(iter(range(1, 5000)).__next__, source.randbytes)
        tails = [make().int & (1 << 62) - 1 for _ in range(2000)]
        assert len(set(tails)) == 2000


class TestOrder:
    @given(st.lists(st.integers(0, 3), min_size=1, max_size=200))
    def test_ids_grow_while_the_clock_does_not_go_back(self, steps: list[int]) -> None:
        """For every clock that stands or moves on, each id is greater than the one before."""
        now = 1_000_000
        times = [now := now + step for step in steps]
        make = IdFactory(ticking(times))
        made = [make() for _ in times]
        assert made == sorted(set(made))
        assert [milliseconds_of(each) for each in made] == times

    def test_counter_starts_again_with_each_millisecond(self) -> None:
        """The counter counts ids within one millisecond, from zero."""
        make = IdFactory(ticking([5, 5, 5, 6, 6]))
        assert [counter_of(make()) for _ in range(5)] == [0, 1, 2, 0, 1]

    def test_overflow_waits_for_the_next_millisecond(self) -> None:
        """The id after the 4096th of a millisecond carries the next one, and only once the clock shows it."""
        now = 7
        waits = 0

        def wait() -> None:
            nonlocal now, waits
            waits += 1
            if waits == 3:
                now += 1

        make = IdFactory(lambda: now, wait=wait)
        first = [make() for _ in range(4096)]
        assert {milliseconds_of(each) for each in first} == {7}
        assert waits == 0
        following = make()
        assert waits == 3
        assert (milliseconds_of(following), counter_of(following)) == (8, 0)

    def test_a_clock_that_never_moves_is_an_error_instead_of_a_hang(self) -> None:
        """A frozen clock without a way to move it is reported, with what to use instead."""
        make = IdFactory(lambda: 7)
        for _ in range(4096):
            make()
        with pytest.raises(RuntimeError, match=r"stood at 7 ms.*IdFactory\.seeded"):
            make()

    def test_a_clock_that_went_back_starts_over_at_once(self) -> None:
        """After a step back ids carry the new time without waiting for the old one, and stay unique."""

        def no_wait() -> None:
            raise AssertionError("waited for the old time")

        make = IdFactory(ticking([10_000, 10_000, 4_000, 4_000, 10_000]), wait=no_wait)
        made = [make() for _ in range(5)]
        assert [milliseconds_of(each) for each in made] == [10_000, 10_000, 4_000, 4_000, 10_000]
        assert [counter_of(each) for each in made] == [0, 1, 0, 1, 0]
        assert len(set(made)) == 5

    def test_threads_share_one_growing_sequence(self) -> None:
        """Eight threads get ids that are unique, and growing in each thread."""
        per_thread: list[list[UUID]] = [[] for _ in range(8)]
        barrier = threading.Barrier(8)

        def work(mine: list[UUID]) -> None:
            barrier.wait()
            mine.extend(make() for _ in range(2_000))

        clock = iter(range(1, 10**9))
        make = IdFactory(lambda: next(clock) // 50)
        threads = [threading.Thread(target=work, args=(mine,)) for mine in per_thread]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({each for mine in per_thread for each in mine}) == 16_000
        assert all(mine == sorted(mine) for mine in per_thread)


class TestFork:
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
    @pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
    def test_child_does_not_repeat_its_parents_randomness(self) -> None:
        """After a fork parent and child draw different random bits, although both had them buffered."""
        make = IdFactory(lambda: 1)
        make()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, make().bytes)
            os._exit(0)
        os.waitpid(child, 0)
        theirs = UUID(bytes=os.read(reader, 16))
        os.close(reader)
        os.close(writer)
        ours = make()
        assert counter_of(theirs) == counter_of(ours) == 1
        assert theirs != ours

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
    @pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
    def test_child_does_not_inherit_a_held_lock(self) -> None:
        """A child forked while another thread was making an id can make ids."""
        inside, go_on = threading.Event(), threading.Event()

        def slow(size: int) -> bytes:
            inside.set()
            go_on.wait()
            return os.urandom(size)

        make = IdFactory(random=slow)
        thread = threading.Thread(target=make)
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            go_on.set()
            make()
            os._exit(0)
        go_on.set()
        thread.join()
        _, status = os.waitpid(child, 0)
        assert status == 0


class TestSeeded:
    def test_same_clock_and_seed_give_the_same_ids(self) -> None:
        """A simulation can be replayed: ids depend on the clock and the seed only."""
        one, two = (IdFactory.seeded(ManualClock(), 7) for _ in range(2))
        other = IdFactory.seeded(ManualClock(), 8)
        first = [one() for _ in range(10)]
        assert [two() for _ in range(10)] == first
        assert [other() for _ in range(10)] != first

    def test_frozen_clock_does_not_stop_it(self) -> None:
        """Ten thousand ids at one instant of a manual clock are made at once, growing."""
        make = IdFactory.seeded(ManualClock(), 7)
        made = [make() for _ in range(10_000)]
        assert made == sorted(set(made))


class TestMany:
    def test_they_are_what_as_many_calls_would_give(self) -> None:
        """The same layout, counted on from the ids before and by the ids after."""
        make = IdFactory(lambda: 0x0123456789AB, lambda size: b"\xff" * size)
        before, made, after = make(), make.many(3), make()
        assert [counter_of(each) for each in (before, *made, after)] == [0, 1, 2, 3, 4]
        assert str(made[0]) == "01234567-89ab-7001-bfff-ffffffffffff"
        assert (made[0].version, made[0].variant, made[0].is_safe) == (7, RFC_4122, new_id().is_safe)

    def test_more_than_a_millisecond_holds(self) -> None:
        """Ten thousand at one instant: growing, unique, each millisecond with its 4096."""
        make = IdFactory.seeded(ManualClock(), 7)
        make()
        made = make.many(10_000)
        assert made == sorted(set(made))
        assert [counter_of(each) for each in made[4094:4097]] == [4095, 0, 1]
        assert make() > made[-1]

    def test_threads_share_one_sequence(self) -> None:
        """Blocks and single ids of several threads never meet."""
        make = IdFactory()
        found: list[list[UUID]] = [[] for _ in range(4)]

        def work(mine: list[UUID]) -> None:
            for _ in range(50):
                mine += [*make.many(30), make()]

        threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        everything = [each for mine in found for each in mine]
        assert len({each.int >> 64 for each in everything}) == len(everything) == 4 * 50 * 31

    @pytest.mark.parametrize("source", [new_id, IdFactory(), lambda: uuid4()])
    def test_from_any_source(self, source: Callable[[], UUID]) -> None:
        """Whatever makes ids makes many of them; none is no call."""
        assert len(set(many_ids(source, 7))) == 7
        assert many_ids(source, 0) == []


class TestTimestampOf:
    def test_reads_the_millisecond_back(self) -> None:
        """The time of an id is its clock's, to the millisecond, in UTC."""
        clock = ManualClock(datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC))
        assert timestamp_of(IdFactory.seeded(clock, 1)()) == clock.now()
        assert abs(timestamp_of(new_id()) - datetime.now(UTC)) < timedelta(seconds=5)

    @pytest.mark.parametrize("other", [uuid4(), UUID(int=0), UUID(int=7 << 76)])
    def test_refuses_what_is_not_version_7(self, other: UUID) -> None:
        """Another version, or the wrong variant, carries no time: a clear ValueError."""
        with pytest.raises(InvalidJob, match="not a UUIDv7") as caught:
            timestamp_of(other)
        assert isinstance(caught.value, ValueError)

    def test_refuses_a_time_no_datetime_can_hold(self) -> None:
        """48 bits reach beyond the year 9999: an InvalidJob, not an OverflowError."""
        with pytest.raises(InvalidJob, match="year 9999"):
            timestamp_of(UUID("ffffffff-ffff-7000-8000-000000000000"))


class TestYoung:
    def test_an_id_is_young_for_five_minutes(self) -> None:
        """Made now or a moment ago, here or by a clock that is a little ahead; not yesterday, and not a random one."""
        now = time.time_ns() // 1_000_000
        minute = 60_000
        ages = {0: True, minute: True, -minute: True, 10 * minute: False, -10 * minute: False}
        made = {age: IdFactory(ticking([now - age]))() for age in ages}
        assert {age: is_young(one) for age, one in made.items()} == ages
        other = uuid4()
        assert not is_young(other)
        assert old_ids([*made.values(), other]) == [made[10 * minute], made[-10 * minute], other]
