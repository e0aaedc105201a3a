"""
What is wrong with a cluster, in words: `diagnose` is what a health check says of what it has read.

Work that is due and does not flow is a problem, and so is what would keep it from flowing: a node that is missing, a lane
that is down. What waits by design (behind a limit, for a slot that others have had for a moment) is told, but is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import Struct

from ratchet.model.cluster import BreakerRecord, LimitRecord, NodeRecord, NodeState, resources_of
from ratchet.model.composition import ScheduleRecord
from ratchet.model.load import COUNTED, Load, StreamLoad
from ratchet.model.places import keys_of, target_of
from ratchet.model.reasons import NAMED_NODES, listed

#: Work that nothing holds back, and of which nothing has started for so long, does not flow.
PATIENCE: Final = timedelta(minutes=1)
#: A schedule is late when a fire time has been due for so long.
LATE: Final = timedelta(minutes=1)
#: So many nodes that died within so long are no accident: something kills them.
DEATHS: Final = 3
DEATHS_WITHIN: Final = timedelta(minutes=5)


#: Every code that a problem can have.
CODES: Final = (
    "no_nodes", "silent_nodes", "no_node_for_queue", "parked", "paused_queue", "open_breaker", "overdue", "dead_letters",
    "unreadable", "read_only", "schema", "unreachable", "late_schedule", "lane_down",
    "settings",
)  # fmt: skip


class Problem(Struct, frozen=True):
    """``code`` is for programs, ``text`` for people; ``count``: of how many jobs, nodes or schedules, ``since`` when."""

    code: str
    text: str
    count: int = 0
    since: datetime | None = None

    def __str__(self) -> str:
        return self.text


class Stuck(NamedTuple):
    """A permit that will not come back by itself: who has it, in words, and since when."""

    resource: str
    holder: str


class Situation(Struct, frozen=True, kw_only=True):
    """What a health check has read, at one moment."""

    now: datetime
    load: Load
    nodes: Sequence[NodeRecord] = ()
    paused: Mapping[str, datetime | None] = {}  # since when
    reopens: Mapping[str, datetime] = {}  # queues that are paused until then
    breakers: Sequence[BreakerRecord] = ()
    limits: Mapping[str, LimitRecord] = {}
    stuck: Sequence[Stuck] = ()
    late: Sequence[ScheduleRecord] = ()
    by_hand: bool = False  # jobs run when somebody says so, and no node has to be alive

    @property
    def active(self) -> list[NodeRecord]:
        """The nodes that take jobs."""
        return [node for node in self.nodes if node.state is NodeState.ACTIVE and node.is_alive(self.now)]

    @property
    def silent(self) -> list[NodeRecord]:
        """The nodes that neither beat nor were declared dead."""
        return [
            node for node in self.nodes if node.state is not NodeState.DEAD and not node.is_alive(self.now)
        ]

    def breaker_of(self, stream: StreamLoad) -> BreakerRecord | None:
        """The breaker that lets nothing of a stream through."""
        return next(
            (
                breaker
                for breaker in self.breakers
                if breaker.service == stream.key.breaker
                and breaker.state == "OPEN"
                and (breaker.until is None or breaker.until > self.now)
            ),
            None,
        )


class Cause(NamedTuple):
    """
    What holds the due jobs of a stream back; ``name``: of the queue, breaker, limit or target.

    Jobs that flow are told apart by lane and queue: those that stand still must not hide behind the others.
    """

    code: str
    name: str = ""
    lane: str = ""
    suspect: bool = False


#: The causes that hold jobs back until somebody does something.
CLOSED: Final = (
    "no_nodes",
    "paused_queue",
    "open_breaker",
    "parked",
    "no_key",
    "no_node_for_queue",
    "lane_down",
)


def cause_of(stream: StreamLoad, at: Situation) -> Cause:
    """The first thing that holds back the jobs of a stream that are due; ``flowing`` if nothing does."""
    key, active, lane = stream.key, at.active, str(stream.key.lane)
    if not active and not at.by_hand:
        return Cause("no_nodes")
    if key.queue in at.paused:
        return Cause("paused_queue", key.queue)
    if key.queue in at.reopens:
        return Cause("queue_reopens", key.queue)
    if (breaker := at.breaker_of(stream)) is not None:
        return Cause("open_breaker", breaker.service)
    flowing = Cause("flowing", key.queue, lane, key.suspect)
    if at.by_hand:
        return flowing
    keys, target = keys_of(key.parked_target), target_of(key.parked_target)
    if keys:
        active = [node for node in active if node.has_keys(keys)]
        if not active:
            return Cause("no_key", ", ".join(keys))
    if target is not None and not any(target in node.about.targets for node in active):
        return Cause("parked", target)
    serving = [node for node in active if node.about.queues is None or key.queue in node.about.queues]
    if not serving:
        return Cause("no_node_for_queue", key.queue)
    working = [node for node in serving if node.runs(lane)]
    if not working:
        return Cause("lane_down", lane=lane)
    for name in resources_of(key):
        limit = at.limits.get(name)
        if limit is not None and limit.concurrent is not None and limit.concurrent <= limit.held:
            return Cause("no_permit", name)
        if limit is not None and limit.rate is not None:
            return Cause("rate_limited", name)
    if all(lane in node.about.full for node in working):
        return Cause("slots_full", key.queue, lane)
    return flowing


class Waiting(Struct):
    """The due jobs that one cause holds back."""

    count: int = 0
    since: datetime | None = None
    moved: bool = False  # of some of them, others of the same kind were claimed lately

    def add(self, stream: StreamLoad, *, moves: bool) -> None:
        """One more stream."""
        self.count += stream.due
        self.since = min((at for at in (self.since, stream.first_at) if at is not None), default=None)
        self.moved |= moves


def waiting_by_cause(at: Situation) -> dict[Cause, Waiting]:
    """The due jobs of all streams, by what holds them back."""
    lately = at.now - PATIENCE
    moving = {
        (stream.key.queue, stream.key.lane, stream.key.suspect)
        for stream in at.load.streams
        if stream.claimed_at is not None and stream.claimed_at >= lately
    }
    found: dict[Cause, Waiting] = {}
    for stream in at.load.streams:
        if stream.due:
            moves = (stream.key.queue, stream.key.lane, stream.key.suspect) in moving
            found.setdefault(cause_of(stream, at), Waiting()).add(stream, moves=moves)
    return found


def diagnose(
    at: Situation,
    *,
    max_wait: timedelta | None = None,
    max_dead_letters: int | None = None,
    min_nodes: int = 1,
) -> tuple[list[Problem], list[Problem]]:
    """What is wrong, and what waits for reasons that are in order."""
    waiting = waiting_by_cause(at)
    problems = [
        *_of_nodes(at, waiting, min_nodes),
        *_of_closed(at, waiting),
        *_of_overdue(at, waiting, max_wait),
        *_of_schedules(at),
    ]
    letters = at.load.dead_letters
    if max_dead_letters is not None and letters > max_dead_letters:
        text = f"there are {counted(letters, 'dead letter')}, more than {max_dead_letters}"
        problems.append(Problem("dead_letters", text, letters, at.load.dead_letters_since))
    return problems, list(_in_order(at, waiting))


# --- nodes --------------------------------------------------------------------------------------


def _of_nodes(at: Situation, waiting: Mapping[Cause, Waiting], min_nodes: int) -> Iterable[Problem]:
    if at.by_hand:
        return
    active, held = at.active, waiting.get(Cause("no_nodes"))
    if not active and (min_nodes > 0 or held is not None):
        jobs = "" if held is None else f"; {counted(held.count, 'job')} due"
        held = held or Waiting()
        yield Problem("no_nodes", f"no node takes jobs{jobs}", held.count, held.since)
    elif len(active) < min_nodes:
        yield Problem("no_nodes", f"{len(active)} of {min_nodes} nodes take jobs", len(active))
    if silent := at.silent:
        names = listed([node.node_id for node in silent], NAMED_NODES)
        since = min(node.last_beat_at for node in silent)
        yield Problem(
            "silent_nodes",
            f"{counted(len(silent), 'node')} silent and not declared dead: {names}",
            len(silent),
            since,
        )
    died = [
        node.rescued_at
        for node in at.nodes
        if node.state is NodeState.DEAD and node.rescued_at and node.rescued_at > at.now - DEATHS_WITHIN
    ]
    if len(died) >= DEATHS:
        minutes = DEATHS_WITHIN // timedelta(minutes=1)
        text = f"{len(died)} nodes have died within {minutes} minutes; a job may be what kills them"
        yield Problem("silent_nodes", text, len(died), min(died))
    down = [fault for node in active for fault in _faults(node)]
    if down:
        yield Problem("lane_down", listed(down, NAMED_NODES), len(down))


def _faults(node: NodeRecord) -> Iterable[str]:
    """The lanes of a node that run nothing, in words, by what is wrong with them."""
    lanes: dict[str, list[str]] = {}
    for lane, fault in node.about.down.items():
        lanes.setdefault(fault, []).append(lane)
    return [
        f"node {node.node_id} runs no {' or '.join(names)} jobs: {fault}" for fault, names in lanes.items()
    ]


# --- jobs ---------------------------------------------------------------------------------------


def _of_closed(at: Situation, waiting: Mapping[Cause, Waiting]) -> Iterable[Problem]:
    for (code, name, lane, _), held in sorted(waiting.items(), key=itemgetter(0)):
        jobs = f"{counted(held.count, 'job')} due"
        match code:
            case "paused_queue":
                yield Problem(
                    code,
                    f"{jobs} in the queue {name!r}, which is paused",
                    held.count,
                    at.paused[name] or held.since,
                )
            case "open_breaker":
                yield Problem(
                    code, f"{jobs} behind the circuit breaker {name!r}, which is open", held.count, held.since
                )
            case "parked":
                yield Problem(code, f"{jobs}, but no node can run {name}", held.count, held.since)
            case "no_key":
                yield Problem(
                    code, f"{jobs}, but no node has the key {name} of their values", held.count, held.since
                )
            case "no_node_for_queue":
                yield Problem(code, f"{jobs}, but no node serves the queue {name!r}", held.count, held.since)
            case "lane_down":
                yield Problem(
                    code, f"{jobs}, but no node of their queue runs {lane} jobs", held.count, held.since
                )


def _of_overdue(
    at: Situation, waiting: Mapping[Cause, Waiting], max_wait: timedelta | None
) -> Iterable[Problem]:
    """Jobs that have waited for too long: for longer than the caller allows, or while nothing else started either."""
    if max_wait is not None:
        late = {
            cause: held for cause, held in waiting.items() if held.since and at.now - held.since > max_wait
        }
        if late:
            oldest = min(held.since for held in late.values() if held.since is not None)
            text = f"a job has waited for {_seconds(at.now - oldest)}, longer than {_seconds(max_wait)}"
            told = [_words(cause, held, at) for cause, held in sorted(late.items(), key=itemgetter(0))]
            count = sum(held.count for held in late.values())
            yield Problem("overdue", f"{text}: {listed(told, NAMED_NODES)}", count, oldest)
        return
    for cause, held in sorted(waiting.items(), key=itemgetter(0)):
        if held.since is None or at.now - held.since < PATIENCE or held.moved:
            continue
        holders = [one for one in at.stuck if cause == Cause("no_permit", one.resource)]
        if cause.code in ("slots_full", "flowing") or holders:
            text = f"{_words(cause, held, at)}; nothing of them has started for {_seconds(PATIENCE)}"
            yield Problem("overdue", text, held.count, held.since)


def _in_order(at: Situation, waiting: Mapping[Cause, Waiting]) -> Iterable[Problem]:
    """What waits although nothing is wrong: for its turn, for its time."""
    for cause, held in sorted(waiting.items(), key=itemgetter(0)):
        if cause.code not in CLOSED:
            yield Problem(cause.code, _words(cause, held, at), held.count, held.since)
    later = [stream.first_at for stream in at.load.streams if stream.first_at and not stream.due]
    if later:
        count = at.load.pending - at.load.due
        text = f"{counted(max(count, 1), 'job')} not due yet; the next is due at {min(later).isoformat()}"
        yield Problem("not_due", text, max(count, 1), None)


def _words(cause: Cause, held: Waiting, at: Situation) -> str:
    jobs, (code, name, lane, suspect) = f"{counted(held.count, 'job')} due", cause
    match code:
        case "slots_full":
            since = [node.about.full[lane] for node in at.active if lane in node.about.full]
            return f"{jobs}, but all slots for {lane} jobs of the queue {name!r} have been taken since {min(since).isoformat()}"
        case "queue_reopens":
            return f"{jobs} in the queue {name!r}, which is paused until {at.reopens[name].isoformat()}"
        case "no_permit":
            holders = [one.holder for one in at.stuck if one.resource == name]
            text = f"{jobs}, but as many jobs of {name!r} run as its limit allows"
            return f"{text}; a permit is held by {listed(holders, NAMED_NODES)}" if holders else text
        case "rate_limited":
            return f"{jobs} that the rate of {name!r} lets start one after the other"
        case "flowing":
            alone = ", which were running in crashes and run alone" if suspect else ""
            return f"{jobs}: {lane} jobs of the queue {name!r}{alone}"
    return f"{jobs} ({code.replace('_', ' ')}{f': {name}' if name else ''})"


def _of_schedules(at: Situation) -> Iterable[Problem]:
    if at.late:
        names = listed([f"{record.spec.name!r}" for record in at.late], NAMED_NODES)
        since = min(record.next_fire_at for record in at.late if record.next_fire_at is not None)
        text = f"{counted(len(at.late), 'schedule')} late: {names}"
        yield Problem("late_schedule", text, len(at.late), since)


def counted(count: int, noun: str) -> str:
    """So many, with noun and verb; where counting ended, there may be more."""
    verb = "is" if count == 1 else "are"
    more = "or more " if count >= COUNTED else ""
    return f"{count} {more}{noun}{'' if count == 1 else 's'} {verb}"


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.0f} s"
