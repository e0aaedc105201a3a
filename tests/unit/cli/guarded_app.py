"""An app whose scheduler goes by roles; each test puts its own scheduler here."""

from __future__ import annotations

from ratchet import Job, Permission, Scheduler

P = Permission
ROLES: dict[str | None, frozenset[Permission]] = {
    "viewer": frozenset({P.VIEW, P.LIST}),
    "operator": frozenset({P.VIEW, P.LIST, P.CANCEL, P.PAUSE, P.RESUME, P.RETRY, P.RESCHEDULE, P.QUEUES}),
    "admin": frozenset(Permission),
}

scheduler: Scheduler


def by_role(principal: str | None, permission: Permission, job: Job | None) -> bool:
    """Everything that the role of this name may do."""
    return permission in ROLES.get(principal, ())
