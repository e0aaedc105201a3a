"""Threads and event loops come with the first jobs; then none of them waits for another that takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ratchet import Options, Scheduler
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.engine.lanes import event_loop
from ratchet.engine.lanes.event_loop import EventLoopLane
from ratchet.engine.lanes.slots import RunBuffer
from ratchet.engine.lanes.threads import ThreadLane
from ratchet.model.decision import Returned
from ratchet.stores.memory import MemoryStore
from tests.support.lanes import Remembering, run_of, task_for, tools_for
from tests.support.waiting import until


def nothing() -> None:
    """A job."""


class Threads(DefaultExecutorProvider):
    """Counts its threads, makes so many and no more; with *idle* they do nothing."""

    def __init__(self, limit: int = 100, *, idle: bool = False) -> None:
        self.limit = limit
        self.idle = idle
        self.made: list[threading.Thread] = []

    def thread(self, run: Callable[[], None], *, name: str) -> threading.Thread:
        if len(self.made) >= self.limit:
            raise RuntimeError("can't start new thread")
        made = super().thread((lambda: None) if self.idle else run, name=name)
        self.made.append(made)
        return made


def lane_of(
    kind: Any, function: Any, executor: Threads, slots: int, **more: Any
) -> tuple[Any, Remembering, Any]:
    tools, completer = tools_for(function, is_coroutine=kind is EventLoopLane), Remembering()
    lane = kind(
        slots=slots, task=task_for(tools), completer=completer, clock=tools.clock, executor=executor, **more
    )
    lane.start()
    return lane, completer, tools


class TestThreadLane:
    def test_as_many_threads_as_runs_at_a_time(self) -> None:
        """None before the first run, one while runs come one by one, and never more than there are slots."""
        executor, gate = Threads(), threading.Semaphore(0)
        lane, completer, tools = lane_of(ThreadLane, lambda: gate.acquire(timeout=30), executor, slots=4)
        assert executor.made == []
        for number in range(5):
            gate.release()
            lane.accept([run_of(tools)])
            completer.wait_for(number + 1)
        assert len(executor.made) <= 2  # a run may come before the thread has gone back to wait
        lane.accept([run_of(tools) for _ in range(3)])
        until(lambda: len(lane.running()) == 3)
        assert len(executor.made) <= 4
        lane.accept([run_of(tools) for _ in range(7)])
        until(lambda: len(lane.running()) == 4)
        assert len(executor.made) == 4
        for _ in range(10):
            gate.release()
        completer.wait_for(15)
        lane.stop(5)
        assert not any(thread.is_alive() for thread in executor.made)

    def test_no_run_waits_for_a_long_one_while_a_slot_is_free(self) -> None:
        """
        A run comes in the moment in which the only thread has taken another, but is not seen to be busy yet. It gets a
        thread of its own all the same: it would have to wait for the end of the other one.
        """
        taken, has_come, ended = threading.Event(), threading.Event(), threading.Event()
        first: list[bool] = []

        class Slow(RunBuffer):
            def take(self, run: Any) -> bool:
                found = super().take(run)
                taken.set()
                has_come.wait(20)
                return found

        def work() -> bool:
            if not first:
                first.append(True)
                return ended.wait(20)
            ended.set()
            return True

        lane, completer, tools = lane_of(ThreadLane, work, Threads(), slots=2)
        lane._buffer = Slow()
        lane.accept([run_of(tools)])
        assert taken.wait(20)
        lane.accept([run_of(tools)])
        has_come.set()
        completer.wait_for(2)
        lane.stop(5)
        assert set(completer.outcomes.values()) == {Returned("true", False)}

    def test_no_run_waits_for_what_is_decided_about_another(self) -> None:
        """A thread that is asked for the conditions of a run's branches is not free: the next run gets another thread."""
        executor, deciding, go_on = Threads(), threading.Event(), threading.Event()
        lane, completer, tools = lane_of(ThreadLane, lambda: 1, executor, slots=2)
        put = completer.put

        def decide(run: Any, outcome: Any) -> None:
            if not deciding.is_set():
                deciding.set()
                go_on.wait(30)
            put(run, outcome)

        completer.put = decide  # type: ignore[method-assign]
        lane.accept([run_of(tools)])
        assert deciding.wait(10)
        lane.accept([run_of(tools)])
        completer.wait_for(1)
        go_on.set()
        completer.wait_for(2)
        lane.stop(5)

    def test_no_further_thread(self) -> None:
        """Those that there are go on; the lane is not down."""
        executor = Threads(limit=1)
        lane, completer, tools = lane_of(ThreadLane, lambda: 1, executor, slots=4)
        lane.accept([run_of(tools) for _ in range(20)])
        completer.wait_for(20)
        assert lane.down is None
        lane.stop(5)

    def test_no_thread_at_all(self) -> None:
        """The lane says why it runs nothing, and its runs can be handed back; later runs are tried again."""
        executor = Threads(limit=0)
        lane, completer, tools = lane_of(ThreadLane, lambda: 1, executor, slots=4)
        assert lane.down is None
        lane.accept([run_of(tools)])
        assert lane.down == "no thread can be started for them: can't start new thread"
        assert len(lane.withdraw(float("inf"))) == 1
        executor.limit = 1
        lane.accept([run_of(tools)])
        completer.wait_for(1)
        assert lane.down is None
        lane.stop(5)

    def test_threads_that_end_are_told(self) -> None:
        """A thread of somebody's provider that does not work is no thread: the lane is down."""
        lane, _, tools = lane_of(ThreadLane, lambda: 1, Threads(idle=True), slots=1)
        lane.accept([run_of(tools)])
        until(lambda: lane.down == "its threads have ended")


