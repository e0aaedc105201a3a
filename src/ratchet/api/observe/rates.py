"""Numbers of what waits, runs and has run: ``scheduler.jobs.statistics`` and ``scheduler.jobs.history``."""

from __future__ import annotations

from datetime import datetime, timedelta

from ratchet.api.authorization import require
from ratchet.api.backend import Backend
from ratchet.api.checks import text_of
from ratchet.model.durations import Duration, earlier, to_timedelta
from ratchet.model.errors import InvalidJob
from ratchet.model.flow import SAMPLED, Statistics, statistics_of
from ratchet.model.flow_history import (
    MERGED,
    MERGED_AFTER,
    MINUTE,
    MOST_POINTS,
    STORED_WITHIN,
    TOTAL,
    FlowPoint,
    floor,
    points_of,
    usual_step,
)
from ratchet.model.load import Load
from ratchet.model.permissions import Permission

#: A longer window is as good as this one: nothing older can be there.
_LONGEST = timedelta(days=3650)


def read_statistics(
    backend: Backend,
    window: timedelta,
    load: Load,
    now: datetime,
    *,
    most: int = SAMPLED,
    most_queued: int = SAMPLED,
) -> Statistics:
    """`Jobs.statistics`, with the *load* that was read just now, and made of so many runs, and jobs that wait or run, at most."""
    require(backend, Permission.LIST, about="statistics")
    runs, queued = backend.store.run_samples(limit=most), backend.store.queued_samples(limit=most_queued)
    return statistics_of(runs, queued, load, window=window, now=now, most=most, most_queued=most_queued)


def history_of(
    backend: Backend, window: Duration, queue: str | None, step: Duration | None, *, each_queue: bool
) -> list[FlowPoint]:
    """`Jobs.history`."""
    length = min(to_timedelta(window, "the window", zero=False), _LONGEST)
    name = None if queue is None else text_of(queue, "the name of a queue")
    if name is not None and each_queue:
        raise InvalidJob("history is of one queue or of each queue: give queue or each_queue, not both")
    width = usual_step(length) if step is None else to_timedelta(step, "the step", zero=False)
    if width % MINUTE:
        raise InvalidJob(f"the step must be a whole number of minutes, but is {_said(width)}")
    if length > width * MOST_POINTS:
        raise InvalidJob(
            f"a window of {_said(length)} has more than {MOST_POINTS:,} steps of {_said(width)}; take a longer step"
        )
    now = backend.now()
    since, until = floor(earlier(now, length), width), floor(now - STORED_WITHIN, MINUTE)
    if width % MERGED and since < now - (MERGED_AFTER - MERGED):
        raise InvalidJob(
            f"single minutes are kept for {_said(MERGED_AFTER - MERGED)}; for a window of {_said(length)} the step must be a "
            f"multiple of {_said(MERGED)}, but is {_said(width)}"
        )
    only = None if each_queue else TOTAL if name is None else name
    periods = backend.store.flow(since=since, until=until, only=only)
    return points_of(periods, since=since, until=until, step=width, queue=name, each_queue=bool(each_queue))


def _said(duration: timedelta) -> str:
    minutes = duration / MINUTE
    return f"{minutes:g} minutes" if minutes != 1 else "a minute"
