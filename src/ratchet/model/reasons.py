"""
Why a job does not run, in words: what `explain` says on every store.

A store finds out what holds a job back; the code and the text of each reason are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from ratchet.model.cluster import RATE_GATE, NodeRecord, PermitRecord

#: (code, text, until when); None: nobody knows.
Reason: TypeAlias = tuple[str, str, datetime | None]

#: Holders of a permit that a reason names.
NAMED_HOLDERS: Final = 3
#: Parents that a reason names.
NAMED_PARENTS: Final = 3
#: Nodes that a reason names.
NAMED_NODES: Final = 3


# --- jobs that are not in the queue -------------------------------------------------------------


def not_found(job_id: UUID) -> Reason:
    """There is no such job."""
    return "not_found", f"there is no job {job_id}", None


def ended(status: str) -> Reason:
    """It is SUCCEEDED, FAILED or CANCELED."""
    return status.lower(), f"it has ended as {status}", None


def running(node_id: str | None) -> Reason:
    """A node runs it."""
    return "running", f"it is running on node {node_id}", None


def paused() -> Reason:
    """It is PAUSED."""
    return "paused", "it is paused; resume it", None


def waiting_signal(key: str, until: datetime | None) -> Reason:
    """It is WAITING for a signal, with or without a deadline."""
    return "waiting_signal", f"it waits for the signal {key!r}", until


def waiting_parent(parents: Sequence[UUID]) -> Reason:
    """It is WAITING for *parents*, or where there are none for its batch."""
    named = ", ".join(str(parent_id) for parent_id in parents[:NAMED_PARENTS]) or "its batch"
    return "waiting_parent", f"it waits for {named}", None


# --- PENDING jobs -------------------------------------------------------------------------------


def not_due(due_at: datetime) -> Reason:
    """Its time has not come."""
    return "not_due", f"it is due at {due_at.isoformat()}", due_at


def still_running(until: datetime) -> Reason:
    """The code of an earlier run has not ended; the job waits for that, but not beyond *until*."""
    text = f"the code of an earlier run is still running; it waits for that, until {until.isoformat()} at the latest"
    return "still_running", text, until


def of_due_time(due_at: datetime, held_until: datetime | None, now: datetime) -> list[Reason]:
    """What its own due time, and code that it waits for until *held_until*, say; empty: its time has come."""
    found: list[Reason] = []
    if due_at > now:
        found.append(not_due(due_at))
    if held_until is not None and held_until > max(now, due_at):
        found.append(still_running(held_until))
    return found


def queue_paused(queue: str, until: datetime | None = None) -> Reason:
    """Its queue is paused; None: until somebody resumes it."""
    if until is None:
        return "queue_paused", f"the queue {queue!r} is paused; resume it", None
    return "queue_paused", f"the queue {queue!r} is paused until {until.isoformat()}", until


def parked(target: str) -> Reason:
    """No node that claimed it knows its function and is allowed to run it."""
    return "parked", f"no node that claimed it could import {target} and run it; start one that can", None


def no_key(keys: Sequence[str]) -> Reason:
    """No node has all the keys that its values are encrypted with."""
    named = listed([repr(key) for key in keys])
    text = f"no node has the key {named}, with which it is encrypted; start one that has it"
    return "no_key", text, None


def suspect() -> Reason:
    """It was running when `SUSPECT_AFTER` nodes or processes crashed."""
    text = "it was running in two crashes or more, so a node runs it only when no other suspect runs there"
    return "suspect", text, None


def breaker_open(service: str, until: datetime | None) -> Reason:
    """Its circuit breaker lets nothing through."""
    return "breaker_open", f"the circuit breaker {service!r} is open", until


def breaker_probing(service: str, until: datetime | None) -> Reason:
    """Its circuit breaker has let its probes through, and nothing else."""
    return "breaker_open", f"the circuit breaker {service!r} waits for what its probes say", until


def no_permit(resource: str, holders: Sequence[PermitRecord]) -> Reason:
    """Others have all the permits; *holders* may be one more than are named."""
    named = [f"job {one.job_id} on node {one.node_id}" for one in holders[:NAMED_HOLDERS]]
    if len(holders) > NAMED_HOLDERS:
        named.append("others")
    held = f"; they are held by {', '.join(named)}" if named else ""
    return "no_permit", f"as many jobs of {resource!r} run as its limit allows{held}", None


def rate_limited(resource: str, until: datetime | None) -> Reason:
    """Its rate lets nothing start before *until*."""
    key = resource.removeprefix(RATE_GATE)
    what = f"of {resource!r}" if key == resource else f"with the rate key {key!r}"
    return "rate_limited", f"as many jobs {what} have started as its rate allows", until


def locked() -> Reason:
    """An open transaction has changed the job, and claims pass it by."""
    return "running", "another transaction is changing the job", None


# --- what the cluster lacks ---------------------------------------------------------------------


def no_nodes(silent: int = 0, draining: int = 0) -> Reason:
    """No node takes jobs; some may be *silent* or *draining*."""
    rest = [f"{count} {word}" for count, word in ((silent, "silent"), (draining, "draining")) if count]
    others = f" ({', '.join(rest)})" if rest else ""
    text = f"no node is running jobs{others}; start one with: ratchet worker package.module:scheduler"
    return "no_nodes", text, None


def no_node_for_queue(queue: str, nodes: Sequence[NodeRecord]) -> Reason:
    """All of these *nodes* take jobs of other queues only."""
    served = sorted({name for node in nodes for name in node.about.queues or ()})
    text = f"no node serves the queue {queue!r}; those that run serve {listed(served)}"
    return "no_node_for_queue", text, None


def lane_down(lane: str, nodes: Sequence[NodeRecord]) -> Reason:
    """No node that serves its queue runs jobs of its lane."""
    said = [f"{node.node_id} ({node.about.down.get(lane, 'it has no such lane')})" for node in nodes]
    return "lane_down", f"no node runs {lane} jobs now: {listed(said, NAMED_NODES)}", None


def slots_full(lane: str, slots: int, since: datetime, fillers: Sequence[str]) -> Reason:
    """All *slots* of its lane, on every node that serves its queue, have been taken since *since*, by *fillers*."""
    taken = f", by {listed(fillers, NAMED_HOLDERS)}" if fillers else ""
    which = f"the only slot for {lane} jobs has" if slots == 1 else f"all {slots} slots for {lane} jobs have"
    text = f"{which} been taken since {since.isoformat()}{taken}"
    return "slots_full", text, None


def read_only(error: object) -> Reason:
    """The database takes no writes, so no job can be claimed."""
    return "read_only", f"jobs cannot be claimed: {error}", None


def code_still_running(holder: str) -> Reason:
    """A permit is held by the code of a run that is over for the store."""
    return "still_running", f"a permit is held by code that has not ended: {holder}", None


def unreadable(detail: str) -> Reason:
    """What is stored of the job cannot be read."""
    return "unreadable", f"what is stored of it cannot be read: {detail}", None


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names in a row; after *most* of them, "and others"."""
    if not names:
        return "none"
    named = ", ".join(names[:most])
    return f"{named} and others" if most is not None and len(names) > most else named
