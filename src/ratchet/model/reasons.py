"""
Why a job does not run, in words: what `explain` says on every store.

A store finds out what holds a job back; the code and the text of each reason are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from ratchet.model.cluster import PermitRecord

#: (code, text, until when); None: nobody knows.
Reason: TypeAlias = tuple[str, str, datetime | None]

#: Holders of a permit that a reason names.
NAMED_HOLDERS: Final = 3
#: Parents that a reason names.
NAMED_PARENTS: Final = 3


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


def waiting_parent(parents: Sequence[UUID] | None = None) -> Reason:
    """It is WAITING for *parents*, or where there are none for its batch; None: the store does not say for which."""
    if parents is None:
        return "waiting_parent", "it waits for other jobs to end", None
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


def queue_paused(queue: str) -> Reason:
    """Its queue is paused."""
    return "queue_paused", f"the queue {queue!r} is paused; resume it", None


def parked(target: str) -> Reason:
    """No node that claimed it knows its function and is allowed to run it."""
    return "parked", f"no node that claimed it could import {target} and run it; start one that can", None


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
    return "rate_limited", f"as many jobs of {resource!r} have started as its rate allows", until


def locked() -> Reason:
    """An open transaction has changed the job, and claims pass it by."""
    return "running", "another transaction is changing the job", None
