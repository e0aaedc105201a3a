"""Operations that bring jobs: alone, many at once, in graphs and batches, for schedules and signals; and bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ratchet.model.composition import BatchSpec, Condition, Edge, EdgeKind, Fire, ScheduleSpec, SignalSpec
from ratchet.model.job import JobSpec, SignalWait
from ratchet.model.status import JobStatus, JobType
from tests.differential.lives import SCHEDULES, SIGNALS, TARGETS, Life, Operation
from tests.differential.players import Player

NAIVE = datetime(2031, 3, 1, 12, 0)
SURROGATE = "half a pair: \ud83e"
TOO_LONG = "k" * 300


def describe(spec: JobSpec, life: Life) -> str:
    """What is not ordinary about a spec."""
    parts = [life.name(spec.job_id), f"p{int(spec.priority)}", f"due {spec.scheduled_at.time()}"]
    for field in ("status", "needs", "expires_at", "business_key", "idempotency_key", "signal", "tags"):
        value = getattr(spec, field)
        if value and value is not JobStatus.PENDING:
            parts.append(f"{field}={value!r}" if field != "expires_at" else f"expires {value.time()}")
    if spec.business_key:
        parts.append(f"busy={spec.busy.value}")
    stream = {
        field: getattr(spec.stream, field)
        for field in ("queue", "lane", "resource", "limit_key", "breaker")
        if getattr(spec.stream, field) not in (None, "default", "thread")
    }
    return " ".join([*parts, *(f"{field}={value}" for field, value in stream.items())])


def _insert(
    life: Life, specs: Sequence[JobSpec], edges: Sequence[Edge] = (), batch: BatchSpec | None = None
) -> Operation:
    now = life.now
    life.sent.append((specs, edges, batch))
    told = "; ".join(describe(spec, life) for spec in specs)
    tied = ", ".join(f"{life.name(e.parent_id)}-{e.kind.value}->{life.name(e.child_id)}" for e in edges)
    grouped = (
        ""
        if batch is None
        else f" batch {life.name(batch.batch_id)} parent {life.name(batch.parent.job_id)} total={batch.total} sealed={batch.sealed}"
    )

    def call(player: Player) -> object:
        return player.store.insert(specs, now=now, edges=edges, batch=batch)

    return Operation(f"insert({told}{' | ' + tied if tied else ''}{grouped})", call, now)


def submit(life: Life) -> Operation:
    """One job, or a few in one call."""
    return _insert(life, [life.spec() for _ in range(life.one((1, 1, 2, 4)))])


def submit_again(life: Life) -> Operation:
    """The same submission after a lost answer; its jobs may have ended, been archived or deleted meanwhile."""
    return _insert(life, *life.one(life.sent)) if life.sent else submit(life)


def submit_to_wait(life: Life) -> Operation:
    """A job that waits for a signal."""
    return _insert(life, [life.spec(status=JobStatus.WAITING, signal=life.signal_wait())])


def _edge(life: Life, parent: JobSpec | Any, child: JobSpec, position: int) -> Edge:
    kind = life.one((EdgeKind.SUCCESS, EdgeKind.SUCCESS, EdgeKind.FAILURE, EdgeKind.END, EdgeKind.CONDITION))
    condition = None
    if kind is EdgeKind.CONDITION:
        condition = Condition(kind="result", predicate="shop.rules:is_high", order=life.dice.randint(0, 2))
    return Edge(
        parent_id=parent.job_id if isinstance(parent, JobSpec) else parent,
        child_id=child.job_id,
        kind=kind,
        position=position,
        condition=condition,
    )


def submit_graph(life: Life) -> Operation:
    """Up to five jobs, each waiting for some of those before it; sometimes also for one that is there already."""
    root = life.spec(idempotency_key=life.seldom(0.2, lambda: "graph"))
    specs: list[JobSpec] = [root]
    edges: list[Edge] = []
    stored = [job for job in life.jobs[-10:-1] if life.known.store.get(job) is not None]
    for _ in range(life.dice.randint(1, 4)):
        parents: list[Any] = life.some(specs, 2) or [specs[-1]]
        if stored and life.happens(0.15):
            parents.append(life.one(stored))
        needs = len(parents) if life.happens(0.7) else 1
        signal = life.seldom(0.1, lambda: SignalWait(key=life.one(SIGNALS)))
        child = life.waiting_spec(needs, root_id=root.job_id, signal=signal)
        edges += [_edge(life, parent, child, len(edges) + n) for n, parent in enumerate(parents)]
        specs.append(child)
    return _insert(life, specs, edges)


def submit_batch(life: Life) -> Operation:
    """A batch of up to four, sealed or not."""
    batch_id = life.new("batch")
    life.batches.append(batch_id)
    count = life.dice.randint(0, 4)
    parent = life.spec(
        status=JobStatus.WAITING, type=JobType.BATCH_PARENT, business_key=None, idempotency_key=None
    )
    children = [_child(life, batch_id) for _ in range(count)]
    sealed = life.happens(0.6)
    batch = BatchSpec(batch_id=batch_id, name="import", parent=parent, total=count, sealed=sealed)
    return _insert(life, children, batch=batch)


def _child(life: Life, batch_id: Any) -> JobSpec:
    return life.spec(type=JobType.BATCH_CHILD, batch_id=batch_id, business_key=None, idempotency_key=None)


def append_children(life: Life) -> Operation:
    """More children of some batch, which may be sealed."""
    batch_id = life.one(life.batches or [life.new("nobody")])
    specs, now = [_child(life, batch_id) for _ in range(life.dice.randint(0, 2))], life.now
    told = ", ".join(life.name(spec.job_id) for spec in specs)
    return Operation(
        f"append_children({life.name(batch_id)}, {told})",
        lambda player: player.store.append_children(batch_id, specs, now=now),
        now,
    )


def submit_badly(life: Life) -> Operation:
    """One spec that cannot be stored among good ones."""
    bad: list[dict[str, Any]] = [
        {"scheduled_at": NAIVE},
        {"expires_at": NAIVE},
        {"status": JobStatus.WAITING, "signal": SignalWait(key="k", deadline=NAIVE)},
        {"payload": SURROGATE},
        {"tags": ("fine", SURROGATE)},
        {"business_key": TOO_LONG},
        {"idempotency_key": TOO_LONG},
        {"tags": (TOO_LONG,)},
        {"target": "t" * 600},
        {"params": '"\x00"'},
    ]
    now, changes = life.now, life.one(bad)
    keyless: dict[str, Any] = {"business_key": None, "idempotency_key": None}
    specs = [life.spec(**keyless), life.spec(**keyless | changes), life.spec(**keyless)]
    told = ", ".join(f"{key}={str(value)[:20]!r}" for key, value in sorted(changes.items()))
    return Operation(f"insert(bad: {told})", lambda player: player.store.insert(specs, now=now), now)


def replace(life: Life) -> Operation:
    """Another job in the place of one."""
    old, new, now = life.job(), life.spec(), life.now
    return Operation(
        f"replace({life.name(old)}, {describe(new, life)})",
        lambda player: player.store.replace(old, new, now=now),
        now,
    )


def send_signal(life: Life) -> Operation:
    """To whoever waits, or to one job."""
    now = life.now
    signal = SignalSpec(
        signal_id=life.new("signal"),
        key=life.one(SIGNALS),
        payload=life.seldom(0.5, lambda: '{"by":"ann"}'),
        job_id=life.seldom(0.2, life.job),
        rejected=life.seldom(0.2, lambda: "too dear"),
        keep_until=now + timedelta(seconds=life.one((0, 30, 3600))),
    )
    twice = life.happens(0.15)

    def call(player: Player) -> object:
        first = player.store.send_signal(signal, now=now)
        return [first, player.store.send_signal(signal, now=now)] if twice else first

    told = f"{signal.key!r}, job={signal.job_id and life.name(signal.job_id)}, twice={twice}"
    return Operation(f"send_signal({told})", call, now)


def upsert_schedule(life: Life) -> Operation:
    """A schedule, new or changed."""
    now = life.now
    spec = ScheduleSpec(
        name=life.one(SCHEDULES),
        expression=life.one(("0 2 * * *", "every 60")),
        zone="UTC",
        target=TARGETS[0],
        template="{}",
        overlap=life.one(("ALLOW", "SKIP", "QUEUE")),
        next_fire_at=life.seldom(0.9, life.about_now),
    )
    told = f"{spec.name}, {spec.expression!r}, {spec.overlap}, next {spec.next_fire_at}"
    return Operation(
        f"upsert_schedule({told})", lambda player: player.store.upsert_schedule(spec, now=now), now
    )


def _fire(life: Life, name: str, at: datetime) -> Fire:
    if life.happens(0.2):
        return Fire(fire_at=at, reason="misfire")
    run = life.spec(
        type=JobType.RECURRING_RUN, schedule=name, scheduled_at=at, business_key=None, idempotency_key=None
    )
    return Fire(fire_at=at, spec=run)


def advance(life: Life) -> Operation:
    """Fire times of a schedule, by who has seen its state, or by who has not."""
    now, name = life.now, life.one(SCHEDULES)
    record = life.known.store.schedule(name)
    expected = record.next_fire_at if record is not None and life.happens(0.85) else None
    expected = expected or life.about_now()
    fires = [_fire(life, name, expected + timedelta(seconds=60 * n)) for n in range(life.dice.randint(0, 2))]
    following = life.seldom(0.9, lambda: expected + timedelta(seconds=60 * max(len(fires), 1)))
    told = f"{name}, expected {expected}, {len(fires)} fires, next {following}"
    return Operation(
        f"advance({told})",
        lambda player: player.store.advance(
            name, expected=expected, fires=fires, next_fire_at=following, now=now
        ),
        now,
    )


def trigger(life: Life) -> Operation:
    """A run outside the timetable."""
    now, name = life.now, life.one(SCHEDULES)
    run = life.spec(
        type=JobType.RECURRING_RUN, schedule=name, scheduled_at=now, business_key=None, idempotency_key=None
    )
    fire = Fire(fire_at=now, spec=run)
    return Operation(
        f"trigger({name}, {life.name(run.job_id)})",
        lambda player: player.store.trigger(name, fire, now=now),
        now,
    )
