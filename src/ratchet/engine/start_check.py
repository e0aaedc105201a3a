"""The start check: a claim that has waited in this node for long is read again before its job starts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from ratchet.engine.run import Run, Stop
from ratchet.model.claim import JobBody, JobClaim
from ratchet.model.clock import Clock

#: How many seconds a claim is trusted without a look: so long after `cancel` has returned a job may still start.
#: Longer than a lane lets jobs wait as a rule (``prefetch_window``), so that a plain drain asks nothing.
TRUSTED = 0.3


class Holding(Protocol):
    """What the check needs of a store."""

    def bodies(self, claims: Sequence[JobClaim]) -> Mapping[UUID, JobBody]: ...


class StartCheck:
    """
    Asks the store whether this node still holds what it is about to start.

    Runs of several threads are asked about together: while one thread waits for the store, the others queue up, and
    the first of them asks for all.
    """

    def __init__(self, store: Holding, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: list[Run] = []
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    def confirm(self, run: Run) -> None:
        """
        Return when the store has answered: *run* is trusted again, or it has been told to stop.

        Raises `StoreUnavailable` or `Conflict` where the store does not answer. The run must not start then.
        """
        with self._lock:
            self._waiting.append(run)
        with self._asking:
            if run.stop is None and self._clock.monotonic() > run.trusted_until:
                self._ask(run)

    def _ask(self, run: Run) -> None:
        with self._lock:
            asked, self._waiting = self._waiting, []
        runs = {id(one): one for one in [run, *asked] if one.stop is None}.values()
        until = self._clock.monotonic() + TRUSTED
        held = self._store.bodies([one.job.claim for one in runs])
        for one in runs:
            if one.job_id in held:
                one.trusted_until = until
            else:
                one.request_stop(Stop.CANCELED)
