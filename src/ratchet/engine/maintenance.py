"""Maintenance: expiry, archiving, purges. Reads first; a lock is taken only when there is work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.api.storage import LEASE, LOCK, PORTION
from ratchet.api.storage import steps as purge_steps
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.timetable import CronTable, Timetable
from ratchet.model.clock import Clock
from ratchet.model.cluster import NodeState
from ratchet.model.decision import CanceledJob
from ratchet.model.durations import earlier
from ratchet.model.errors import ConfigurationError, InvalidJob
from ratchet.model.identifiers import IdSource
from ratchet.model.options import Options
from ratchet.model.storage import Kept, retention_of
from ratchet.spi.store import JobStore
from ratchet.spi.store.cluster import LockStore

logger = logging.getLogger("ratchet.engine")

BATCH = PORTION
ROUNDS = 20
#: Rows of dead nodes are kept this long, so that people can see what happened.
DEAD_NODES_KEPT = timedelta(days=1)
#: A stream (one combination of queue, lane, gates and keys) without jobs is set aside after this long, and deleted
#: after as long again.
UNUSED_STREAMS_KEPT = timedelta(days=3)
#: A limit that was made for a key goes when no submission has asked for it, and no job has had the key, for as long.
UNUSED_LIMITS_KEPT = timedelta(days=3)
#: Finding unused streams reads all waiting jobs, so it is not done in every round.
STREAMS_REST = timedelta(hours=1)
LONGEST_REST = timedelta(hours=1)


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

    One node does it at a time, under a lock that it renews, and in small batches, so that no other transaction waits
    for long. A round that found nothing to do is not repeated soon: an idle cluster writes nothing.
    """

    def __init__(
        self, *, store: JobStore, options: Options, identity: NodeIdentity, ids: IdSource, clock: Clock
    ) -> None:
        self._store = store
        self._options = options
        self._identity = identity
        self._ids = ids
        self._clock = clock
        self._resting_until: datetime | None = None
        self._streams_at: datetime | None = None
        self._dead_letters = _DeadLetterTimes(options.dead_letter_purge_cron)

    def run_once(self, now: datetime) -> int:
        """One round of everything; how many rows were moved or deleted. 0 also while another node does it."""
        self._dead_letters.look(now)
        if self._resting_until is not None and now < self._resting_until:
            return 0
        if not self._has_work(now):
            return 0
        held = self._store.lock(LOCK)
        if held is not None and held.expires_at > now:
            return 0
        lease = _Lease(self._store, self._identity.node_id, self._ids(), self._clock)
        if not lease.take(now):
            return 0
        try:
            cleaned = self._clean(now, lease)
        finally:
            lease.release()
        self._resting_until = None if cleaned else self._dead_letters.at_the_latest(now, now + self._rest())
        return cleaned

    def _keeps(self) -> list[timedelta]:
        options = self._options
        keeps = (
            options.retention,
            options.dead_letter_retention if self._dead_letters.due else None,
            options.log_retention,
            options.execution_retention,
        )
        return [keep for keep in keeps if keep is not None]

    def _rest(self) -> timedelta:
        """How long to wait after a round that found nothing. What is old but may not go yet is not read every minute."""
        return min([LONGEST_REST, *(keep / 10 for keep in self._keeps())])

    def _has_work(self, now: datetime) -> bool:
        """
        A look before the lock is taken: is any job old enough to be archived or to lose a part?

        It asks for the oldest job only. A search by time would read every job to find that none is old.
        """
        if (keeps := self._keeps()) and _is_before(self._store.oldest_created_at(), earlier(now, min(keeps))):
            return True
        archive = self._options.archive_retention
        if archive is not None and _is_before(self._store.oldest_archived_at(), earlier(now, archive)):
            return True
        audit = self._options.audit_retention
        if audit is not None and _is_before(self._oldest_audit_at(), earlier(now, audit)):
            return True
        return any(
            node.state is NodeState.DEAD and (node.rescued_at or node.last_beat_at) < now - DEAD_NODES_KEPT
            for node in self._store.nodes(counting=False)
        )

    def _oldest_audit_at(self) -> datetime | None:
        return self._store.oldest_audit_at() if hasattr(self._store, "oldest_audit_at") else None

    def _clean(self, now: datetime, lease: _Lease) -> int:
        options, store = self._options, self._store
        keep_of, step_of = retention_of(options), purge_steps(store, now, BATCH)
        if not self._dead_letters.due:
            keep_of[Kept.DEAD_LETTERS] = None
        step_of[Kept.DEAD_LETTERS] = self._purge_dead_letters
        steps = [(keep_of[kind], step) for kind, step in step_of.items()]
        if hasattr(store, "purge_audit"):  # a store that somebody wrote for an earlier version keeps none
            steps.append(
                (options.audit_retention, lambda before: store.purge_audit(before=before, limit=BATCH))
            )
        if self._streams_at is None or not timedelta() <= now - self._streams_at < STREAMS_REST:
            self._streams_at = now
            steps.append(
                (
                    UNUSED_STREAMS_KEPT,
                    lambda before: store.purge_streams(before=before, limit=BATCH, now=now),
                )
            )
            if hasattr(store, "purge_limits"):  # as above
                steps.append(
                    (
                        UNUSED_LIMITS_KEPT,
                        lambda before: store.purge_limits(before=before, limit=BATCH, now=now),
                    )
                )
        total = sum(_in_rounds(step, earlier(now, keep), lease) for keep, step in steps if keep is not None)
        if lease.renew():
            total += store.purge_signals(now=now, limit=BATCH)
            total += store.purge_nodes(before=now - DEAD_NODES_KEPT)
        if total:
            logger.info("housekeeping moved or deleted %d rows", total)
        return total

    def _purge_dead_letters(self, before: datetime) -> int:
        purged = self._store.purge_dead_letters(before=before, limit=BATCH)
        if purged < BATCH:
            self._dead_letters.done()
        return purged


