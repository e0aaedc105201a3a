"""What happens to the workers of a soak: they are killed, frozen, replaced, and their database goes away."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.chaos.soak.log import Run
from tests.chaos.stage import Stage

APP = "tests.chaos.soak.app:scheduler"
WORKERS = 3
#: Seconds within which the outcome of a run is written, on a machine that has much to do.
UNWRITTEN = 5.0


@dataclass(frozen=True)
class Freeze:
    """A process, or all of a group, stood still for a while."""

    group: int
    pid: int | None
    begun: float
    ended: float

    def touches(self, run: Run, begun: float, ended: float) -> bool:
        """True if the process of *run* stood still at some time from *begun* to *ended*."""
        hit = self.group == run.group and self.pid in (None, run.pid)
        return hit and self.begun <= ended and begun <= self.ended


@dataclass(frozen=True)
class Kill:
    """A whole worker was killed, with the supervisor that knew which runs had started."""

    group: int
    at: float

    def hides(self, run: Run) -> bool:
        """True if the store may never have learned of *run*: the worker was killed in it, or before its outcome was written."""
        return (
            self.group == run.group
            and self.at > run.started_at
            and self.at < (run.ended_at or self.at) + UNWRITTEN
        )


@dataclass
class Blows:
    """Strikes the workers of a stage, one blow at a time, in an order that the dice decide."""

    stage: Stage
    dice: random.Random
    freezes: list[Freeze] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    dealt: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        for _ in range(WORKERS):
            self.start()
        for worker in self.stage.workers:
            worker.wait_ready(seconds=60)

    def start(self) -> None:
        self.stage.start_worker("--concurrency", "8", app=APP)

    def one(self) -> None:
        """The next blow; it returns when the blow is over."""
        name = self.dice.choices(
            ["kill", "kill_child", "freeze_briefly", "freeze_long", "deploy", "outage"], [3, 3, 2, 2, 3, 1]
        )[0]
        getattr(self, f"_{name}")()
        self.dealt[name] += 1

    def _kill(self) -> None:
        worker = self.dice.choice(self.stage.workers)
        self.stage.kill(worker)
        self.kills.append(Kill(worker.process.pid, time.monotonic()))
        self.start()

    def _kill_child(self) -> None:
        worker = self.dice.choice(self.stage.workers)
        if children := worker.children():
            try:
                self.stage.kill_child(worker, children[-1])
            except ProcessLookupError:
                pass  # the supervisor has replaced it just now

    def _freeze_briefly(self) -> None:
        """For less than a node may be silent."""
        self._freeze(self.dice.uniform(0.5, 2.5))

    def _freeze_long(self) -> None:
        """Until others have its work."""
        self._freeze(self.dice.uniform(6.0, 9.0))

    def _freeze(self, seconds: float) -> None:
        worker = self.dice.choice(self.stage.workers)
        pid = None
        if self.dice.random() < 0.5 and (children := worker.children()):
            pid = children[-1]
        begun = time.monotonic()
        try:
            with self.stage.frozen(worker, pid):
                time.sleep(seconds)
        except ProcessLookupError:
            pass
        self.freezes.append(Freeze(worker.process.pid, pid, begun, time.monotonic()))

    def _deploy(self) -> None:
        """SIGTERM for one worker; a new one takes its place."""
        old = self.stage.workers.pop(self.dice.randrange(len(self.stage.workers)))
        self.start()
        # Until it says something, Python is still loading: nothing is begun that could be left undone.
        has_begun = bool(old.log)
        old.signal(signal.SIGTERM)
        if (code := old.wait(60)) != 0 and (has_begun or code != -signal.SIGTERM):
            self.stage.broken.append(f"{old.name} ended with {code} after SIGTERM")

    def _outage(self) -> None:
        begun = time.monotonic()
        self.stage.outage(self.dice.uniform(1.0, 4.0))
        self.outages.append((begun, time.monotonic()))
