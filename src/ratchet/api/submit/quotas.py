"""
Quotas: whether there is room for what is about to be submitted.

Nothing is written for them, so there is no row that all submitters would wait for. Jobs are counted where they are stored, up to the limit, and
the count is used for a while, together with what this process has submitted since. How long depends on how long counting took, so that it
takes a twentieth of the time at most. So a quota is exact for one process, and several at once may go beyond it by what they submit
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from ratchet.model.errors import ConfigurationError, QuotaExceeded
from ratchet.model.identifiers import first_id_at
from ratchet.model.job import BoundedFilter, JobFilter, JobSpec
from ratchet.model.quotas import Quota
from ratchet.model.status import JobStatus
from ratchet.spi.store import JobStore

#: A count is used for so many times as long as it took,
KEPT: Final = 20
#: but not for longer than so many seconds.
KEPT_AT_MOST: Final = 5.0
#: Callers and queues that are remembered at once; what was asked for longest ago is counted anew when it comes again.
REMEMBERED: Final = 10_000
MINUTE: Final = timedelta(seconds=60)
#: A job's id has the time of the machine that made it, its row that of the database: ids of this much earlier are looked at, too.
CLOCKS_APART: Final = timedelta(minutes=5)

_IN_QUEUE: Final = (JobStatus.PENDING,)
_HELD: Final = (JobStatus.WAITING, JobStatus.PAUSED)

Subject = tuple[str | None, str | None]  # queue, caller


@dataclass(slots=True)
class _Count:
    """What was last counted for one subject of one quota."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: int = 0
    added: int = 0  # submitted here since
    until: float = float("-inf")  # how long it is used


class Quotas:
    """The quotas of a scheduler, and what is known of their subjects."""

    def __init__(
        self, quotas: Sequence[Quota], *, kept: float = KEPT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._quotas = tuple(quotas)
        self._kept = kept
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[int, str, Subject], _Count] = OrderedDict()

    def admit(self, store: JobStore, specs: Iterable[JobSpec], now: datetime) -> None:
        """`QuotaExceeded` unless there is room for all of *specs*; if there is, they count from now on."""
        admitted: list[tuple[_Count, int]] = []
        wanted = Counter((spec.stream.queue, spec.caller) for spec in specs)
        try:
            for number, quota in enumerate(self._quotas):
                for subject, more in _subjects(quota, wanted).items():
                    for kind in ("pending", "per_minute"):
                        limit: int | None = getattr(quota, kind)
                        if limit is not None:
                            count = self._count((number, kind, subject))
                            self._add(store, quota, kind, limit, subject, count, more, now)
                            admitted.append((count, more))
        except BaseException:
            for count, more in admitted:
                count.added -= more
            raise

    def _count(self, key: tuple[int, str, Subject]) -> _Count:
        with self._lock:
            count = self._counts.get(key)
            if count is None:
                count = self._counts[key] = _Count()
                if len(self._counts) > REMEMBERED:
                    self._counts.popitem(last=False)
            else:
                self._counts.move_to_end(key)
            return count

    def _add(
        self,
        store: JobStore,
        quota: Quota,
        kind: str,
        limit: int,
        subject: Subject,
        count: _Count,
        more: int,
        now: datetime,
    ) -> None:
        with count.lock:  # one thread counts, and the others use what it found
            begun = self._clock()
            if begun >= count.until:
                count.found = _counted(store, kind, limit, subject, now)
                count.added = 0
                ended = self._clock()
                count.until = ended + min(KEPT_AT_MOST, self._kept * (ended - begun))
            used = count.found + count.added
            if used + more > limit:
                raise QuotaExceeded(kind, _named(subject), used=min(used, limit), limit=limit, wanted=more)
            count.added += more


def _subjects(quota: Quota, wanted: Counter[tuple[str, str | None]]) -> Counter[Subject]:
    found: Counter[Subject] = Counter()
    for (queue, caller), count in wanted.items():
        subject = quota.subject(queue, caller)
        if subject is not None:
            found[subject] += count
    return found


def _counted(store: JobStore, kind: str, limit: int, subject: Subject, now: datetime) -> int:
    """How many jobs there are, counted up to *limit*."""
    queue, caller = subject
    if kind == "per_minute":
        since = BoundedFilter(
            queue=queue,
            caller=caller,
            created_after=now - MINUTE,
            include_archived=True,
            first_id=first_id_at(now - MINUTE - CLOCKS_APART),
        )
        return store.count(since, at_most=limit)
    found = 0
    for statuses in (_IN_QUEUE, _HELD):  # apart: each has an index of its own
        if found < limit:
            where = JobFilter(statuses=statuses, queue=queue, caller=caller)
            found += store.count(where, at_most=limit - found)
    return found


def _named(subject: Subject) -> str:
    queue, caller = subject
    names = [] if caller is None else [f"caller {caller!r}"]
    names += [] if queue is None else [f"queue {queue!r}"]
    return " in ".join(names) or "this installation"


def quotas_of(given: Sequence[Quota]) -> Quotas | None:
    """The quotas in force; None where there are none. `ConfigurationError` for anything else than quotas."""
    if isinstance(given, Quota):
        raise ConfigurationError("quotas is a list: quotas=[Quota(...)]")
    try:
        found = tuple(given)
    except TypeError as error:
        raise ConfigurationError(f"quotas is a list of Quota, not {given!r:.60}") from error
    for one in found:
        if not isinstance(one, Quota):
            raise ConfigurationError(f"quotas is a list of Quota; {one!r:.60} is none")
    return Quotas(found) if found else None
