"""The lane report: which lanes of this node have no free slot, and which run nothing; it goes out with the beat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ratchet.engine.coordinator import Coordinator
from ratchet.model.clock import Clock
from ratchet.model.status import Lane


class LaneReport:
    """
    Says what keeps this node from starting jobs.

    Only what changes rarely: it is written together with a beat when it has changed. A number of busy slots would
    be written with every beat.
    """

    def __init__(self, coordinator: Coordinator, clock: Clock) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._full: dict[Lane, datetime] = {}
        self.claims_fail: Callable[[], bool] = lambda: False
        self.runs_suspects: Callable[[], bool] = lambda: False

    def full(self) -> dict[str, datetime]:
        """The lanes in which every slot has a job, and since which look that is so; while a suspect runs, all of them."""
        lanes, alone = self._coordinator.lanes, self.runs_suspects()
        full = [name for name, lane in lanes.items() if 0 < lane.slots <= len(lane.running()) or alone]
        if full or self._full:
            now = self._clock.now().replace(microsecond=0)
            self._full = {name: self._full.get(name, now) for name in full}
        return {str(name): since for name, since in self._full.items()}

    def down(self) -> dict[str, str]:
        """The lanes that run nothing, and why."""
        if self.claims_fail():
            return {str(name): "its claims fail; its log says why" for name in self._coordinator.lanes}
        return self.dead()

    def dead(self) -> dict[str, str]:
        """The lanes that will run nothing any more, and why; only a new process helps."""
        lanes = self._coordinator.lanes.items()
        return {str(name): why for name, lane in lanes if (why := lane.down) is not None}
