"""`Health`: whether jobs can be stored and are being run."""

from __future__ import annotations

from typing import Any

from ratchet.api.backend import Backend
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.model.errors import RatchetError, SchemaChanged, SchemaOutOfDate, SchemaTooNew
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, Lane


class Health(dict[str, Any]):
    """
    What a health check reports; a dict, so that it is JSON as it stands.

    ``ok``: the store answers, with the right schema, and where jobs are overdue some node is alive.
    ``store``, ``reachable``, ``schema_ok``, ``error``, ``nodes`` (alive), ``draining`` (of these),
    ``silent`` (neither alive nor declared dead yet), ``rescues`` and ``false_rescues`` (counted by the nodes
    that are alive), ``pending``, ``running``, ``overdue``, ``oldest_wait`` (seconds that the longest waiting due
    job has waited; None: none waits).
    """

    @property
    def ok(self) -> bool:
        """True if all is well."""
        return bool(self["ok"])


def health_of(backend: Backend) -> Health:
    """Ask the store, once; errors of the store are reported, not raised."""
    health = Health(
        ok=False,
        store=None,
        reachable=False,
        schema_ok=False,
        error=None,
        nodes=0,
        draining=0,
        silent=0,
        rescues=0,
        false_rescues=0,
        pending=0,
        running=0,
        overdue=0,
        oldest_wait=None,
    )
    try:
        store = backend.store
        health["store"] = store.name
        store.database_time()
        health["reachable"] = True
        store.check_schema()
        health["schema_ok"] = True
        _count(backend, health)
    except RatchetError as error:
        health["reachable"] |= isinstance(error, SchemaOutOfDate | SchemaTooNew | SchemaChanged)
        health["error"] = f"{type(error).__name__}: {error}"
        return health
    health["ok"] = not health["overdue"] or health["nodes"] > 0
    return health


def _count(backend: Backend, health: Health) -> None:
    store, now = backend.store, backend.now()
    counts = store.counts()
    health["pending"] = counts.get(JobStatus.PENDING, 0)
    health["running"] = counts.get(JobStatus.RUNNING, 0)
    known = [node for node in store.nodes() if node.state is not NodeState.DEAD]
    alive = [node for node in known if _is_alive(node, backend)]
    health["nodes"] = len(alive)
    health["draining"] = sum(node.state is NodeState.DRAINING for node in alive)
    health["silent"] = len(known) - len(alive)
    health["rescues"] = sum(node.about.rescues for node in alive)
    health["false_rescues"] = sum(node.about.false_rescues for node in alive)
    health["overdue"] = store.count(JobFilter(statuses=[JobStatus.PENDING], scheduled_before=now))
    due = [
        at
        for lane in Lane
        if (
            at := store.next_due_at(
                ClaimRequest(node_id="health", claim_id=backend.ids(), limit=1, lane=lane), now=now
            )
        )
        is not None
        and at <= now
    ]
    if due:
        health["oldest_wait"] = (now - min(due)).total_seconds()


def _is_alive(node: NodeRecord, backend: Backend) -> bool:
    """By the clock, which is good enough for a report; rescuers watch the beat counter instead."""
    return backend.now() - node.last_beat_at <= 2 * node.silence
