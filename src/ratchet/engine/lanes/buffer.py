"""Claimed runs that wait for a slot, and how many more a lane should have."""

from __future__ import annotations

from ratchet.engine.run import Run


class Rate:
    """Starts per second, measured over the recent past."""

    __slots__ = ("_count", "_since", "per_second")

    def __init__(self) -> None:
        self.per_second = 0.0  # 0 until measured
        self._count = 0
        self._since: float | None = None

    def tick(self, now: float) -> None:
        """One start at *now* (monotonic)."""
        if self._since is None:
            self._since = now
        self._count += 1
        elapsed = now - self._since
        if elapsed >= 0.05:
            measured = self._count / elapsed
            self.per_second = measured if not self.per_second else 0.5 * self.per_second + 0.5 * measured
            self._count, self._since = 0, now

    def idle(self, now: float) -> None:
        """Nothing to start: what was measured grows stale."""
        if self._since is not None and now - self._since > 1.0:
            self.per_second, self._count, self._since = 0.0, 0, None


class RunBuffer:
    """
    Accepted runs by job id, in order.

    Worker and withdrawal race for a run by popping it: a dict's pop is atomic, so one of them has it.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, Run] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Run) -> None:
        """A run that waits for its slot."""
        self._waiting[id(run)] = run

    def take(self, run: Run) -> bool:
        """True if the run is still here, and now the caller's."""
        return self._waiting.pop(id(run), None) is not None

    def take_older(self, before: float) -> list[Run]:
        """Everything accepted before *before*."""
        older = [run for run in list(self._waiting.values()) if run.accepted < before]
        return [run for run in older if self.take(run)]

    def runs(self) -> list[Run]:
        """What waits, in order."""
        return list(self._waiting.values())


def prefetch(free: int, waiting: int, ahead: int) -> int:
    """
    Free slots plus what will start soon, less what waits; nothing while more than half of that is there.

    A claim costs as much for five jobs as for fifty: a lane that asked for every started run anew
    would claim in crumbs.
    """
    if waiting >= free and waiting > ahead // 2:
        return 0
    return max(0, free + ahead - waiting)


class Appetite:
    """
    How many more runs a lane should have, and when it must say by itself that it wants them.

    It does so once after each question, when at most half of what was planned still waits, and only if
    there may be more to have: it could not ask for anything, or it got all that it asked for.
    """

    __slots__ = ("_armed", "_asked", "_limit", "_low_water", "_window", "rate")

    def __init__(self, window: float, limit: int) -> None:
        self.rate = Rate()
        self._window = window
        self._limit = limit
        self._low_water = 0
        self._asked = 0
        self._armed = True

    def wanted(self, buffer: RunBuffer, slots: int, running: int, now: float) -> int:
        """How many runs to claim now."""
        if not buffer and not running:
            self.rate.idle(now)
        ahead = min(self._limit, int(self.rate.per_second * self._window))
        # Armed before it looks: a worker that takes a run from now on sees the new mark.
        self._low_water = ahead // 2
        self._armed = True
        self._asked = prefetch(slots - running, len(buffer), ahead)
        if self._asked:
            self._armed = False
        return self._asked

    def got(self, runs: int) -> None:
        """What came of the question; called before the runs can be taken."""
        self._armed = runs >= self._asked

    def aroused(self, waiting: int) -> bool:
        """True once per question, when no more than the mark waits."""
        if self._armed and waiting <= self._low_water:
            self._armed = False
            return True
        return False
