"""
Rates over time: what has flowed through each queue, minute by minute, as `scheduler.jobs.history` shows it.

A node keeps a `Tally` for each queue and minute and stores it when the minute is over, as one `FlowPeriod`. Periods can be added
up, over nodes and over time, because waits and run times are kept as counts in fixed classes and not as percentiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import log2
from typing import Any, Final

from msgspec import Struct, defstruct, field, json

from ratchet.model.flow import Percentiles
from ratchet.model.load import Load
from ratchet.model.metrics import OTHER

MINUTE: Final = timedelta(minutes=1)
#: How long the periods are into which minutes are merged when they are old,
MERGED: Final = timedelta(minutes=10)
#: and how old that is. Until then history has a point for every minute.
MERGED_AFTER: Final = timedelta(hours=3)
#: Points of one answer, at most.
MOST_POINTS: Final = 1500
#: Nodes store a minute within this time after its end.
STORED_WITHIN: Final = timedelta(seconds=15)
#: Jobs that are counted for a sample of what waits.
COUNTED: Final = 100_000

#: The source of periods that say what waits; other sources are nodes.
LOAD: Final = "load"
#: The source of merged periods.
ALL: Final = ""
#: Under this name a period has all queues together, so that whoever asks for that need not read the others. No queue has it.
TOTAL: Final = ""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: A class is a fifth wider than the one before: a percentile is at most that much too high.
_PER_OCTAVE: Final = 4
_SMALLEST: Final = 0.0001  # seconds
_CLASSES: Final = 150  # the last one begins after half a year
#: Lengths of a step that is not given, and the points that there should be at most.
_STEPS: Final = tuple(timedelta(minutes=one) for one in (1, 2, 10, 20, 30, 60, 120, 180, 360, 720, 1440))
_USUAL_POINTS: Final = 60


class Tally(Struct, array_like=True):
    """Runs of one queue in one period; ``wait`` and ``run`` count how many there are in each class of `class_of`."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    wait: dict[int, int] = {}
    run: dict[int, int] = {}

    def add(self, other: Tally) -> None:
        """Count what *other* has counted, too."""
        self.started += other.started
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.retried += other.retried
        for mine, more in ((self.wait, other.wait), (self.run, other.run)):
            for one, count in more.items():
                mine[one] = mine.get(one, 0) + count


class Depth(Struct, array_like=True):
    """How many jobs of a queue were due and waited, and for how many microseconds the first of them had."""

    due: int = 0
    oldest_us: int = 0

    def raise_to(self, other: Depth) -> None:
        """Be the worse of both."""
        self.due = max(self.due, other.due)
        self.oldest_us = max(self.oldest_us, other.oldest_us)


class _Document(Struct, omit_defaults=True):
    runs: dict[str, Tally] = {}
    depths: dict[str, Depth] = {}


class FlowPeriod(Struct, kw_only=True):
    """
    What one *source* (a node; `LOAD`; `ALL` once it was merged) knows of the time from ``at``, ``seconds`` long.

    A store keeps it under (seconds, at, source), with everything else as the text `document`.
    """

    at: datetime
    source: str
    seconds: int = 60
    runs: dict[str, Tally] = {}
    depths: dict[str, Depth] = {}

    @property
    def document(self) -> str:
        """All that is counted, as JSON."""
        return json.encode(_Document(self.runs, self.depths)).decode()

    @classmethod
    def of_document(
        cls, seconds: int, at: datetime, source: str, document: str, only: str | None = None
    ) -> FlowPeriod:
        """
        The period that a store has kept; ValueError if nobody can read it.

        With *only* it has this queue alone (or `TOTAL`): the rest of the text is passed over, which takes half of the time.
        """
        if only is None:
            found = _DECODER.decode(document)
            return cls(at=at, source=source, seconds=seconds, runs=found.runs, depths=found.depths)
        part = _decoder_of(only).decode(document)
        runs = {only: part.runs.one} if part.runs.one is not None else {}
        depths = {TOTAL: getattr(part.depths, "total", None), only: part.depths.one}
        return cls(
            at=at,
            source=source,
            seconds=seconds,
            runs=runs,
            depths={name: depth for name, depth in depths.items() if depth is not None},
        )


_DECODER: Final = json.Decoder(_Document)


@lru_cache(maxsize=64)
def _decoder_of(only: str) -> json.Decoder[Any]:
    """Reads of a document what it says about one queue, and about all together."""
    named: dict[str, Any] = {"one": only} if only == TOTAL else {"one": only, "total": TOTAL}
    runs = defstruct("_Runs", [("one", Tally | None, field(name=only, default=None))], frozen=True)
    depths = defstruct(
        "_Depths",
        [(one, Depth | None, field(name=name, default=None)) for one, name in named.items()],
        frozen=True,
    )
    return json.Decoder(
        defstruct("_Part", [("runs", runs, runs()), ("depths", depths, depths())], frozen=True)
    )


class FlowPoint(Struct, frozen=True, kw_only=True):
    """
    What happened in one step of `scheduler.jobs.history`, from ``at`` on for ``span``.

    ``queue``: of which queue (None: of all). Runs: ``started``, and how they ended: ``succeeded``, ``failed`` for good, ``retried``
    (failed, and will run again). ``wait`` and ``run``: how long runs waited for their start, and took; at most a fifth too high.
    ``depth`` and ``oldest_wait``: how many jobs were due and waited, and for how long the first of them had, in the worst
    minute; None: nobody looked, because there was nothing to do or no node.
    """

    at: datetime
    span: timedelta
    queue: str | None = None
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    depth: int | None = None
    oldest_wait: timedelta | None = None


