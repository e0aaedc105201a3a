"""Operations of people and of upkeep: cancel, pause, retry, limits, breakers, queues, expiry, archive, purges, questions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ratchet.model.cluster import BreakerRecord, Probes
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, Priority
from tests.differential.lives import QUEUES, SCHEDULES, SERVICES, SIGNALS, Life, Operation
from tests.differential.players import RESOURCES, Player, reasons
from tests.differential.runs import request


def control(life: Life) -> Operation:
    """What a person does to one job."""
    job, now, at, level = life.job(), life.now, life.about_now(), life.one(list(Priority))
    verbs: list[tuple[str, Callable[[Player], object]]] = [
        ("cancel", lambda player: player.store.cancel(job, reason="not needed", now=now)),
        ("pause", lambda player: player.store.pause(job, now=now)),
        ("pause", lambda player: player.store.pause(job, now=now)),
        ("resume", lambda player: player.store.resume(job, now=now)),
        ("retry", lambda player: player.store.retry(job, now=now)),
        (f"priority {level.name}", lambda player: player.store.set_priority(job, level, now=now)),
        (f"reschedule to {at.time()}", lambda player: player.store.reschedule(job, at, now=now)),
    ]
    text, call = life.one(verbs)
    return Operation(f"{text}({life.name(job)})", call, now)


def _in(life: Life, *statuses: JobStatus) -> object:
    where = JobFilter(statuses=statuses)
    found = [record.job_id for record in life.known.store.find(where, limit=100)]
    return life.one(found) if found else life.job()


def retry_failed(life: Life) -> Operation:
    """A dead letter gets another chance."""
    job, now = _in(life, JobStatus.FAILED, JobStatus.PAUSED), life.now
    return Operation(f"retry({life.name(job)})", lambda player: player.store.retry(job, now=now), now)


def resume_paused(life: Life) -> Operation:
    """What was paused goes on."""
    job, now = _in(life, JobStatus.PAUSED), life.now
    return Operation(f"resume({life.name(job)})", lambda player: player.store.resume(job, now=now), now)


def delete(life: Life) -> Operation:
    """A job goes, with all that is known of it."""
    job = life.job()
    return Operation(f"delete({life.name(job)})", lambda player: player.store.delete(job), life.now)


def bulk(life: Life) -> Operation:
    """The same verb for many."""
    where, limit, now = life.where(), life.dice.randint(1, 4), life.now
    if life.happens(0.5):
        return Operation(
            f"cancel_matching({where}, limit={limit})",
            lambda player: player.store.cancel_matching(where, limit=limit, reason="bulk", now=now),
            now,
        )
    return Operation(
        f"retry_matching({where}, limit={limit})",
        lambda player: player.store.retry_matching(where, limit=limit, now=now),
        now,
    )


# --- gates ----------------------------------------------------------------------------------------


def limit(life: Life) -> Operation:
    """A limit is set, changed, asked for by a submission, or removed."""
    now, name = life.now, life.one(RESOURCES)
    if life.happens(0.25):
        return Operation(
            f"remove_limit({name})", lambda player: player.store.remove_limit(name, now=now), now
        )
    concurrent = life.seldom(0.7, lambda: life.dice.randint(0, 3))
    rate = life.seldom(0.4, lambda: life.dice.randint(1, 3))
    period = None if rate is None else timedelta(seconds=life.one((1, 60)))
    if life.happens(0.3):
        return Operation(
            f"ensure_limit({name}, {concurrent}, {rate} per {period})",
            lambda player: player.store.ensure_limit(
                name, concurrent=concurrent, rate=rate, period=period, now=now
            ),
            now,
        )
    return Operation(
        f"set_limit({name}, {concurrent}, {rate} per {period})",
        lambda player: player.store.set_limit(name, concurrent=concurrent, rate=rate, period=period, now=now),
        now,
    )


def queue(life: Life) -> Operation:
    """A queue is paused or resumed."""
    name, now = life.one(QUEUES), life.now
    if life.happens(0.3):
        until = life.about_now()
        return Operation(
            f"pause_queue({name}, until {until.time()})",
            lambda player: player.store.pause_queue(name, now=now, until=until),
            now,
        )
    if life.happens(0.4):
        return Operation(f"pause_queue({name})", lambda player: player.store.pause_queue(name, now=now), now)
    return Operation(f"resume_queue({name})", lambda player: player.store.resume_queue(name, now=now), now)


def breaker(life: Life) -> Operation:
    """A breaker opens, waits for probes, or closes; sometimes by who has not seen its latest state."""
    service, now = life.one(SERVICES), life.now
    stored = life.known.store.breaker(service)
    version = 0 if stored is None else stored.version
    expected = version if life.happens(0.85) else version + 1
    state = life.one(("CLOSED", "OPEN", "HALF_OPEN"))
    record = BreakerRecord(
        service=service,
        state=state,
        until=None if state == "CLOSED" else life.seldom(0.8, life.about_now),
        document='{"window":".x"}',
    )
    probes = None
    if state != "CLOSED" and life.happens(0.6):
        probes = Probes(count=life.dice.randint(1, 2), every=timedelta(seconds=30))
    return Operation(
        f"save_breaker({service}, {state}, until {record.until}, expected {expected}, probes {probes})",
        lambda player: player.store.save_breaker(record, expected_version=expected, now=now, probes=probes),
        now,
    )


# --- upkeep ---------------------------------------------------------------------------------------


def expire(life: Life) -> Operation:
    """The sweep."""
    now, limit = life.now, life.one((1, 2, 1000))
    return Operation(f"expire(limit={limit})", lambda player: player.store.expire(now=now, limit=limit), now)


def upkeep(life: Life) -> Operation:
    """Archive and purges."""
    before, now, most = life.past(), life.now, life.one((1, 100))
    tasks: list[tuple[str, Callable[[Player], object]]] = [
        ("archive", lambda player: player.store.archive(before=before, limit=100, now=now)),
        ("archive", lambda player: player.store.archive(before=before, limit=100, now=now)),
        ("purge_archive", lambda player: player.store.purge_archive(before=before, limit=100)),
        ("purge_dead_letters", lambda player: player.store.purge_dead_letters(before=before, limit=100)),
        ("purge_executions", lambda player: player.store.purge_executions(before=before, limit=100)),
        ("purge_logs", lambda player: player.store.purge_logs(before=before, limit=100)),
        ("purge_fires", lambda player: player.store.purge_fires(before=before, limit=100)),
        ("purge_signals", lambda player: player.store.purge_signals(now=now, limit=most)),
        ("purge_nodes", lambda player: player.store.purge_nodes(before=before)),
    ]
    text, call = life.one(tasks)
    return Operation(f"{text}(before={before.time()})", call, now)


def batch(life: Life) -> Operation:
    """What is done to a batch."""
    batch_id, now = life.one(life.batches or [life.new("nobody")]), life.now
    verbs: list[tuple[str, Callable[[Player], object]]] = [
        ("seal", lambda player: player.store.seal(batch_id, now=now)),
        ("seal", lambda player: player.store.seal(batch_id, now=now)),
        ("retry_failed", lambda player: player.store.retry_failed(batch_id, now=now)),
        ("finish", lambda player: player.store.finish(batch_id, now=now)),
        (
            "cancel_batch",
            lambda player: player.store.cancel_batch(batch_id, reason="stop", now=now),
        ),
    ]
    text, call = life.one(verbs)
    return Operation(f"{text}({life.name(batch_id)})", call, now)


def schedule(life: Life) -> Operation:
    """What is done to a schedule."""
    name, now, at = life.one(SCHEDULES), life.now, life.about_now()
    verbs: list[tuple[str, Callable[[Player], object]]] = [
        ("pause_schedule", lambda player: player.store.pause_schedule(name, now=now)),
        ("resume_schedule", lambda player: player.store.resume_schedule(name, at, now=now)),
        ("resume_schedule", lambda player: player.store.resume_schedule(name, None, now=now)),
        ("claim_due_recurring", lambda player: player.store.claim_due_recurring(limit=10, now=now)),
        ("remove_schedule", lambda player: player.store.remove_schedule(name)),
    ]
    text, call = life.one(verbs)
    return Operation(f"{text}({name})", call, now)


def lock(life: Life) -> Operation:
    """A lease is taken or given back."""
    name, now, token = life.one(("sweep", "Sweep")), life.now, life.new("token")
    holder = life.one(life.nodes)
    ttl = timedelta(seconds=life.one((0.5, 60)))
    old = life.known.store.lock(name)
    if old is not None and life.happens(0.5):
        token = old.token
    if life.happens(0.3):
        return Operation(
            f"release_lock({name}, {life.name(token)})",
            lambda player: player.store.release_lock(name, token=token),
            now,
        )

    def call(player: Player) -> object:
        taken = player.store.acquire_lock(name, holder=holder, token=token, ttl=ttl, now=now)
        return [taken, player.store.lock(name)]

    return Operation(f"acquire_lock({name}, {life.name(token)}, ttl={ttl})", call, now)


# --- questions ------------------------------------------------------------------------------------


def pages(life: Life) -> Operation:
    """A search, page by page."""
    where, size = life.where(), life.one((1, 2, 5))

    def call(player: Player) -> object:
        found: list[object] = [player.store.count(where), player.store.count(where, at_most=size)]
        cursor: str | None = None
        for _ in range(4):
            page = player.store.find(where, limit=size, cursor=cursor)
            found.append([[record.job_id for record in page], page.next_cursor is None])
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    return Operation(f"find({where}, limit={size})", call, life.now)


def letters(life: Life) -> Operation:
    """Dead letters, page by page."""
    where = life.seldom(0.5, life.where)

    def call(player: Player) -> object:
        found: list[object] = []
        cursor: str | None = None
        for _ in range(4):
            page = player.store.dead_letters(where, limit=2, cursor=cursor)
            found.append([letter.job_id for letter in page])
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    return Operation(f"dead_letters({where})", call, life.now)


def ask(life: Life) -> Operation:
    """Questions that change nothing."""
    job, now, wanted, key = life.job(), life.now, request(life), life.one(SIGNALS)
    runs = list(life.known.claims)[-5:]
    record = life.known.store.get(job)
    root = job if record is None else record.root_id

    def call(player: Player) -> object:
        store = player.store
        return {
            "next_due_at": store.next_due_at(wanted, now=now),
            "explain": reasons(store, job, now),
            "graph": store.graph(root).nodes,
            "parents": store.parents_of(job),
            "conditions": store.conditions_of(job),
            "waiting": store.waiting_for(key),
            "bodies": store.bodies([player.claims[run] for run in runs]),
            "unfinished": [one.batch_id for one in store.unfinished()],
            "unsealed": [one.batch_id for one in store.unsealed()],
            "due": [one.spec.name for one in store.claim_due_recurring(limit=10, now=now)],
            "tags": store.tags_of([job]),
        }

    queues = None if wanted.queues is None else sorted(wanted.queues)
    told = f"{life.name(job)}, {wanted.lane.value}, queues={queues}, suspects={wanted.suspects}"
    return Operation(f"ask({told}, parked={sorted(wanted.parked_targets)}, {key!r})", call, now)
