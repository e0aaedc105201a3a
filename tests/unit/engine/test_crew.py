"""A crew drives many services on few threads, and none of them waits for another that takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.engine.crew import Crew, Member
from tests.support.waiting import until


class Threads(DefaultExecutorProvider):
    """Counts the threads that it has made, and may refuse to make more."""

    def __init__(self) -> None:
        self.made: list[threading.Thread] = []
        self.limit = 100

    def thread(self, run: Callable[[], None], *, name: str) -> threading.Thread:
        if len(self.made) >= self.limit:
            raise RuntimeError("can't start new thread")
        made = super().thread(run, name=name)
        self.made.append(made)
        return made

    @property
    def alive(self) -> int:
        return sum(thread.is_alive() for thread in self.made)


class Stand:
    """A crew, and members that count their steps."""

    def __init__(self) -> None:
        self.threads = Threads()
        self.crew = Crew(self.threads)
        self.steps: dict[str, int] = {}
        self.members: dict[str, Member] = {}
        self.go_on = threading.Event()

    def add(self, name: str, rest: float = 0.01, *, prompt: bool = False) -> Member:
        def step() -> float:
            self.steps[name] += 1
            return rest

        return self._add(name, Member(step, prompt=prompt))

    def add_that_hangs(self, name: str = "hangs", rest: float = 0.01) -> Member:
        def step() -> float:
            self.steps[name] += 1
            self.go_on.wait(60)
            return rest

        return self._add(name, Member(step))

    def _add(self, name: str, member: Member) -> Member:
        self.steps[name] = 0
        self.members[name] = member
        self.crew.join(member)
        return member

    def end(self) -> None:
        self.go_on.set()
        for member in self.members.values():
            assert self.crew.leave(member, 10)


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.end()
    assert made.threads.alive == 0


def test_many_members_need_two_threads(stand: Stand) -> None:
    """One watches the clock while the other is in a step: ten members that are called all the time need no third."""
    for number in range(10):
        stand.add(f"member {number}")
    until(lambda: all(steps >= 20 for steps in stand.steps.values()))
    assert stand.threads.alive <= 3  # under load a step may look long once
    assert len(stand.threads.made) < 10


def test_a_step_that_hangs_holds_up_nobody(stand: Stand) -> None:
    """Two members hang, and a third one goes on being called; once they go on, they are called as before."""
    stand.add_that_hangs("first")
    stand.add_that_hangs("second")
    stand.add("third")
    until(lambda: stand.steps["first"] and stand.steps["second"])
    before = stand.steps["third"]
    until(lambda: stand.steps["third"] > before + 20)
    assert (stand.steps["first"], stand.steps["second"]) == (1, 1)
    stand.go_on.set()
    until(lambda: stand.steps["first"] > 5 and stand.steps["second"] > 5)


def test_threads_that_are_not_needed_any_more_end(stand: Stand) -> None:
    """Five members hang together, which takes six threads; afterwards two or three are left."""
    for number in range(5):
        stand.add_that_hangs(f"member {number}")
    until(lambda: all(stand.steps.values()))
    assert stand.threads.alive >= 6
    stand.go_on.set()
    until(lambda: stand.threads.alive <= 3)


def test_no_two_steps_of_one_member_at_once(stand: Stand) -> None:
    """However often it is woken while it is in a step; it is called once more after that."""
    inside, overlaps, steps = threading.Semaphore(1), [], []

    def step() -> float:
        if not inside.acquire(blocking=False):
            overlaps.append(None)
        time.sleep(0.002)
        inside.release()
        steps.append(None)
        return 3600.0

    member = stand._add("member", Member(step))
    for _ in range(200):
        stand.crew.wake(member)
        time.sleep(0.0005)
    told = len(steps)
    stand.crew.wake(member)
    until(lambda: len(steps) > told)
    assert overlaps == []


def test_hastened(stand: Stand) -> None:
    """A member that wants to rest for an hour is called sooner; also if it is told so during its step."""
    member = stand.add("member", rest=3600.0)
    until(lambda: stand.steps["member"] == 1 and member.runs_on is None)
    stand.crew.hasten(member, 0.01)
    until(lambda: stand.steps["member"] == 2)
    hanging = stand.add_that_hangs(rest=3600.0)
    until(lambda: stand.steps["hangs"] == 1)
    stand.crew.hasten(hanging, 0.01)
    stand.go_on.set()
    until(lambda: stand.steps["hangs"] == 2)


def test_without_a_further_thread_it_goes_on_with_one(stand: Stand) -> None:
    """The system gives no more threads: members are called one after the other."""
    stand.threads.limit = 1
    for number in range(5):
        stand.add(f"member {number}")
    until(lambda: all(steps >= 10 for steps in stand.steps.values()))
    assert len(stand.threads.made) == 1


def test_without_any_thread_nobody_joins(stand: Stand) -> None:
    """The caller learns it, and may try again."""
    stand.threads.limit = 0
    member = Member(lambda: 1.0)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        stand.crew.join(member)
    assert not stand.crew.calls(member)
    stand.threads.limit = 10
    stand.add("member")
    until(lambda: stand.steps["member"] > 2)


def test_leaving_waits_for_the_step(stand: Stand) -> None:
    """Who leaves is told whether the last step has ended; then no step begins any more, and it may join again."""
    member = stand.add_that_hangs()
    until(lambda: stand.steps["hangs"] == 1)
    assert not stand.crew.leave(member, 0.01)
    assert stand.crew.calls(member)
    stand.go_on.set()
    assert stand.crew.leave(member, 10)
    assert not stand.crew.calls(member)
    assert stand.threads.alive == 0
    stand.crew.join(member)
    until(lambda: stand.steps["hangs"] > 1)
