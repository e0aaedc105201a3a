"""What a node does when the store has answered about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from ratchet.engine.announcer import Announcer
from ratchet.engine.run import Run, RunEnd
from ratchet.model.clock import ManualClock
from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    CountCrash,
    ErrorRecord,
    HandBack,
    Interrupted,
    Retry,
    Settle,
    StoppedLate,
    Succeed,
)
from tests.support.lanes import claimed, tools_for


def answered(decision: Any, *, is_open: bool) -> list[str]:
    """Whom a node tells, once the store has carried out *decision* about a run of its own."""
    said: list[str] = []
    announcer = Announcer(
        bus=Mock(),
        coordinator=Mock(),
        clock=ManualClock(),
        store=Mock(),
        wake=lambda: said.append("wake"),
        spread=lambda: said.append("spread"),
        notice=lambda job_ids: None,
        is_open=lambda: is_open,
    )
    run = Run(claimed(), tools_for(lambda: None), 0.0)
    end = RunEnd(run, Interrupted("stopped"))
    end.decision = decision
    end.completion = Completion(claim=run.job.claim, decision=decision)
    end.answer = CompletionAnswer(job_id=run.job_id, won=True)
    announcer.answered(end)
    return sorted(said)


RETRY = Retry(at=datetime.now(UTC), error=ErrorRecord(message="no", type="ValueError"))


@pytest.mark.parametrize(
    "decision", [HandBack(), CountCrash(detail="killed", max_crashes=3)], ids=["handed back", "crashed"]
)
def test_what_is_due_again_at_once_is_told_to_all(decision: Any) -> None:
    """The node itself may be full or leaving; another that is idle would find the job only with its next poll."""
    assert answered(decision, is_open=True) == ["spread", "wake"]
    assert answered(decision, is_open=False) == ["spread", "wake"]


def test_a_retry_is_told_to_others_only_by_a_node_that_leaves() -> None:
    """A node that works looks for the retry itself, and no message is sent for each failed attempt."""
    assert answered(RETRY, is_open=True) == ["wake"]
    assert answered(RETRY, is_open=False) == ["spread", "wake"]


def test_a_success_wakes_nobody() -> None:
    """A plain drain sends no message for each job."""
    assert answered(Succeed(), is_open=True) == []


def test_code_that_has_ended_late_wakes_pollers() -> None:
    """The retry of its job may have waited for that, on this node or another, and no poller knows of it."""
    said: list[str] = []
    coordinator: Any = Mock()
    announcer = Announcer(
        bus=Mock(),
        coordinator=coordinator,
        clock=ManualClock(),
        store=Mock(),
        wake=lambda: said.append("wake"),
        spread=lambda: said.append("spread"),
        notice=lambda job_ids: None,
    )
    run = Run(claimed(), tools_for(lambda: None), 0.0)
    assert run.give_up()
    end = RunEnd(run, StoppedLate())
    end.decision = Settle()
    announcer.answered(end)
    assert sorted(said) == ["spread", "wake"]
    coordinator.release.assert_called_once_with(run, still_running=False)
