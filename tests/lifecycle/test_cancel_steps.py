"""Cancel at every step of the twelve: the result is discarded, the status is CANCELED, nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet import JobStatus
from ratchet.testing import ManualClock, manual_scheduler
from tests.lifecycle import jobs

#: Where a job can be caught, by the store call or engine function that the step makes.
STEPS = [
    "before the claim",
    "after the claim",
    "resolve",
    "call",
    "decide",
    "before the commit",
    "after the commit",
]


class TestCancelAtEveryStep:
    @pytest.mark.parametrize("step", STEPS)
    def test_canceled_is_final_and_nothing_leaks(self, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wherever it is caught, the job ends CANCELED (or had already succeeded), and its key is free."""
        scheduler = manual_scheduler(clock=ManualClock())
        handle = scheduler.enqueue(jobs.double, 4).with_business_key("one").submit()
        canceled: list[bool] = []

        def cancel() -> None:
            if not canceled:
                canceled.append(handle.cancel())

        _catch(scheduler, monkeypatch, step, cancel)
        scheduler.drain()
        assert canceled == [step != "after the commit"]
        expected = JobStatus.SUCCEEDED if step == "after the commit" else JobStatus.CANCELED
        assert handle.status() is expected
        assert handle.job().result == (8 if expected is JobStatus.SUCCEEDED else None)
        counted = scheduler.jobs.executions(handle.id)
        assert len(counted) == (1 if expected is JobStatus.SUCCEEDED else 0)
        again = scheduler.enqueue(jobs.double, 5).with_business_key("one").submit()
        scheduler.drain()
        assert again.result(timeout=0) == 10


def _catch(scheduler: Any, monkeypatch: pytest.MonkeyPatch, step: str, cancel: Any) -> None:
    """Call *cancel* when the engine reaches *step*."""
    from ratchet.engine.decide import Decider
    from ratchet.engine.task import JobTask

    store_class = type(scheduler._core.store)

    def around(owner: Any, name: str, *, before: bool) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            if before:
                cancel()
            answer = original(*args, **more)
            if not before:
                cancel()
            return answer

        monkeypatch.setattr(owner, name, wrapped)

    match step:
        case "before the claim":
            around(store_class, "claim_next_batch", before=True)
        case "after the claim":
            around(store_class, "claim_next_batch", before=False)
        case "resolve":
            around(JobTask, "_arguments", before=True)
        case "call":
            around(JobTask, "invoke", before=True)
        case "decide":
            around(Decider, "decide", before=True)
        case "before the commit":
            around(store_class, "complete", before=True)
        case "after the commit":
            around(store_class, "complete", before=False)
