"""An interruption does not break into a store's own code, whatever a job asks of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratchet.engine.run import Stop
from ratchet.model.decision import Interrupted
from ratchet.model.errors import JobInterrupted
from ratchet.spi.shield import undisturbed
from ratchet.stores import open_store
from ratchet.stores.memory import MemoryStore
from tests.support.lanes import run_of, thread_lane
from tests.support.store_urls import KINDS, fresh_url

TIMEOUT = 30.0


@pytest.fixture(params=["memory", *KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each kind of store in turn."""
    made = (
        MemoryStore()
        if request.param == "memory"
        else open_store(fresh_url(request.param, request, tmp_path))
    )
    yield made
    made.close()


class Place:
    """A place in the code that waits for the interruption of its job; in Python, where that could break in."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self.passed = False

    def __call__(self, *_: object) -> None:
        self.reached.set()
        deadline = time.monotonic() + TIMEOUT
        while not self.go.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        self.passed = True


def interrupted_at(place: Place, job: Callable[[], object], *, goes_on: bool = True) -> object:
    """What becomes of a job that is canceled while it is at *place*, where it *goes on* only after that."""
    lane, completer, tools = thread_lane(job, slots=1)
    run = run_of(tools)
    lane.accept([run])
    assert place.reached.wait(TIMEOUT)
    lane.interrupt(run, Stop.CANCELED)
    if goes_on:
        place.go.set()
    completer.wait_for(1, TIMEOUT)
    lane.stop(5)
    return completer.outcomes[run.job_id]


def verbs(store: Any, place: Place) -> dict[str, Callable[[], object]]:
    """Every way in which a store does something, with *place* in its middle."""
    if isinstance(store, MemoryStore):
        return {"write": lambda: store._state.run(place)}
    return {
        "read": lambda: store.database.read(place),
        "write": lambda: store.database.run(place),
    }


def all_of(steps: Sequence[Callable[[], object]]) -> None:
    """One after the other."""
    for step in steps:
        step()


def test_what_a_store_does_is_done_first(store: Any) -> None:
    """The call comes to its end, and the interruption is raised right after it; the connection is free again."""
    for verb in verbs(store, Place()):
        place = Place()
        after: list[str] = []
        steps = (verbs(store, place)[verb], partial(after.append, "the job went on"))
        assert isinstance(interrupted_at(place, partial(all_of, steps)), Interrupted)
        assert (place.passed, after) == (True, [])
        assert sum(store.counts().values()) == 0


def test_user_code_in_a_transaction_is_interrupted(store: Any) -> None:
    """The block that a store lends is not shielded: it ends at once, and rolls back."""
    place = Place()
    ended: list[object] = []

    def job() -> None:
        try:
            with store.begin():
                place()
        except JobInterrupted:
            ended.append("interrupted")
            raise

    outcome = interrupted_at(place, job, goes_on=False)
    assert isinstance(outcome, Interrupted)
    assert (place.passed, ended) == (False, ["interrupted"])
    assert sum(store.counts().values()) == 0


def test_what_a_job_does_about_it_is_left_alone(store: Any) -> None:
    """It is raised once: who cleans up after it, or counts it, gets to the store."""
    place = Place()
    place.go.set()
    seen: list[object] = []

    def job() -> None:
        waits = Place()
        try:
            place()
            waits()
        finally:
            for verb in verbs(store, place).values():
                verb()
            seen.append(sum(store.counts().values()))

    assert isinstance(interrupted_at(place, job, goes_on=False), Interrupted)
    assert seen == [0]


def test_other_threads_of_a_job_do_not_expose_it() -> None:
    """A thread that a job has started asks a store meanwhile: what the job's own thread does stays shielded."""
    place, asks, answered = Place(), threading.Event(), threading.Event()

    def ask() -> None:
        with undisturbed():
            asks.set()
            answered.wait(TIMEOUT)

    def job() -> None:
        context = copy_context()
        helper = threading.Thread(target=lambda: context.run(ask))
        helper.start()
        assert asks.wait(TIMEOUT)
        with undisturbed():
            answered.set()
            helper.join(TIMEOUT)
            place()

    assert isinstance(interrupted_at(place, job), Interrupted)
    assert place.passed
