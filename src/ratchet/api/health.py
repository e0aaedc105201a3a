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
    ``store``, ``reachable``, ``schema_ok``, ``error``, ``nodes`` (alive), ``pending``, ``running``,
    ``overdue``, ``oldest_wait`` (seconds that the longest waiting due job has waited; None: none waits).
    """

    @property
    def ok(self) -> bool:
        """True if all is well."""
        return bool(self["ok"])


def health_of(backend: Backend) -> Health:
    """Ask the store, once; never raises because of it."""
    health = Health(
        ok=False,
        store=None,
        reachable=False,
        schema_ok=False,
        error=None,
        nodes=0,
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
    health["nodes"] = sum(1 for node in store.nodes() if _is_alive(node, backend))
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
    """Good enough for a report: rescuers watch the beat itself and compare no clocks."""
    return node.state is not NodeState.DEAD and backend.now() - node.last_beat_at <= 2 * node.silence
