"""What the engine does for batches: progress reports, and the recovery of batches that were left behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.api.batches.open_batches import LEASE, lease_name
from ratchet.api.observe.records import batch_context
from ratchet.engine.conditions import within_limit
from ratchet.engine.events import EventBus
from ratchet.engine.identity import NodeIdentity
from ratchet.model.callbacks import kept_arguments, plain_target
from ratchet.model.clock import Clock
from ratchet.model.composition import BatchRecord
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import StoreError
from ratchet.model.events import BatchProgressed
from ratchet.model.identifiers import IdSource
from ratchet.model.payload import AllowType, decode
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.instance_resolver import InstanceResolver
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.store import JobStore

logger = logging.getLogger("ratchet.engine")
faults = FaultLog(logger)

#: A node reports one batch at most this often, and once more when it is complete.
REPORT_INTERVAL = 1.0
REPORT_LIMIT = 10.0
#: The reason with which a batch is canceled whose submitter died.
ABANDONED = "abandoned"


class BatchProgress:
    """
    Calls a batch's ``on_progress`` function with its counters, on the node that ended a child.

    Reports are not guaranteed: there is at most one a second per node and batch, and a node that dies
    makes none. What must not be missed belongs in a job that follows the batch.
    """

    def __init__(
        self,
        *,
        store: JobStore,
        bus: EventBus,
        invocations: InvocationResolver,
        instances: InstanceResolver,
        clock: Clock,
        allow_type: AllowType | None = None,
    ) -> None:
        self._store = store
        self._allow_type = allow_type
        self._bus = bus
        #: Told of each batch that is reported.
        self.on_report: Callable[[BatchRecord], None] = lambda record: None
        self._invocations = invocations
        self._instances = instances
        self._clock = clock
        self._lock = threading.Lock()
        # By the numbers of the ids: this is asked for every child, and hashing a UUID takes ten times as long.
        self._changed: dict[int, UUID] = {}
        self._reported: dict[UUID, float] = {}
        self._unreported: set[int] = set()  # batches without an ``on_progress`` function

    def child_ended(self, batch_id: UUID) -> None:
        """A child of this batch ended on this node."""
        # If a report is due already, it will be read after this child's end, which is committed.
        number = batch_id.int
        if number not in self._changed and (
            number not in self._unreported or (self._bus.has_listeners and self._is_heard())
        ):
            with self._lock:
                self._changed[number] = batch_id

    def _is_heard(self) -> bool:
        return self._bus.wants(BatchProgressed)

    def run_once(self, now: datetime) -> int:
        """Report what is due; how many reports were made."""
        at = self._clock.monotonic()
        with self._lock:
            changed = self._changed.values()
            due = [b for b in changed if at - self._reported.get(b, float("-inf")) >= REPORT_INTERVAL]
            for batch_id in due:
                del self._changed[batch_id.int]
        reports = 0
        for batch_id in sorted(due):
            try:
                reports += self._report(batch_id, at)
            except StoreError as error:
                logger.debug("batch %s is reported later: %s", batch_id, error)
                self.child_ended(batch_id)
        return reports

    def _report(self, batch_id: UUID, at: float) -> int:
        record = self._store.batch(batch_id)
        if record is None or (record.progress_target is None and not self._is_heard()):
            self._unreported.add(batch_id.int)
            if len(self._unreported) > 10_000:
                self._unreported.clear()
            return 0
        self._reported[batch_id] = at
        if record.finished_at is not None:
            self._reported.pop(batch_id)
        self.on_report(record)
        target = record.progress_target
        if target is None:
            return 1
        kept = self._store.get(record.parent_id) if target != plain_target(target) else None
        try:
            invocation = self._invocations.resolve(plain_target(target))
            report = invocation.bind(self._instances)
            args: tuple[Any, ...] = (None,)
            kwargs: dict[str, Any] = {}
            if kept is not None:
                given = kept_arguments(kept.params, "on_progress")
                args, kwargs = decode(given, invocation.parameters, allow_type=self._allow_type)
            within_limit(lambda: report(batch_context(record), *args[1:], **kwargs), REPORT_LIMIT)
        except BaseException as error:
            faults.note(f"the progress function {target} of the batch {record.name} raised", error)
        return 1


class BatchRecovery:
    """
    Ends batches that were left behind: those that are complete but not finished, and those whose submitter is gone.

    A batch that is stored in chunks is under its submitter's lease (see `ratchet.api.batches.open_batches`). When
    the lease has run out, nobody will seal the batch any more, so it is canceled. The lease is taken over first,
    so that a submitter that was only slow is refused and does not seal a batch that is being canceled.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        identity: NodeIdentity,
        ids: IdSource,
        on_canceled: Callable[[Sequence[CanceledJob]], None],
    ) -> None:
        self._store = store
        self._identity = identity
        self._ids = ids
        self._on_canceled = on_canceled

    def run_once(self, now: datetime) -> int:
        """Finish or cancel what was left behind; how many batches."""
        return self._finish_complete(now) + sum(
            self._cancel_abandoned(batch, now) for batch in self._store.unsealed()
        )

    def _finish_complete(self, now: datetime) -> int:
        found = [b for b in self._store.unfinished() if self._store.finish(b.batch_id, now=now)]
        for batch in found:
            logger.warning(
                "batch %s (%s) was complete but not finished; it is now", batch.name, batch.batch_id
            )
        return len(found)

    def _cancel_abandoned(self, batch: BatchRecord, now: datetime) -> bool:
        name = lease_name(batch.batch_id)
        held = self._store.lock(name)
        if held is not None and held.expires_at > now:
            return False
        token = self._ids()
        if not self._store.acquire_lock(name, holder=self._identity.node_id, token=token, ttl=LEASE, now=now):
            return False
        try:
            latest = self._store.batch(batch.batch_id)
            if latest is None or latest.sealed:
                return False
            logger.warning(
                "batch %s (%s) is canceled: its submitter went away before all items were stored",
                batch.name,
                batch.batch_id,
            )
            self._on_canceled(self._store.cancel_batch(batch.batch_id, reason=ABANDONED, now=now))
            return True
        finally:
            self._store.release_lock(name, token=token)
