"""What a node does when the store has answered about a run."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from ratchet.engine.announcer import Announcer
from ratchet.engine.run import Run, RunEnd
from ratchet.model.clock import ManualClock
from ratchet.model.decision import Settle, StoppedLate
from tests.support.lanes import claimed, tools_for


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
