"""Nodes, what a beat tells them, what a rescue did, and locks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec import Struct

from ratchet.model.decision import CanceledJob
from ratchet.model.job import StreamKey


class NodeState(StrEnum):
    """ACTIVE takes work, DRAINING finishes what it has, DEAD was rescued or has left."""

    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"
    DEAD = "DEAD"


class NodeRequest(StrEnum):
    """What a person asks of a node: DRAIN, to take no more jobs; STOP, to leave when what runs has finished."""

    DRAIN = "DRAIN"
    STOP = "STOP"


def request_of(text: str | None) -> NodeRequest | None:
    """The request that is stored as *text*; None also for one that only a later version knows."""
    return NodeRequest.__members__.get(text or "")


class NodeInfo(Struct, frozen=True, kw_only=True):
    """
    What a node says about itself, beside its life signs; stored as JSON.

    ``targets``: the functions it declared, and those it has run. ``rescues``: dead nodes whose work it took
    back. ``false_rescues``: how often this process was declared dead although it lived; ``replaces`` is the
    incarnation to which that happened last. ``process``: under which name a database server has its connections.
    ``full``: the lanes that have no free slot, and since when. ``down``: the lanes that run nothing, and why.
    ``tags``: words of the user's own. ``memory``: resident bytes of its process, roughly. ``still_running``: runs whose
    code ignored its interruption and goes on. ``keys``: the ids of the keys with which it can decrypt values.
    """

    lanes: dict[str, int] = {}
    queues: list[str] | None = None
    targets: list[str] = []
    rescues: int = 0
    false_rescues: int = 0
    replaces: str | None = None
    process: str | None = None
    full: dict[str, datetime] = {}
    down: dict[str, str] = {}
    tags: list[str] = []
    memory: int | None = None
    still_running: int = 0
    keys: list[str] = []


class NodeChange(Struct, frozen=True, kw_only=True):
    """
    What a node changes in its row, together with a beat.

    Never without one: an observer that saw a shorter silence beside an old beat would take the node for dead.
    """

    beat_interval: timedelta
    silence: timedelta
    info: str | None = None


class NodeSpec(Struct, frozen=True, kw_only=True):
    """A node as it registers. Each process start is a new incarnation with a new ``node_id``."""

    node_id: str
    name: str
    host: str
    pid: int
    version: str
    beat_interval: timedelta
    silence: timedelta
    info: str | None = None  # a `NodeInfo` as JSON


class NodeRecord(Struct, frozen=True, kw_only=True):
    """
    A node's row. ``beat`` only ever grows; observers compare it with itself, never with a clock.

    ``request``: what a person has asked of this node; it learns that with its next beat.
    """

    node_id: str
    name: str
    host: str
    pid: int
    version: str
    state: NodeState
    beat: int
    beat_interval: timedelta
    silence: timedelta
    started_at: datetime
    last_beat_at: datetime
    info: str | None = None
    rescued_at: datetime | None = None
    rescued_by: str | None = None
    running: int = 0
    request: NodeRequest | None = None

    def is_alive(self, now: datetime) -> bool:
        """By the clock, which is good enough for a report; rescuers watch the beat counter instead."""
        return self.state is not NodeState.DEAD and now - self.last_beat_at <= 2 * self.silence

    def runs(self, lane: str) -> bool:
        """True if the node says that it runs jobs of a lane; also if it says nothing about lanes."""
        about = self.about
        return lane not in about.down and (not about.lanes or about.lanes.get(lane, 0) > 0)

    def has_keys(self, keys: Iterable[str]) -> bool:
        """True if the node says that it has all of these keys."""
        return set(keys) <= set(self.about.keys)

    @property
    def about(self) -> NodeInfo:
        """What the node says about itself; what cannot be read (another version wrote it) is left empty."""
        try:
            return msgspec.json.decode(self.info or "{}", type=NodeInfo)
        except msgspec.DecodeError:
            return NodeInfo()


def new_node(node: NodeSpec, now: datetime) -> NodeRecord:
    """A node that has just registered: ACTIVE, with beat 0."""
    return NodeRecord(
        node_id=node.node_id,
        name=node.name,
        host=node.host,
        pid=node.pid,
        version=node.version,
        state=NodeState.ACTIVE,
        beat=0,
        beat_interval=node.beat_interval,
        silence=node.silence,
        started_at=now,
        last_beat_at=now,
        info=node.info,
    )


def refuse_dead(state: NodeState) -> None:
    """Refuse to set a node DEAD by hand: nobody would take its work back."""
    if state is NodeState.DEAD:
        raise ValueError(
            "a node becomes DEAD by rescue(), which takes its work back, or leaves by deregister()"
        )


def dead_process(node_id: str, nodes: Iterable[NodeRecord]) -> str | None:
    """The process of a dead node, if it is known. None if a living one of these *nodes* has the same process."""
    found = list(nodes)
    dead = {node.about.process for node in found if node.node_id == node_id and node.state is NodeState.DEAD}
    alive = {node.about.process for node in found if node.state is not NodeState.DEAD}
    return next(iter(dead - alive), None)


class BeatAnswer(Struct, frozen=True, kw_only=True):
    """
    What a node learns when it beats.

    ``alive`` False: the row is gone or DEAD, everything this node ran belongs to others now.
    ``claims``: what the store says this node holds. Missing here but running there: canceled or
    rescued. Here under an unknown token: a claim whose answer was lost. ``request``: what a person asks of it.
    """

    alive: bool
    claims: dict[UUID, UUID] = {}
    database_time: datetime | None = None
    request: NodeRequest | None = None


class Rescue(Struct, frozen=True, kw_only=True):
    """
    What a rescue did, in the one transaction that marked the node dead.

    ``held_up``: jobs that it could not take, because an open transaction had changed them.
    """

    node_id: str
    requeued: tuple[UUID, ...] = ()
    suspects: tuple[UUID, ...] = ()
    dead_lettered: tuple[UUID, ...] = ()
    alerted: tuple[UUID, ...] = ()  # the dead letters that raised an alert
    canceled: tuple[CanceledJob, ...] = ()
    released: tuple[UUID, ...] = ()
    held_up: tuple[UUID, ...] = ()
    handed_back: tuple[UUID, ...] = ()  # claimed, but not started: PENDING again, and not charged

    @property
    def took(self) -> bool:
        """True if it took work back."""
        return bool(self.requeued or self.suspects or self.dead_lettered or self.handed_back)

    def followed_by(self, rest: Rescue) -> Rescue:
        """Both as one: *rest* took what this one had to leave."""
        return Rescue(
            node_id=self.node_id,
            requeued=self.requeued + rest.requeued,
            suspects=self.suspects + rest.suspects,
            dead_lettered=self.dead_lettered + rest.dead_lettered,
            alerted=self.alerted + rest.alerted,
            canceled=self.canceled + rest.canceled,
            released=self.released + rest.released,
            held_up=rest.held_up,
            handed_back=self.handed_back + rest.handed_back,
        )


def crash_detail(node_id: str, seen: str | None) -> str:
    """What is written about a run whose node has died; *seen*: how it ended, where somebody saw it."""
    return f"node {node_id} {seen or 'stopped beating'} while it ran the job"


def doubt_detail(node_id: str, seen: str | None) -> str:
    """What is written about a run that had perhaps not begun when its node died."""
    return f"node {node_id} {seen or 'stopped beating'}; the job was claimed there and is not known to have started"


class UnreadableRow(Struct, frozen=True, kw_only=True):
    """A row, other than a job's, that cannot be read and is passed by."""

    table: str
    key: str
    text: str


