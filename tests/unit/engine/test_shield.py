"""An interruption stops the user's code, and never breaks into the engine's own: it would keep what it had taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ratchet.api.context import JobContext
from ratchet.engine.run import Run, Stop
from ratchet.model.decision import Completion, CompletionAnswer, Interrupted
from tests.unit.engine.lane_stand import Remembering, run_of
from tests.unit.engine.test_lanes import thread_lane


class SlowStore:
    """A store whose transactions take a while to begin and to end, in Python code that can be broken into."""

    def __init__(self) -> None:
        self.at = {name: threading.Event() for name in ("begin", "body", "commit")}
        self.begun = 0
        self.taken = 0
        self.committed = 0

    @contextmanager
    def begin(self, *, within: object | None = None) -> Iterator[object]:
        self._work("begin")
        self.begun += 1
        self.taken += 1
        try:
            yield object()
            self._work("commit")
            self.committed += 1
        finally:
            self.taken -= 1

    def complete(self, completions: Sequence[Completion], **_: Any) -> list[CompletionAnswer]:
        return [CompletionAnswer(job_id=c.claim.job_id, won=True) for c in completions]

    def _work(self, place: str) -> None:
        self.at[place].set()
        for _ in range(30):
            time.sleep(0.01)


def interrupted_at(place: str) -> tuple[SlowStore, Run, Remembering, list[str]]:
    """A job that is interrupted while it is at *place*: what it left behind, and how far it came."""
    store = SlowStore()
    steps: list[str] = []

    def job() -> None:
        with JobContext.current().transaction():
            steps.append("body")
            if place == "body":
                store._work("body")
            steps.append("end of body")
        steps.append("after")

    lane, completer, tools = thread_lane(job, slots=1)
    tools.store = store
    run = run_of(tools)
    lane.accept([run])
    assert store.at[place].wait(10)
    lane.interrupt(run, Stop.CANCELED)
    completer.wait_for(1, timeout=30)
    lane.stop(5)
    return store, run, completer, steps


def test_a_transaction_begins_whole() -> None:
    """While its connection is being taken, the job is not broken into: it is taken, given back, and the job stops."""
    store, run, completer, steps = interrupted_at("begin")
    assert (store.begun, store.taken, store.committed) == (1, 0, 0)
    assert steps == []
    assert run.committed is None
    assert completer.outcomes[run.job_id] == Interrupted(Stop.CANCELED.value)


def test_the_user_s_code_inside_is_stopped() -> None:
    """Between begin and commit runs the job's own code, and that ends at once; the transaction is rolled back."""
    store, run, completer, steps = interrupted_at("body")
    assert (store.taken, store.committed) == (0, 0)
    assert steps == ["body"]
    assert run.committed is None
    assert completer.outcomes[run.job_id] == Interrupted(Stop.CANCELED.value)


def test_a_commit_is_not_broken_off() -> None:
    """What has begun to commit is committed, and known to be; the job stops after it."""
    store, run, _, steps = interrupted_at("commit")
    assert (store.taken, store.committed) == (0, 1)
    assert run.committed is not None
    assert steps == ["body", "end of body"]


def test_saving_is_not_broken_off() -> None:
    """Progress and checkpoints of a job that is interrupted are written, or not begun."""
    for save in (lambda: JobContext.current().progress(0.5), _save_state):
        assert _interrupted_while_saving(save) == ["begun", "written"]


def _save_state() -> None:
    JobContext.current().state["page"] = 7
    JobContext.current().save()


def _interrupted_while_saving(save: Callable[[], None]) -> list[str]:
    steps: list[str] = []
    begun = threading.Event()

    class Slow:
        def write(self, *_: Any, **__: Any) -> bool:
            steps.append("begun")
            begun.set()
            for _ in range(30):
                time.sleep(0.01)
            steps.append("written")
            return True

        save_progress = save_state = write

    def job() -> None:
        save()
        steps.append("went on")

    lane, completer, tools = thread_lane(job, slots=1)
    tools.transitions = Slow()
    run = run_of(tools)
    lane.accept([run])
    assert begun.wait(10)
    lane.interrupt(run, Stop.CANCELED)
    completer.wait_for(1, timeout=30)
    lane.stop(5)
    return steps
