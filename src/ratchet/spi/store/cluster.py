"""Cluster: nodes, beats, rescue, locks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from ratchet.model.cluster import BeatAnswer, LockRecord, NodeChange, NodeRecord, NodeSpec, NodeState, Rescue


class NodeStore(Protocol):
    """Registers nodes and takes back the work of dead ones."""

    def register(self, node: NodeSpec, *, now: datetime) -> None:
        """Create the node's row with beat 0, ACTIVE."""
        ...

    def beat(
        self,
        node_id: str,
        *,
        now: datetime,
        change: NodeChange | None = None,
        known: Sequence[UUID] | None = None,
    ) -> BeatAnswer:
        """
        Raise the beat counter and read back the node's claims; a DEAD or missing row is not changed.

        A *change* of the row is seen together with the new beat, or not at all. *known*: of these jobs
        only, which a store finds without reading over what the node has run before.
        """
        ...

    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        """Raise the counters of several nodes without reading claims (a supervisor beats for its children); those that are alive."""
        ...

    def set_node_state(self, node_id: str, state: NodeState, *, now: datetime) -> bool:
        """ACTIVE to DRAINING and the like; False if the node is DEAD or missing."""
        ...

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        """All rows, by start time, with the number of jobs each is running; 0 where that is not asked for."""
        ...

    def rescue(
        self, node_id: str, *, seen_beat: int, by: str, max_crashes: int, now: datetime
    ) -> Rescue | None:
        """
        Declare a node dead and take its work back, in one transaction.

        Only if its beat still is *seen_beat* and it is not DEAD: otherwise None, and nothing is
        written. Every RUNNING job of the node: crashes + 1, execution row CRASHED (uncounted), new
        fence; to PENDING with its old due time, to a suspect stream from the second crash on, or at
        *max_crashes* FAILED as a dead letter with everything a `Fail` brings. Keys and permits that were
        held for code still running on the node are freed, and so are its locks.

        A process that is stopped may have a transaction open. The jobs that it has changed there are
        left (``held_up``): nobody waits for them, and all others are taken at once. A store that can
        end such a transaction does. Called again for the node, which is DEAD now, it takes what was
        held up and has become free, counted in the same way; None if there is nothing.
        """
        ...

    def strays(self) -> list[str]:
        """
        Node ids that hold RUNNING jobs, or keys or permits of ended ones, and have no living row.

        A node that was declared dead may claim once more before it learns of it, and a claim whose
        answer was lost may arrive after the goodbye.
        """
        ...

    def deregister(self, node_id: str, *, now: datetime) -> int:
        """A clean goodbye: hands back what is still RUNNING (uncounted), frees the keys and permits of code still running, removes the row."""
        ...

    def purge_nodes(self, *, before: datetime) -> int:
        """Delete DEAD rows older than *before*."""
        ...

    def database_time(self) -> datetime:
        """The database server's clock."""
        ...


class LockStore(Protocol):
    """Leases with a token: only the holder of the token renews or releases."""

    def acquire_lock(self, name: str, *, holder: str, token: UUID, ttl: timedelta, now: datetime) -> bool:
        """Take the lock if it is free or expired; True also where *token* holds it already (renewed)."""
        ...

    def release_lock(self, name: str, *, token: UUID) -> bool:
        """Give the lock back, if *token* still holds it."""
        ...

    def lock(self, name: str) -> LockRecord | None:
        """Who holds the lock; a read, so that an idle node writes nothing."""
        ...
