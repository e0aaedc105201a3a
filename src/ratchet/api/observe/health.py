"""
`Health`: whether jobs can be stored and are being run, and if not, why.

What is read costs no more with a large backlog or a long history: jobs are counted up to ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import asdict

from ratchet.api.backend import Backend
from ratchet.api.checks import count_of
from ratchet.api.observe.explanation import Explanation, refusal_of_writes
from ratchet.model.cluster import LimitRecord, NodeState, UnreadableRow, resources_of
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import RatchetError, SchemaChanged, SchemaOutOfDate, SchemaTooNew, StoreReadOnly
from ratchet.model.load import Load
from ratchet.model.problems import LATE, Problem, Situation, Stuck, diagnose
from ratchet.spi.store import JobStore

#: Late schedules, and holders of a permit, that are looked at.
MOST_LATE = 100
MOST_HOLDERS = 20
#: Unreadable rows that are named.
NAMED_ROWS = 3
#: Characters of what is said of a schedule.
MOST_SAID = 300
#: Limits whose holders are looked at.
MOST_LIMITS = 20


class Health(dict[str, Any]):
    """
    What a health check reports; a dict, so that it is JSON as it stands.

    ``ok``: there are no problems. ``problems``: what is wrong, each with ``code``, ``text``, ``count`` and ``since``;
    ``waiting``: what waits for reasons that are in order, in the same form. ``store``, ``reachable``, ``schema_ok``,
    ``writable``, ``error``, ``nodes`` (alive), ``draining`` (of these), ``silent`` (neither alive nor declared dead yet),
    ``rescues`` and ``false_rescues`` (counted by the nodes that are alive), ``pending``, ``running``, ``overdue`` (due
    and not running), ``dead_letters``, ``oldest_wait`` (seconds that the longest waiting due job has waited, whatever
    holds it back; None: none waits). Counts of waiting jobs and dead letters end at 10,000.
    """

    @property
    def ok(self) -> bool:
        """True if all is well."""
        return bool(self["ok"])

    @property
    def problems(self) -> list[Problem]:
        """What is wrong; empty if all is well."""
        return [_problem(one) for one in self["problems"]]

    @property
    def waiting(self) -> list[Problem]:
        """What waits for reasons that are in order: for its time, for a slot, for a permit."""
        return [_problem(one) for one in self["waiting"]]

    @property
    def nodes(self) -> int:
        """How many nodes are alive."""
        return int(self["nodes"])


def health_of(
    backend: Backend,
    *,
    max_wait: Duration | None = None,
    max_dead_letters: int | None = None,
    min_nodes: int = 1,
    load: Load | None = None,
) -> Health:
    """Ask the store; its errors are reported, not raised. *load*: what waits and runs, if that was read just now."""
    wait = None if max_wait is None else to_timedelta(max_wait, "max_wait")
    letters = None if max_dead_letters is None else count_of(max_dead_letters, "max_dead_letters")
    wanted = count_of(min_nodes, "min_nodes")
    health = _unknown()
    problems: list[Problem] = []
    try:
        store = backend.store
        health["store"] = store.name
        store.database_time()
        health["reachable"] = True
        store.check_schema()
        health["schema_ok"] = True
        refusal = refusal_of_writes(store, backend.ids(), really=backend.now())
        health["writable"] = refusal is None
        if refusal is not None:
            problems.append(Problem("read_only", f"the database takes no writes: {refusal}"))
        problems += [Problem("settings", text) for text in store.capabilities.unsound]
        found, waiting = diagnose(
            _situation(backend, health, load), max_wait=wait, max_dead_letters=letters, min_nodes=wanted
        )
        problems += [*found, *_unreadable(backend)]
        health["waiting"] = [_document(one) for one in waiting]
    except RatchetError as error:
        problems.append(problem_of(error))
        health["reachable"] |= problems[-1].code != "unreachable"
        health["error"] = f"{type(error).__name__}: {error}"
    health["problems"] = [_document(problem) for problem in problems]
    health["ok"] = not problems
    return health


def _unreadable(backend: Backend) -> list[Problem]:
    """The rows that everything passes by; most jobs are dead letters instead."""
    rows = [*backend.store.unreadable(), *_unfit_schedules(backend)]
    if not rows:
        return []
    more = f", and {len(rows) - NAMED_ROWS} more" if len(rows) > NAMED_ROWS else ""
    text = "; ".join(row.text for row in rows[:NAMED_ROWS])
    return [Problem("unreadable", f"{text}{more}", len(rows))]


def _unfit_schedules(backend: Backend) -> Iterator[UnreadableRow]:
    """Schedules that can be read and never fire: their expression, zone or template is none."""
    now = backend.now()
    for record in backend.store.schedules():
        spec = record.spec
        try:
            next(backend.fire_times(spec, now, record.created_at), None)
            backend.run_of(spec, now)
        except Exception as error:
            text = f"the schedule {spec.name!r} cannot be fired: {error}"[:MOST_SAID]
            yield UnreadableRow(table="scheduler_recurring_job", key=spec.name, text=text)


def _unknown() -> Health:
    return Health(
        ok=False,
        problems=[],
        waiting=[],
        store=None,
        reachable=False,
        schema_ok=False,
        writable=False,
        error=None,
        nodes=0,
        draining=0,
        silent=0,
        rescues=0,
        false_rescues=0,
        pending=0,
        running=0,
        overdue=0,
        dead_letters=0,
        oldest_wait=None,
    )


def problem_of(error: RatchetError) -> Problem:
    """What is wrong where the store has raised *error*."""
    match error:
        case SchemaOutOfDate() | SchemaTooNew() | SchemaChanged():
            return Problem("schema", str(error))
        case StoreReadOnly():
            return Problem("read_only", str(error))
    return Problem("unreachable", f"the store does not answer: {error}")


def _situation(backend: Backend, health: Health, known: Load | None) -> Situation:
    """Read everything once, and note what it says."""
    store, now = backend.store, backend.now()
    load, nodes = known or store.load(now=now), store.nodes(counting=False)
    limits = _limits(store, load)
    closed = [queue for queue in store.queues(counting=False) if queue.is_paused(now)]
    at = Situation(
        now=now,
        load=load,
        nodes=nodes,
        paused={queue.name: queue.paused_at for queue in closed if queue.paused_until is None},
        reopens={queue.name: queue.paused_until for queue in closed if queue.paused_until is not None},
        breakers=store.breakers(),
        limits=limits,
        stuck=_stuck(backend, limits),
        late=store.claim_due_recurring(limit=MOST_LATE, now=now - LATE),
        by_hand=backend.driven_by_hand,
    )
    alive = [node for node in nodes if node.is_alive(now)]
    first = [stream.first_at for stream in load.streams if stream.due and stream.first_at is not None]
    health.update(
        nodes=len(alive),
        draining=sum(node.state is NodeState.DRAINING for node in alive),
        silent=len(at.silent),
        rescues=sum(node.about.rescues for node in alive),
        false_rescues=sum(node.about.false_rescues for node in alive),
        pending=load.pending,
        running=load.running,
        overdue=load.due,
        dead_letters=load.dead_letters,
        oldest_wait=(now - min(first)).total_seconds() if first else None,
    )
    return at


def _limits(store: JobStore, load: Load) -> dict[str, LimitRecord]:
    """The limits of streams that have due jobs; nothing is read where none of these has a gate."""
    names = {name for stream in load.streams if stream.due for name in resources_of(stream.key)}
    return {limit.name: limit for limit in store.limits() if limit.name in names} if names else {}


def _stuck(backend: Backend, limits: dict[str, LimitRecord]) -> list[Stuck]:
    """The permits of full limits that are held by dead nodes, or by code that goes on after its job has ended."""
    full = [
        limit.name
        for limit in limits.values()
        if limit.concurrent is not None and limit.concurrent <= limit.held
    ]
    return [
        Stuck(name, blocker.text)
        for name in full[:MOST_LIMITS]
        for blocker in Explanation(backend, _NOBODY).stuck_holders(name, MOST_HOLDERS)
    ]


_NOBODY = UUID(int=0)


def _document(problem: Problem) -> dict[str, Any]:
    since = None if problem.since is None else problem.since.isoformat()
    return {**asdict(problem), "since": since}


def _problem(document: dict[str, Any]) -> Problem:
    since = document["since"]
    return Problem(**{**document, "since": None if since is None else datetime.fromisoformat(since)})
