"""Maintenance: expiry, archiving, purges. Reads first; a lock is taken only when there is work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from ratchet.engine.identity import NodeIdentity
from ratchet.model.clock import Clock
from ratchet.model.decision import CanceledJob
from ratchet.model.identifiers import IdSource
from ratchet.model.job import JobFilter
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.spi.store import JobStore

logger = logging.getLogger("ratchet.engine")

LOCK = "ratchet.maintenance"
BATCH = 500
ROUNDS = 20


class ExpirySweep:
    """Cancels jobs whose expiry has passed and fails those whose signal did not come."""

    def __init__(self, store: JobStore, on_canceled: Callable[[Sequence[CanceledJob]], None]) -> None:
        self._store = store
        self._on_canceled = on_canceled

    def run_once(self, now: datetime) -> int:
        """Sweep until nothing is due; how many jobs ended."""
        total = 0
        while True:
            canceled = self._store.expire(now=now, limit=BATCH)
            if canceled:
                self._on_canceled(canceled)
            total += len(canceled)
            if len(canceled) < BATCH:
                return total


class Housekeeping:
    """
    Moves old jobs to the archive and deletes what is older still.

    One node at a time, under a lock; in small batches, so that nobody waits for it.
    """

    def __init__(
        self, *, store: JobStore, options: Options, identity: NodeIdentity, ids: IdSource, clock: Clock
    ) -> None:
        self._store = store
        self._options = options
        self._identity = identity
        self._ids = ids
        self._clock = clock

    def run_once(self, now: datetime) -> int:
        """One round of everything; how many rows were moved or deleted. 0 also if another node is at it."""
        if not self._has_work(now):
            return 0
        held = self._store.lock(LOCK)
        if held is not None and held.expires_at > now:
            return 0
        token = self._ids()
        ttl = timedelta(minutes=5)
        if not self._store.acquire_lock(LOCK, holder=self._identity.node_id, token=token, ttl=ttl, now=now):
            return 0
        try:
            return self._clean(now)
        finally:
            self._store.release_lock(LOCK, token=token)

    def _has_work(self, now: datetime) -> bool:
        """A look before the lock: an idle node writes nothing."""
        options = self._options
        probes = (
            (options.retention, (JobStatus.SUCCEEDED, JobStatus.CANCELED)),
            (options.dead_letter_retention, (JobStatus.FAILED,)),
        )
        return any(
            keep is not None
            and len(self._store.find(JobFilter(statuses=list(statuses), created_before=now - keep), limit=1))
            for keep, statuses in probes
        ) or self._is_time_for_purges(now)

    def _is_time_for_purges(self, now: datetime) -> bool:
        keep = self._options.archive_retention
        if keep is None:
            return False
        old = JobFilter(created_before=now - keep, include_archived=True)
        return len(self._store.find(old, limit=1)) > 0

    def _clean(self, now: datetime) -> int:
        options, store = self._options, self._store
        steps: list[tuple[timedelta | None, Callable[[datetime], int]]] = [
            (options.retention, lambda before: store.archive(before=before, limit=BATCH, now=now)),
            (
                options.dead_letter_retention,
                lambda before: store.purge_dead_letters(before=before, limit=BATCH),
            ),
            (options.log_retention, lambda before: store.purge_logs(before=before, limit=BATCH)),
            (options.execution_retention, lambda before: store.purge_executions(before=before, limit=BATCH)),
            (options.execution_retention, lambda before: store.purge_fires(before=before, limit=BATCH)),
            (options.archive_retention, lambda before: store.purge_archive(before=before, limit=BATCH)),
        ]
        total = sum(_in_rounds(step, now - keep) for keep, step in steps if keep is not None)
        total += store.purge_signals(now=now, limit=BATCH)
        total += store.purge_nodes(before=now - timedelta(days=1))
        if total:
            logger.info("housekeeping moved or deleted %d rows", total)
        return total


def _in_rounds(step: Callable[[datetime], int], before: datetime) -> int:
    total = 0
    for _ in range(ROUNDS):
        done = step(before)
        total += done
        if done < BATCH:
            break
    return total
