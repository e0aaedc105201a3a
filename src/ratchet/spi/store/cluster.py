"""Cluster: nodes, beats, rescue, locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from ratchet.model.cluster import (
    BeatAnswer,
    LockRecord,
    NodeChange,
    NodeRecord,
    NodeRequest,
    NodeSpec,
    NodeState,
    Rescue,
)


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
        Raise the beat counter and read back the node's claims and what was asked of it; a DEAD or missing row is not changed.

        A *change* of the row becomes visible together with the new beat, or not at all. With *known*, only
        claims of these jobs are read, which a store finds without reading what the node ran before.
        """
        ...

    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        """
        Raise the counters of several nodes without reading claims; the nodes that are alive. A supervisor
        beats for its children.
        """
        ...

    def set_node_state(self, node_id: str, state: NodeState, *, now: datetime) -> bool:
        """Change a state, for instance from ACTIVE to DRAINING; False if the node is DEAD or missing."""
        ...

    def request_of_node(self, node_id: str, request: NodeRequest | None, *, now: datetime) -> bool:
        """
        Store what a person asks of a node, or take it back with None; False if the node is DEAD or missing.

        The node learns it from the answer of its next `beat`. A request to STOP is not taken back.
        """
        ...

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        """All rows, by start time, each with the number of jobs that it runs; without *counting* that number is 0."""
        ...

    def rescue(
        self,
        node_id: str,
        *,
        seen_beat: int,
        by: str,
        max_crashes: int,
        now: datetime,
        ran: Mapping[UUID, UUID] | None = None,
        seen: str | None = None,
    ) -> Rescue | None:
        """
        Declare a node dead and take its work back, in one transaction.

        This happens only if its beat is still *seen_beat* and it is not DEAD; otherwise the answer is None, and
        nothing is written. Every RUNNING job of the node that ran gets one more crash, an execution row CRASHED
        (uncounted) and a new fence. It becomes PENDING with its old due time, from the second crash on in a
        suspect stream, or at *max_crashes* FAILED as a dead letter with everything that a `Fail` brings. Keys
        and permits that were held for code still running on the node are freed, and so are its locks.

        *ran* says what ran, job id to claim id, where a supervisor knows it; what it does not name is handed back
        uncharged (``handed_back``). Otherwise the claim tells: a job ran unless its token is one of a claim ahead
        (`is_ahead`) and `mark_started` has not been called for it. Such a job is in doubt. It is handed back
        uncharged, with a run HANDED_BACK of error type `DOUBTFUL`; after `LONGEST_DOUBT` such runs it is charged, or a job
        that kills its node at once would do so for ever. *seen* is how the node ended ("was killed by SIGKILL"), for
        the runs and the dead letters; None: it stopped beating.

        A process that is stopped may have a transaction open. The jobs that it has changed there are left
        (``held_up``): no call waits for them, and all others are taken at once. A store that can end such a
        transaction does. Called again for the node, which is DEAD now, `rescue` takes the jobs that were held up
        and have become free, counted in the same way; None if there are none.
        """
        ...

    def absent_nodes(self) -> list[str]:
        """
        Node ids that hold RUNNING jobs, or keys or permits of ended ones, and have no living row.

        A node that was declared dead may claim once more before it learns of it, and a claim whose answer
        was lost may arrive after the node has deregistered.
        """
        ...

    def deregister(self, node_id: str, *, now: datetime) -> int:
        """
        Remove a node that stops cleanly: jobs that are still RUNNING go back (uncounted), its keys and
        permits are freed; how many jobs.
        """
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
