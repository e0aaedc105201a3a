"""
Why a job is not running, in full: what the store says of the job, and what the cluster lacks.

The store's part is empty exactly when a claim would take the job. Then the nodes are looked at: whether there are any, for
its queue and its lane, with a free slot, and whether the database takes writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.observe.reasons import Blocker, Reason
from ratchet.api.targets import TargetRegistry
from ratchet.model import reasons as why
from ratchet.model.callbacks import plain_target
from ratchet.model.cluster import NodeRecord, NodeState, PermitRecord
from ratchet.model.errors import StoreReadOnly
from ratchet.model.job import JobRecord
from ratchet.model.places import keys_of
from ratchet.model.process import process_name
from ratchet.model.reasons import NAMED_HOLDERS, NAMED_NODES
from ratchet.model.status import JobStatus
from ratchet.spi.store import JobStore

#: No lock has this name: to give it back changes nothing, but a database that takes no writes refuses it.
_NO_LOCK = "ratchet write test"


def refusal_of_writes(
    store: JobStore, token: UUID, *, really: datetime | None = None
) -> StoreReadOnly | None:
    """
    What a database says that takes no writes; None if it does. One small statement that changes nothing.

    *really*: the time, where a store in a file is to write something: its disk may be full, and it learns that in a commit.
    """
    try:
        if really is None or store.capabilities.concurrent_writers:
            store.release_lock(_NO_LOCK, token=token)
        else:
            # It has expired before anybody could wait for it.
            store.acquire_lock(
                _NO_LOCK, holder=process_name(), token=token, ttl=timedelta(microseconds=1), now=really
            )
    except StoreReadOnly as refusal:
        return refusal
    return None


class Explanation:
    """Explains one job at one moment."""

    def __init__(self, backend: Backend, job_id: UUID) -> None:
        self._backend = backend
        self._store = backend.store
        self._job_id = job_id
        self._now = backend.now()
        self._read_nodes: list[NodeRecord] | None = None

    def reasons(self) -> list[Reason]:
        """Everything that keeps the job from being started; empty: the next free node takes it."""
        found = [Reason(*reason) for reason in self._store.explain(self._job_id, now=self._now)]
        codes = {reason.code for reason in found}
        if "not_found" in codes or (job := self._store.get(self._job_id)) is None:
            return found
        found = [full for reason in found for full in self._in_full(reason, job)]
        found += self._of_keys(job)
        if codes <= {"suspect"} and not self._backend.driven_by_hand:
            found += self._of_cluster(job)
        return found

    @property
    def _nodes(self) -> list[NodeRecord]:
        if self._read_nodes is None:
            self._read_nodes = self._store.nodes(counting=False)
        return self._read_nodes

    # --- the reasons of the store ---

    def _in_full(self, reason: Reason, job: JobRecord) -> list[Reason]:
        """*reason* with who is behind it, and perhaps one that follows from that."""
        match reason.code:
            case "running":
                node = self._node(job.node_id)
                return [reason._replace(blockers=(self._process(node),) if node else ())]
            case "queue_paused":
                queue = job.stream.queue
                return [reason._replace(blockers=(Blocker("queue", queue, f"the queue {queue!r}"),))]
            case "breaker_open":
                service = str(job.stream.breaker)
                return [reason._replace(blockers=(Blocker("breaker", service, f"the breaker {service!r}"),))]
            case "no_permit":
                return self._with_holders(reason, job)
            case "parked":
                return [self._with_lacks(reason, job)]
            case "failed" if job.dead_letter_reason == "unreadable":
                return [reason, Reason(*why.unreadable(job.error or "its error was not kept"))]
        return [reason]

    def _with_holders(self, reason: Reason, job: JobRecord) -> list[Reason]:
        names = [name for name in (job.stream.resource, job.stream.limit_key) if name is not None]
        resource = next((name for name in names if repr(name) in reason.text), None)
        holders = [] if resource is None else self._store.holders(resource, limit=NAMED_HOLDERS + 1)
        named = [self._holder(holder) for holder in holders]
        blockers = tuple(blocker for blocker, _ in named)
        text = reason.text
        if blockers:
            text = f"{text.split('; they are held by')[0]}; they are held by {why.listed([b.text for b in blockers], NAMED_HOLDERS)}"
        ended = [blocker for blocker, runs in named if not runs]
        return [
            reason._replace(text=text, blockers=blockers),
            *(Reason(*why.code_still_running(blocker.text), (blocker,)) for blocker in ended[:NAMED_HOLDERS]),
        ]

    def stuck_holders(self, resource: str, limit: int) -> list[Blocker]:
        """Who has a permit that may not come back: a node that is not alive, or code whose job has ended."""
        held = [(holder, *self._holder(holder)) for holder in self._store.holders(resource, limit=limit)]
        return [
            blocker
            for holder, blocker, runs in held
            if not runs or (node := self._node(holder.node_id)) is None or not node.is_alive(self._now)
        ]

    def _holder(self, holder: PermitRecord) -> tuple[Blocker, bool]:
        """Who has a permit, and whether that run is still one for the store."""
        job = self._store.get(holder.job_id)
        runs = job is not None and job.status is JobStatus.RUNNING and job.claim_id == holder.claim_id
        node = self._node(holder.node_id)
        what = f"job {holder.job_id}"
        if job is None:
            what += ", which is gone, but its code still runs,"
        elif not runs:
            what += f" ({job.target}), which is {job.status}, but code of it still runs,"
        else:
            what += f" ({job.target})"
        text = f"{what} on {self._place(holder.node_id, node)}"
        since = job.started_at if runs and job is not None else None
        return self._blocker(
            "job", str(holder.job_id), text, node, holder.node_id, holder.job_id, since
        ), runs

    def _with_lacks(self, reason: Reason, job: JobRecord) -> Reason:
        """What this process lacks to run a parked job, and which nodes run without its function."""
        targets, text, target = self._backend.targets, reason.text, plain_target(job.target)
        # A process without code of the application, such as a command with nothing but a URL, lacks everything.
        if isinstance(targets, TargetRegistry) and targets.declared_names:
            lack = targets.lack(target)
            text += "" if lack is None else f". This process lacks it: {lack}"
        without = [
            node
            for node in self._nodes
            if node.state is NodeState.ACTIVE and target not in node.about.targets
        ]
        if without:
            named = why.listed([node.node_id for node in without], NAMED_NODES)
            text += f". Nodes that have neither declared nor run it: {named}"
        lacking = f"has neither declared nor run {target}"
        return reason._replace(text=text, blockers=tuple(self._process(node, lacking) for node in without))

    # --- what the cluster lacks ---

    @property
    def _active(self) -> list[NodeRecord]:
        return [node for node in self._nodes if node.state is NodeState.ACTIVE and node.is_alive(self._now)]

    def _of_keys(self, job: JobRecord) -> Iterator[Reason]:
        """What is said where no node has the keys of the job; if no node is there at all, that is said instead."""
        keys = keys_of(job.stream.parked_target) if job.status is JobStatus.PENDING else ()
        if not keys:
            return
        if self._backend.driven_by_hand:
            if not self._backend.has_keys(keys):
                yield Reason(*why.no_key(keys))
            return
        without = self._active
        if without and not any(node.has_keys(keys) for node in without):
            code, text, until = why.no_key(keys)
            text += f". Nodes without it: {why.listed([node.node_id for node in without], NAMED_NODES)}"
            lacking = tuple(self._process(node, "lacks the key") for node in without)
            yield Reason(code, text, until, lacking)

    def _of_cluster(self, job: JobRecord) -> Iterator[Reason]:
        refusal = refusal_of_writes(self._store, self._backend.ids())
        if refusal is not None:
            yield Reason(*why.read_only(refusal))
        alive = [node for node in self._nodes if node.is_alive(self._now)]
        active = self._active
        queue, lane, keys = job.stream.queue, str(job.stream.lane), keys_of(job.stream.parked_target)
        able = [node for node in active if node.has_keys(keys)]
        serving = [node for node in able if node.about.queues is None or queue in node.about.queues]
        working = [node for node in serving if node.runs(lane)]
        if not active:
            silent = [node for node in self._nodes if node.state is not NodeState.DEAD and node not in alive]
            reason = why.no_nodes(len(silent), len(alive))
            yield Reason(*reason, tuple(self._process(node) for node in (*silent, *alive)))
        elif not able:
            return  # `_of_keys` says so
        elif not serving:
            yield Reason(*why.no_node_for_queue(queue, able), tuple(self._serving(node) for node in able))
        elif not working:
            blockers = tuple(self._process(node, node.about.down.get(lane)) for node in serving)
            yield Reason(*why.lane_down(lane, serving), blockers)
        elif all(lane in node.about.full for node in working):
            yield self._slots_full(lane, working)

    def _slots_full(self, lane: str, nodes: Sequence[NodeRecord]) -> Reason:
        fillers = [filler for node in nodes[:NAMED_NODES] for filler in self._fillers(node, lane)]
        fillers.sort(key=lambda filler: filler.since or self._now)
        slots = sum(node.about.lanes.get(lane, 0) for node in nodes)
        since = min(node.about.full[lane] for node in nodes)
        return Reason(*why.slots_full(lane, slots, since, [f.text for f in fillers]), tuple(fillers))

    def _fillers(self, node: NodeRecord, lane: str) -> Iterator[Blocker]:
        """The jobs that have been on a node longest: a claim's token begins with the time."""
        claims = sorted(self._store.claims_of(node.node_id).items(), key=lambda claim: claim[1].int)
        for job_id, _ in claims[:NAMED_HOLDERS]:
            job = self._store.get(job_id)
            if job is None or job.status is not JobStatus.RUNNING:
                continue
            if job.stream.suspect or str(job.stream.lane) == lane:
                since = "" if job.started_at is None else f" since {job.started_at.isoformat()}"
                alone = ", a suspect of crashes, which runs alone" if job.stream.suspect else ""
                text = f"job {job_id} ({job.target}) on {self._place(node.node_id, node)}{since}{alone}"
                yield self._blocker("job", str(job_id), text, node, node.node_id, job_id, job.started_at)

    # --- blockers ---

    def _node(self, node_id: str | None) -> NodeRecord | None:
        return next((node for node in self._nodes if node.node_id == node_id), None)

    def _place(self, node_id: str, node: NodeRecord | None) -> str:
        """A node and its process, and whether it still answers."""
        if node is None:
            return f"node {node_id}, which is gone"
        place = f"node {node_id} (host {node.host}, process {node.pid})"
        if node.is_alive(self._now):
            return place
        seen = "is dead" if node.state is NodeState.DEAD else "is silent"
        return f"{place}, which {seen} since {node.last_beat_at.isoformat()}"

    def _process(self, node: NodeRecord, what: str | None = None) -> Blocker:
        text = self._place(node.node_id, node) + (f": {what}" if what else "")
        return self._blocker("node", node.node_id, text, node, node.node_id, None, node.last_beat_at)

    def _serving(self, node: NodeRecord) -> Blocker:
        return self._process(node, f"serves {why.listed(sorted(node.about.queues or ()))}")

    @staticmethod
    def _blocker(
        kind: str,
        name: str,
        text: str,
        node: NodeRecord | None,
        node_id: str,
        job_id: UUID | None,
        since: datetime | None,
    ) -> Blocker:
        host, pid = (None, None) if node is None else (node.host, node.pid)
        return Blocker(kind, name, text, job_id, node_id, host, pid, since)