def class_of(seconds: float) -> int:
    """The class that a wait or a run time is counted in."""
    if seconds <= _SMALLEST:
        return 0
    return min(_CLASSES, 1 + int(log2(seconds / _SMALLEST) * _PER_OCTAVE))


@lru_cache(maxsize=_CLASSES + 1)
def _highest(one: int) -> timedelta:
    """No value of this class is greater."""
    return timedelta(seconds=_SMALLEST * 2 ** (one / _PER_OCTAVE))


def percentiles_of(classes: Mapping[int, int]) -> Percentiles:
    """The percentiles that counts by class give, rounded up to the end of a class."""
    total = sum(classes.values())
    if not total:
        return Percentiles()
    found, passed, ordered = [], 0, sorted(classes.items())
    following = iter(ordered)
    one, count = next(following)
    for share in (50, 95, 99):
        while passed + count < -(-total * share // 100):
            passed += count
            one, count = next(following)
        found.append(_highest(one))
    return Percentiles(*found)


def floor(at: datetime, step: timedelta) -> datetime:
    """The beginning of the step that *at* is in; steps are counted from 1970."""
    return at - (at - _EPOCH) % step


def depths_of(load: Load, now: datetime, most: int) -> dict[str, Depth]:
    """What waits in each queue, and under `TOTAL` in all; those beyond the *most* queues with most jobs are together as `OTHER`."""
    found: dict[str, Depth] = {}
    total = Depth()
    for stream in load.streams:
        if not stream.due or stream.first_at is None:
            continue
        oldest = max(0, (now - stream.first_at) // timedelta(microseconds=1))
        depth = found.setdefault(stream.key.queue, Depth())
        depth.due += stream.due
        depth.oldest_us = max(depth.oldest_us, oldest)
        total.due += stream.due
        total.oldest_us = max(total.oldest_us, oldest)
    if len(found) > most:
        rest = Depth()
        for name in sorted(found, key=lambda queue: (-found[queue].due, queue))[most:]:
            beyond = found.pop(name)
            rest.due += beyond.due
            rest.oldest_us = max(rest.oldest_us, beyond.oldest_us)
        found.setdefault(OTHER, Depth())
        found[OTHER].due += rest.due
        found[OTHER].oldest_us = max(found[OTHER].oldest_us, rest.oldest_us)
    return {**found, TOTAL: total}


def with_total(runs: Mapping[str, Tally]) -> dict[str, Tally]:
    """*runs*, and under `TOTAL` all of them together."""
    total = Tally()
    for name, tally in runs.items():
        if name != TOTAL:
            total.add(tally)
    return {**runs, TOTAL: total}


def merged(periods: Iterable[FlowPeriod], at: datetime, most: int = 500) -> FlowPeriod:
    """One period of the length `MERGED`: runs are added up, and of what waited the worst is kept. It names *most* queues."""
    runs, depths = _added(periods)
    total = runs.pop(TOTAL, None)
    if len(runs) > most:
        ordered = sorted(runs, key=lambda queue: (queue == OTHER, -runs[queue].started, queue))
        rest = Tally()
        for name in ordered[most:]:
            rest.add(runs.pop(name))
        runs.setdefault(OTHER, Tally()).add(rest)
    if total is not None:
        runs[TOTAL] = total
    return FlowPeriod(at=at, source=ALL, seconds=int(MERGED.total_seconds()), runs=runs, depths=dict(depths))


def usual_step(window: timedelta) -> timedelta:
    """The step of a window for which none is given: about sixty points, or fewer."""
    days = window // (_STEPS[-1] * _USUAL_POINTS) + 1
    return next((step for step in _STEPS if window <= step * _USUAL_POINTS), days * _STEPS[-1])


def points_of(
    periods: Iterable[FlowPeriod],
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    queue: str | None = None,
    each_queue: bool = False,
) -> list[FlowPoint]:
    """
    A point for every step from *since* to *until*, oldest first, also where nothing happened: of a queue, or of all together.

    With *each_queue* there is one for each queue of which something is known in a step, by name.
    """
    by_step: dict[datetime, list[FlowPeriod]] = {}
    for period in periods:
        by_step.setdefault(since + (period.at - since) // step * step, []).append(period)
    added = {at: _added(group) for at, group in by_step.items()}
    found: list[FlowPoint] = []
    at = since
    while at < until:
        runs, depths = added.get(at, ({}, {}))
        span = min(step, until - at)
        wanted = sorted({*runs, *depths} - {TOTAL}) if each_queue else [queue]
        found += [_point(at, span, one, runs, depths) for one in wanted]
        at += step
    return found


def _added(periods: Iterable[FlowPeriod]) -> tuple[dict[str, Tally], dict[str, Depth]]:
    runs: dict[str, Tally] = {}
    depths: dict[str, Depth] = {}
    for period in periods:
        for name, tally in period.runs.items():
            runs.setdefault(name, Tally()).add(tally)
        for name, depth in period.depths.items():
            depths.setdefault(name, Depth()).raise_to(depth)
    return runs, depths


def _point(
    at: datetime,
    span: timedelta,
    queue: str | None,
    runs: Mapping[str, Tally],
    depths: Mapping[str, Depth],
) -> FlowPoint:
    tally = runs.get(TOTAL if queue is None else queue, Tally())
    looked = TOTAL in depths  # a sample that does not name a queue says that nothing waited in it
    depth = depths.get(TOTAL if queue is None else queue, Depth()) if looked else None
    return FlowPoint(
        at=at,
        span=span,
        queue=queue,
        started=tally.started,
        succeeded=tally.succeeded,
        failed=tally.failed,
        retried=tally.retried,
        wait=percentiles_of(tally.wait),
        run=percentiles_of(tally.run),
        depth=None if depth is None else depth.due,
        oldest_wait=None if depth is None or not depth.due else timedelta(microseconds=depth.oldest_us),
    )
