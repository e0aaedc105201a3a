"""A node without threads: every step is taken by the caller, on a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from ratchet.engine.assembly import Assembly, NodeParts
from ratchet.engine.lanes.inline import InlineLane
from ratchet.engine.lanes.lane import JobLane
from ratchet.engine.logs import LogContext
from ratchet.model.status import Lane


class ManualNode:
    """Runs what is due, in order, on the calling thread; for tests and the simulator."""

    def __init__(self, parts: NodeParts, *, slots: int = 1, ahead: timedelta = timedelta()) -> None:
        self._parts = parts
        self._slots = slots
        self._open = True
        self.assembly = Assembly(
            parts, self._lanes, wake=lambda: None, is_open=lambda: self._open, ahead=ahead
        )
        self._registered = False

    @property
    def node_id(self) -> str:
        """The id of this incarnation."""
        return self.assembly.identity.node_id

    def register(self) -> None:
        """Join the cluster; `run_until_idle` does it by itself."""
        if not self._registered:
            self.assembly.heartbeat.register(self._parts.clock.now())
            self._registered = True

    def run_until_idle(self, limit: int = 1_000_000) -> int:
        """Run everything that is due now, and what follows from it; how many runs that took."""
        self.register()
        LogContext.install(self.assembly.log_handler, self._parts.options.log_level)
        try:
            runs = 0
            while runs < limit:
                performed = self._round()
                if not performed:
                    return runs
                runs += performed
            return runs
        finally:
            LogContext.remove(self.assembly.log_handler)
            self._parts.bus.flush()

    def _round(self) -> int:
        """Sweeps, schedules, one poll, and everything it brought."""
        now = self._parts.clock.now()
        self.assembly.expiry.run_once(now)
        self.assembly.batch_recovery.run_once(now)
        self.assembly.recurring.run_once(now)
        self.assembly.poller.woken()  # nothing announces what the caller has submitted
        self.assembly.poller.run_once(now)
        performed = 0
        for lane in self.assembly.coordinator.lanes.values():
            while isinstance(lane, InlineLane) and lane.step():
                performed += 1
                self.assembly.completer.run_once(self._parts.clock.now())
        self.assembly.completer.run_once(self._parts.clock.now())
        self.assembly.log_writer.run_once(self._parts.clock.now())
        self.assembly.batch_progress.run_once(self._parts.clock.now())
        if self.assembly.flow is not None:
            self.assembly.flow.run_once(self._parts.clock.now())
        self._parts.bus.flush()
        return performed

    def cancel_local(self, job_id: UUID) -> bool:
        """A job was canceled by the code under test: stop it if it is being run."""
        return self.assembly.coordinator.cancel(job_id)

    def wake(self) -> None:
        """Nothing sleeps here."""

    def close(self) -> None:
        """Leave the cluster."""
        if self._registered:
            if self.assembly.flow is not None:
                self.assembly.flow.close(self._parts.clock.now())
            self._parts.store.deregister(self.node_id, now=self._parts.clock.now())
            self._registered = False

    def _lanes(self, assembly: Assembly) -> Sequence[JobLane]:
        return [
            InlineLane(
                lane,
                slots=self._slots,
                task=assembly.task,
                completer=assembly.completer,
                clock=self._parts.clock,
                on_started=assembly.announcer.started,
            )
            for lane in Lane
        ]
