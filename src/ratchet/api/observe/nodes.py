"""``scheduler.nodes``: the processes that run jobs."""

from __future__ import annotations

from datetime import timedelta

from ratchet.api.authorization import by_hand, require
from ratchet.api.observe.queries import Facade
from ratchet.model.cluster import NodeRecord, NodeRequest, NodeState
from ratchet.model.durations import format_duration
from ratchet.model.errors import NodeAlive, NodeNotFound
from ratchet.model.permissions import Permission


class Nodes(Facade):
    """Shows the nodes of the cluster, asks them to drain or to stop, and forgets those that are gone."""

    def list(self) -> list[NodeRecord]:
        """All nodes by start time, dead ones included until they are purged."""
        require(self._backend, Permission.LIST, about="nodes")
        return self._backend.store.nodes()

    def drain(self, node_id: str) -> bool:
        """
        Ask a node to take no more jobs and finish those that run; False if it was asked before.

        It learns of it with its next beat, and shows that by its state, DRAINING. It stays in the cluster and draining
        until `resume` or `stop`. `NodeNotFound` if it is dead or not there.
        """
        return self._ask(node_id, NodeRequest.DRAIN, "drain")

    def resume(self, node_id: str) -> bool:
        """Let a drained node take jobs again; False if it was not drained, or is stopping."""
        return self._ask(node_id, None, "resume")

    def stop(self, node_id: str) -> bool:
        """
        Ask a node to stop: to drain, to hand back what has not finished within its drain time, and to leave; False if it was asked before.

        A process of ``ratchet worker`` ends and is not replaced, and the worker ends with its last process. Anywhere else
        it is as if `Scheduler.stop` were called there. `NodeNotFound` if it is dead or not there.
        """
        return self._ask(node_id, NodeRequest.STOP, "stop")

    def _ask(self, node_id: str, request: NodeRequest | None, verb: str) -> bool:
        with by_hand(self._backend, Permission.NODES, verb, about=f"node:{node_id}"):
            return self._request(node_id, request)

    def _request(self, node_id: str, request: NodeRequest | None) -> bool:
        store = self._backend.store
        node = next((one for one in store.nodes(counting=False) if one.node_id == node_id), None)
        if node is None:
            raise NodeNotFound(f"there is no node {node_id!r}")
        now = store.database_time()
        if not node.is_alive(now):
            silence = format_duration(timedelta(seconds=round((now - node.last_beat_at).total_seconds())))
            raise NodeNotFound(f"node {node_id} is dead: its last beat was {silence} ago")
        if node.request in (request, NodeRequest.STOP):
            return False
        if not store.request_of_node(node_id, request, now=now):
            raise NodeNotFound(f"node {node_id} is dead")
        return True

    def remove(self, node_id: str) -> bool:
        """
        Forget a node that is dead or has been silent for too long; False if there is none with this id.

        The jobs of a silent node are requeued, as when another node notices its death. A node that still
        beats is not removed: `NodeAlive`.
        """
        with by_hand(self._backend, Permission.NODES, "remove", about=f"node:{node_id}"):
            return self._remove(node_id)

    def _remove(self, node_id: str) -> bool:
        store, now = self._backend.store, self._backend.store.database_time()
        node = next((one for one in store.nodes() if one.node_id == node_id), None)
        if node is None:
            return False
        if node.state is not NodeState.DEAD:
            quiet = now - node.last_beat_at
            crashes = self._backend.options.max_crashes
            if quiet <= node.silence or not store.rescue(
                node_id, seen_beat=node.beat, by="removed", max_crashes=crashes, now=now
            ):
                raise NodeAlive(
                    f"node {node_id} is alive: its last beat was {max(0.0, quiet.total_seconds()):.1f} s ago, and it "
                    f"is silent after {node.silence.total_seconds():g} s; stop process {node.pid} on {node.host} instead"
                )
        store.deregister(node_id, now=now)
        return True
