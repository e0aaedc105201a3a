"""What the engine does for batches: progress reports, and a look for batches that were left behind."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from uuid import UUID

from ratchet.engine.conditions import batch_context, within_limit
from ratchet.model.clock import Clock
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.store.batches import BatchStore

logger = logging.getLogger("ratchet.engine")

#: A node reports one batch at most this often, and once more when it is complete.
REPORT_INTERVAL = 1.0
REPORT_LIMIT = 10.0


class BatchProgress:
    """
    Calls a batch's ``on_progress`` function with its counters, on the node that ended a child.

    A report is news, not a promise: at most once a second per node and batch, and lost with the
    node. What must not be missed hangs on the batch as a follower.
    """

    def __init__(
        self,
        *,
        batches: BatchStore,
        invocations: InvocationResolver,
        instances: InstanceResolver,
        clock: Clock,
    ) -> None:
        self._batches = batches
        self._invocations = invocations
        self._instances = instances
        self._clock = clock
        self._lock = threading.Lock()
        self._changed: set[UUID] = set()
        self._reported: dict[UUID, float] = {}
        self._silent: set[UUID] = set()  # batches that nobody wants to hear of

    def child_ended(self, batch_id: UUID) -> None:
        """A child of this batch ended on this node."""
        if batch_id not in self._silent:
            with self._lock:
                self._changed.add(batch_id)

    def run_once(self, now: datetime) -> int:
        """Report what is due; how many reports were made."""
        at = self._clock.monotonic()
        with self._lock:
            due = {b for b in self._changed if at - self._reported.get(b, float("-inf")) >= REPORT_INTERVAL}
            self._changed -= due
        return sum(self._report(batch_id, at) for batch_id in sorted(due))

    def _report(self, batch_id: UUID, at: float) -> int:
        record = self._batches.batch(batch_id)
        if record is None or record.progress_target is None:
            self._silent.add(batch_id)
            if len(self._silent) > 10_000:
                self._silent.clear()
            return 0
        self._reported[batch_id] = at
        if record.finished_at is not None:
            self._reported.pop(batch_id)
        target = record.progress_target
        try:
            report = self._invocations.resolve(target).bind(self._instances)
            within_limit(lambda: report(batch_context(record)), REPORT_LIMIT)
        except Exception:
            logger.exception("the progress function %s of batch %s raised", target, record.name)
        return 1


class BatchRecovery:
    """Releases the parent of a batch whose children have all ended, should that ever have been missed."""

    def __init__(self, batches: BatchStore) -> None:
        self._batches = batches

    def run_once(self, now: datetime) -> int:
        """Finish what was left behind; how many batches."""
        found = [b for b in self._batches.unfinished() if self._batches.finish(b.batch_id, now=now)]
        for batch in found:
            logger.warning(
                "batch %s (%s) was complete but not finished; it is now", batch.name, batch.batch_id
            )
        return len(found)
