"""Jobs and people for the tests of authorization and audit."""

from __future__ import annotations

from ratchet import Job, JobFilter, Permission

P = Permission

#: What each role may do.
ROLES: dict[str | None, frozenset[Permission]] = {
    "viewer": frozenset({P.VIEW, P.LIST}),
    "operator": frozenset(
        {
            P.VIEW,
            P.LIST,
            P.CANCEL,
            P.PAUSE,
            P.RESUME,
            P.RETRY,
            P.RESCHEDULE,
            P.SET_PRIORITY,
            P.SIGNAL,
            P.QUEUES,
            P.BATCHES,
        }
    ),
    "admin": frozenset(Permission),
}


def by_role(principal: str | None, permission: Permission, job: Job | None) -> bool:
    """Everything that the role of this name may do."""
    return permission in ROLES.get(principal, ())


class ByQueue:
    """People see and change only what is in the queue of their name; asked about each job."""

    def __call__(self, principal: str | None, permission: Permission, job: Job | None) -> bool:
        return job is not None and job.queue == principal


class ByQueueWithScope(ByQueue):
    """The same, as a filter for the store."""

    def scope(self, principal: str | None, permission: Permission) -> JobFilter | None:
        return JobFilter(queue=principal or "nobody")


def work(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


def flag(context: object) -> None:
    """A callback."""
