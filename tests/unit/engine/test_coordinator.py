"""The coordinator claims no more than the store can be told about."""

from __future__ import annotations

from typing import Any

from ratchet.engine.coordinator import Coordinator
from ratchet.model.clock import ManualClock
from ratchet.model.status import Lane


class WantsSeven:
    """A lane that always wants seven."""

    def wanted(self) -> int:
        return 7


class TestBackPressure:
    def coordinator(self, unwritten: list[int]) -> Coordinator:
        lanes: Any = {Lane.THREAD: WantsSeven()}
        tools: Any = None
        return Coordinator(lanes, tools, ManualClock(), lambda: unwritten[0], most_unwritten=100)

    def test_nothing_is_claimed_while_outcomes_wait(self) -> None:
        """Up to the mark a lane gets what it wants; beyond it nothing, until half of them are written."""
        unwritten = [100]
        known = self.coordinator(unwritten)
        assert known.wanted(Lane.THREAD) == 7
        unwritten[0] = 101
        assert known.wanted(Lane.THREAD) == 0
        unwritten[0] = 51
        assert known.wanted(Lane.THREAD) == 0
        assert not known.has_caught_up()
        unwritten[0] = 50
        assert known.has_caught_up()
        assert known.wanted(Lane.THREAD) == 7

    def test_catching_up_is_said_once(self) -> None:
        """The poller is woken by the commit that made room, not by each one after it."""
        unwritten = [0]
        known = self.coordinator(unwritten)
        assert not known.has_caught_up()
        unwritten[0] = 500
        assert known.wanted(Lane.THREAD) == 0
        unwritten[0] = 0
        assert [known.has_caught_up(), known.has_caught_up()] == [True, False]

    def test_what_was_written_meanwhile_is_seen(self) -> None:
        """The rest is written between the look and the note: nobody would wake the poller, so it claims at once."""
        found = iter([500, 0])
        lanes: Any = {Lane.THREAD: WantsSeven()}
        tools: Any = None
        known = Coordinator(lanes, tools, ManualClock(), lambda: next(found), most_unwritten=100)
        assert known.wanted(Lane.THREAD) == 7
