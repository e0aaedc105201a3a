"""Who may do what."""

from __future__ import annotations

from typing import Protocol

from ratchet.model.job import Job
from ratchet.model.permissions import Permission


class Authorizer(Protocol):
    """
    Says whether somebody may do something; any callable of these three.

    Asked before each verb, on the thread that calls it. *principal* is who acts (``acting_as``, else the
    `PrincipalProvider`'s answer, else None). *job* is the job in question, or for SUBMIT and SCHEDULES what it would be; None
    where the verb is about no job that is stored. Only True permits. One that raises refuses.

    It may also have a method ``scope(principal, permission) -> JobFilter | None``: the jobs for which it says yes, as a
    filter. Then listings, counts and bulk verbs pass it to the store instead of asking about each job. None: ask.
    """

    def __call__(self, principal: str | None, permission: Permission, job: Job | None) -> bool:
        """True if *principal* has *permission* for *job*."""
        ...