class TestEventLoopLane:
    async def nothing(self) -> int:
        return 1

    def test_the_loop_comes_with_the_first_run(self) -> None:
        """A lane that was given nothing has no thread, and is not down; nor does an empty claim begin one."""
        executor = Threads()
        lane, completer, tools = lane_of(EventLoopLane, self.nothing, executor, slots=4)
        lane.accept([])
        lane.watch(0.0)
        assert (executor.made, lane.down) == ([], None)
        lane.stop(5)
        lane.accept([run_of(tools) for _ in range(10)])
        completer.wait_for(10)
        assert len(executor.made) == 1
        lane.accept_planned(run_of(tools))
        completer.wait_for(11)
        assert len(executor.made) == 1
        lane.stop(5)
        assert not executor.made[0].is_alive()

    def test_no_thread_for_it(self) -> None:
        """The lane says why it runs nothing, and its runs can be handed back; later runs are tried again."""
        executor = Threads(limit=0)
        lane, completer, tools = lane_of(EventLoopLane, self.nothing, executor, slots=4)
        lane.accept([run_of(tools)])
        assert lane.down == "can't start new thread"
        assert len(lane.withdraw(float("inf"))) == 1
        executor.limit = 1
        lane.accept([run_of(tools)])
        completer.wait_for(1)
        assert lane.down is None
        lane.stop(5)

    def test_a_thread_that_does_not_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A provider whose thread never calls its function is named once; the next run does not wait for it again."""
        monkeypatch.setattr(event_loop, "START_LIMIT", 0.05)
        lane, _, tools = lane_of(EventLoopLane, self.nothing, Threads(idle=True), slots=4)
        lane.accept([run_of(tools)])
        assert lane.down == "the thread of its event loop has ended"
        monkeypatch.setattr(event_loop, "START_LIMIT", 60.0)
        lane.accept([run_of(tools)])
        assert len(lane.withdraw(float("inf"))) == 2


def test_an_idle_node_has_five_threads() -> None:
    """Those of poller, completer and heartbeat, and two for all other services, whatever the number of slots; a job brings one more."""
    before = set(threading.enumerate())

    def names() -> list[str]:
        added = [thread.name for thread in set(threading.enumerate()) - before]
        return sorted(name.rstrip("0123456789") for name in added)

    services = [
        "ratchet-completer",
        "ratchet-heartbeat",
        "ratchet-poller",
        "ratchet-services-",
        "ratchet-services-",
    ]
    with Scheduler(store=MemoryStore(), allow=[__name__], options=Options(concurrency=50)) as scheduler:
        until(lambda: names() == services)
        scheduler.enqueue_now(nothing).wait(timeout=20)
        until(lambda: names() == [*services, "ratchet-worker-"])
    until(lambda: names() == [])