class _DeadLetterTimes:
    """When dead letters are purged: always, or from a fire time of a cron expression until none is left."""

    def __init__(self, cron: str | None) -> None:
        self._table = None if cron is None else _table_of(cron)
        self._next: datetime | None = None
        self.due = cron is None

    def look(self, now: datetime) -> None:
        """A fire time has come, or not."""
        if self._table is None:
            return
        if self._next is not None and self._next <= now:
            self.due = True
        if self._next is None or self.due:
            self._next = next(self._table.after(now), None)

    def done(self) -> None:
        """None is left; the next fire time counts."""
        self.due = self._table is None

    def at_the_latest(self, now: datetime, rest: datetime) -> datetime:
        """*rest*, or the fire time before it."""
        return rest if self._next is None or self._next <= now else min(rest, self._next)


def _table_of(cron: str) -> Timetable:
    try:
        return CronTable(cron, "UTC")
    except InvalidJob as error:
        raise ConfigurationError(f"the option dead_letter_purge_cron: {error}") from error


class _Lease:
    """The lock of one round. A node that was frozen in the meantime no longer holds it, and stops."""

    def __init__(self, locks: LockStore, holder: str, token: UUID, clock: Clock) -> None:
        self._locks = locks
        self._holder = holder
        self._token = token
        self._clock = clock
        self._renew_at = 0.0

    def take(self, now: datetime) -> bool:
        asked = self._clock.monotonic()
        held = self._locks.acquire_lock(LOCK, holder=self._holder, token=self._token, ttl=LEASE, now=now)
        self._renew_at = asked + LEASE.total_seconds() / 4 if held else 0.0
        return held

    def renew(self) -> bool:
        """False if another node has it now. Asks the store only when a quarter of the lease is over."""
        return self._clock.monotonic() < self._renew_at or self.take(self._clock.now())

    def release(self) -> None:
        self._locks.release_lock(LOCK, token=self._token)


def _is_before(at: datetime | None, limit: datetime) -> bool:
    return at is not None and at < limit


def _in_rounds(step: Callable[[datetime], int], before: datetime, lease: _Lease) -> int:
    total = 0
    for _ in range(ROUNDS):
        if not lease.renew():
            break
        done = step(before)
        total += done
        if done < BATCH:
            break
    return total
