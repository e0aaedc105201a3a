"""
Where the time comes from.

Nothing below the front door calls ``time`` or ``datetime.now`` by itself: a `Clock` is injected,
so that a test can run five nodes on one manual clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable

from .durations import Duration, to_timedelta
from .errors import InvalidJob

#: Where a `ManualClock` starts by default.
MANUAL_START = datetime(2026, 1, 1, tzinfo=UTC)


@runtime_checkable
class Clock(Protocol):
    """Tells the time of day, and how much time has passed."""

    def now(self) -> datetime:
        """The current time, aware and in UTC. It may be stepped, forward or back."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point. It never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> datetime:
        return datetime.now(UTC)


class ManualClock:
    """
    A clock that moves only when told to.

    `advance` lets time pass: both `now` and `monotonic` move. `set` changes the time of day, as NTP
    would: `now` jumps, forward or back, and `monotonic` stays where it is.
    """

    def __init__(self, start: datetime = MANUAL_START) -> None:
        self._lock = threading.Lock()
        self._now = require_aware(start, "start")
        self._elapsed = timedelta(0)

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._elapsed.total_seconds()

    def advance(self, by: Duration) -> datetime:
        """Let *by* pass, and return the new time. Time does not run backwards: see `set`."""
        step = to_timedelta(by, "the time to advance by")
        with self._lock:
            self._now += step
            self._elapsed += step
            return self._now

    def set(self, to: datetime) -> None:
        """Change the time of day to *to* without letting any time pass."""
        moment = require_aware(to, "the time to set")
        with self._lock:
            self._now = moment

    def __repr__(self) -> str:
        return f"ManualClock({self.now().isoformat()})"


class DatabaseClock:
    """
    The database's time, without asking the database each time.

    `now` is the last sampled database time plus the time that has passed since on the *wall*
    clock's monotonic side, so an NTP step of this machine changes nothing. Before the first
    sample it is the wall clock's time.

    A sample proves one thing: when its answer arrived, the database's time was between
    ``database_now`` and ``database_now + round_trip``. Time that already lies in that interval is
    left alone; otherwise it is moved to the nearer end and no further. So a slow answer never
    makes the time worse, samples do not make it jitter, and it goes back only when a sample
    proves that it was ahead (a failover to a slower server, a first guess that was too late), by
    exactly as much as is proven. Use `monotonic` for time that never goes back.
    """

    def __init__(self, wall: Clock | None = None) -> None:
        self._wall: Clock = wall if wall is not None else SystemClock()
        #: Seconds since an arbitrary point, by the wall clock; bound here because every run asks several times.
        self.monotonic: Callable[[], float] = self._wall.monotonic
        self._lock = threading.Lock()
        # one tuple, replaced as a whole: readers need no lock
        self._anchor: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        anchor = self._anchor
        if anchor is None:
            return self._wall.now()
        base, since = anchor
        return base + timedelta(0, self.monotonic() - since)

    def sample(self, database_now: datetime, round_trip: Duration = timedelta(0)) -> None:
        """
        Take over *database_now*, the database's answer to a question that took *round_trip*.

        Call it right after the answer arrived. Of the first sample the middle is taken.
        """
        earliest = require_aware(database_now, "the sampled database time")
        width = max(to_timedelta(round_trip, "round_trip", negative=True), timedelta(0))
        with self._lock:
            moment = self._wall.monotonic()
            if self._anchor is None:
                best = earliest + width / 2
            else:
                base, since = self._anchor
                best = min(max(base + timedelta(0, moment - since), earliest), earliest + width)
            self._anchor = (best, moment)

    @property
    def sampled(self) -> bool:
        """True once a sample has been taken."""
        return self._anchor is not None

    @property
    def skew(self) -> timedelta:
        """How far the database is ahead of this machine's wall clock; zero before the first sample."""
        if self._anchor is None:
            return timedelta(0)
        return self.now() - self._wall.now()


def require_aware(value: datetime, name: str) -> datetime:
    """
    *value* in UTC, as a plain ``datetime``.

    A naive one is refused as `InvalidJob`: nobody can know which zone was meant, and the machine
    that runs the job may be in another one than the machine that submitted it.
    """
    if not isinstance(value, datetime):
        raise InvalidJob(f"{name} must be a datetime with a time zone, not {value!r}")
    if value.utcoffset() is None:
        raise InvalidJob(
            f"{name} is {value.isoformat(sep=' ')} without a time zone; say which one is meant: "
            f"value.replace(tzinfo=UTC), value.replace(tzinfo=ZoneInfo('Europe/Berlin')), "
            f"or value.astimezone() for this machine's zone; and datetime.now(UTC) instead of datetime.utcnow()"
        )
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise InvalidJob(
            f"{name} is {value.isoformat()}, which is outside the years 1 to 9999 in UTC"
        ) from None
    if type(moment) is datetime:
        return moment
    # not a subclass (pendulum, pandas): drivers choose their codec by exact type
    return datetime.combine(datetime(moment.year, moment.month, moment.day), moment.time(), UTC)  # noqa: DTZ001 - only its date is used