class StreamRecord(Struct, frozen=True, kw_only=True):
    """A stream's row; ``epoch`` grows with every write that puts a job before the claim's edge."""

    stream_id: int
    key: StreamKey
    epoch: int


class QueueRecord(Struct, frozen=True, kw_only=True):
    """A named queue: paused or not, and what is in it."""

    name: str
    paused: bool
    pending: int = 0
    running: int = 0
    paused_at: datetime | None = None
    paused_until: datetime | None = None  # None: until somebody resumes it

    def is_paused(self, now: datetime) -> bool:
        """True while no job of it may start; a pause ends by itself when its time has come."""
        return self.paused and (self.paused_until is None or self.paused_until > now)


def own_time(until: datetime | None, of: datetime | None, paused_at: datetime | None) -> datetime | None:
    """The time at which a pause ends, if it is the one of this pause and not of an earlier one."""
    return until if of is not None and of == paused_at else None


class LockRecord(Struct, frozen=True, kw_only=True):
    """Who holds a lock until when."""

    name: str
    holder: str
    token: UUID
    locked_at: datetime
    expires_at: datetime


class LimitRecord(Struct, frozen=True, kw_only=True):
    """A resource's limit: how many at once, how many per period, and who holds permits now."""

    name: str
    concurrent: int | None = None
    rate: int | None = None
    period: timedelta | None = None
    held: int = 0


class PermitRecord(Struct, frozen=True, kw_only=True):
    """Who holds a permit of a resource: a run of a job on a node, or code of it that is still running."""

    resource: str
    job_id: UUID
    claim_id: UUID
    node_id: str


class KeyLimit(Struct, frozen=True):
    """What a submission says about the limit of a key: how many at once, or how many starts per period."""

    concurrent: int | None = None
    rate: int | None = None
    period: timedelta | None = None

    def advice(self, name: str) -> str:
        """How a person can have it stored."""
        if self.concurrent is None:
            return "submit one job with this key"
        return f"call scheduler.limits.set({name!r}, concurrent={self.concurrent})"

    def is_in(self, stored: LimitRecord) -> bool:
        """True if the stored limit says the same; what a person has set beside it does not matter."""
        if self.concurrent is not None:
            return stored.concurrent == self.concurrent
        return (stored.rate, stored.period) == (self.rate, self.period)


class Probes(Struct, frozen=True, kw_only=True):
    """What an open breaker lets through once its time has come: ``count`` jobs, and one more per ``every``."""

    count: int
    every: timedelta


#: Limits of this prefix are the probes of open breakers; a user's limit has another name.
BREAKER_GATE = "breaker:"


#: Limits of this prefix are the rates of keys (``with_rate_key``).
RATE_GATE = "rate:"


def breaker_gate(service: str | None) -> str | None:
    """The name of the limit that counts the probes of a service."""
    return None if service is None else f"{BREAKER_GATE}{service}"


def resources_of(key: StreamKey) -> list[str]:
    """The resources of which a run of a stream's jobs may hold a permit."""
    return list(dict.fromkeys(name for name in (key.resource, key.limit_key) if name is not None))


class BreakerRecord(Struct, frozen=True, kw_only=True):
    """A circuit breaker's state, shared by the cluster."""

    service: str
    state: str  # CLOSED, OPEN, HALF_OPEN
    until: datetime | None = None
    document: str = "{}"  # the strategy's own window, JSON
    version: int = 0
