"""`Reason`: why a job is not running, and `Blocker`: who or what holds it back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Blocker(NamedTuple):
    """
    Who or what holds a job back.

    ``kind`` is ``job`` (one that has the permit or the slot), ``node``, ``queue`` or ``breaker``, and ``name`` its
    id or name. Of a job and of a node, the node and its process are named, as far as they are known.
    """

    kind: str
    name: str
    text: str
    job_id: UUID | None = None
    node_id: str | None = None
    host: str | None = None
    pid: int | None = None
    since: datetime | None = None

    def __str__(self) -> str:
        return self.text


class Reason(NamedTuple):
    """
    One thing that keeps a job from being started.

    ``code`` is for programs, ``text`` for people, ``until`` says when it ends by itself, if that is known;
    ``blockers`` are the jobs, nodes, queues or breakers behind it.
    """

    code: str
    text: str
    until: datetime | None = None
    blockers: tuple[Blocker, ...] = ()

    def __str__(self) -> str:
        return self.text
