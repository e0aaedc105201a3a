"""``scheduler.storage``: how large the store is, and what is old enough to go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from ratchet.api.authorization import by_hand, require
from ratchet.api.observe.queries import Facade
from ratchet.model.durations import Duration, earlier, format_duration, to_timedelta
from ratchet.model.errors import InvalidJob, RatchetError
from ratchet.model.identifiers import new_id
from ratchet.model.permissions import Permission
from ratchet.model.storage import Kept, OldRows, StorageStats, retention_of
from ratchet.spi.store import JobStore

#: Rows of one transaction of a purge, so that no other waits for long.
PORTION = 500
#: Rows that are looked at to say how many are old.
COUNTED = 10_000
#: The lock under which one process at a time moves and deletes.
LOCK = "ratchet.maintenance"
LEASE = timedelta(minutes=5)

Progress = Callable[[Kept, int], None]


class Storage(Facade):
    """Shows how large the store is, and moves or deletes what has been kept long enough."""

    def stats(self) -> StorageStats:
        """
        The sizes of all tables, the retention of this scheduler's options, and what a purge would take.

        It costs little however large the store is: sizes are the database's own estimates where it has them, and old
        rows are counted up to a limit.
        """
        require(self._backend, Permission.LIST, about="storage")
        retention = retention_of(self._backend.options)
        return StorageStats(size=self._backend.store.size(), retention=retention, old=self._old(retention))

    def purge(
        self,
        older_than: Duration | None = None,
        *,
        dry_run: bool = False,
        on_progress: Progress = lambda kind, count: None,
    ) -> dict[Kept, int]:
        """
        Do now what nodes do with time: archive ended jobs and dead letters, delete archived jobs, runs and log lines.

        It goes by the retention of this scheduler's options, or by *older_than* for everything that is not kept for ever.
        In portions: *on_progress* hears after each how many rows of that kind went so far. With *dry_run* it only counts,
        up to a limit. `RatchetError` while a node or another purge is at it.
        """
        keep, by = retention_of(self._backend.options), "by the retention in force"
        if older_than is not None:
            age = to_timedelta(older_than, "older_than")
            if age <= timedelta(0):
                raise InvalidJob(f"older_than has to be more than nothing, not {age}")
            by = f"older than {format_duration(age)}"
            keep = {kind: None if found is None else age for kind, found in keep.items()}
        if dry_run:
            require(self._backend, Permission.STORAGE, "purge", about="storage")
            return {kind: old.count for kind, old in self._old(keep).items()}
        with by_hand(self._backend, Permission.STORAGE, "purge", about="storage", reason=by, many=True):
            return self._purge(keep, on_progress)

    def _old(self, retention: Mapping[Kept, timedelta | None]) -> dict[Kept, OldRows]:
        now, store = self._backend.now(), self._backend.store
        found = {}
        for kind, keep in retention.items():
            if keep is not None:
                before = earlier(now, keep)
                count = store.count_old(kind, before=before, limit=COUNTED)
                found[kind] = OldRows(count=count, before=before, more=count >= COUNTED)
        return found

    def _purge(self, retention: Mapping[Kept, timedelta | None], on_progress: Progress) -> dict[Kept, int]:
        store, token = self._backend.store, new_id()

        def renewed() -> bool:
            now = self._backend.now()
            return store.acquire_lock(LOCK, holder="purge", token=token, ttl=LEASE, now=now)

        if not renewed():
            held = store.lock(LOCK)
            by = "another process" if held is None else held.holder
            raise RatchetError(f"{by} is archiving and purging right now; try again when it has finished")
        done = dict.fromkeys(retention, 0)
        try:
            for kind, step in steps(store, self._backend.now()).items():
                keep, idle = retention[kind], 0
                # A walk through many rows that must stay may end before it has found what can go, and goes on with the next.
                while keep is not None and idle < 2 and renewed():
                    count = step(earlier(self._backend.now(), keep))
                    done[kind] += count
                    idle = 0 if count else idle + 1
                    if count:
                        on_progress(kind, done[kind])
        finally:
            store.release_lock(LOCK, token=token)
        return done


def steps(store: JobStore, now: datetime, limit: int = PORTION) -> dict[Kept, Callable[[datetime], int]]:
    """How each kind goes, at most *limit* of what is older than a time; in this order."""
    return {
        Kept.JOBS: lambda before: store.archive(before=before, limit=limit, now=now),
        Kept.DEAD_LETTERS: lambda before: store.purge_dead_letters(before=before, limit=limit),
        Kept.LOGS: lambda before: store.purge_logs(before=before, limit=limit),
        Kept.EXECUTIONS: lambda before: (
            store.purge_executions(before=before, limit=limit) + store.purge_fires(before=before, limit=limit)
        ),
        Kept.ARCHIVE: lambda before: store.purge_archive(before=before, limit=limit),
    }
