"""A process is dead when all of its nodes are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.model.cluster import NodeInfo, NodeRecord, NodeState, dead_process
from ratchet.model.process import process_name

NOW = datetime(2031, 3, 1, tzinfo=UTC)


def node(node_id: str, state: NodeState, process: str | None) -> NodeRecord:
    """A node's row."""
    info = None if process is None else msgspec.json.encode(NodeInfo(process=process)).decode()
    return NodeRecord(
        node_id=node_id,
        name=node_id,
        host="h",
        pid=1,
        version="0",
        state=state,
        beat=0,
        beat_interval=timedelta(seconds=2),
        silence=timedelta(seconds=5),
        started_at=NOW,
        last_beat_at=NOW,
        info=info,
    )


def test_the_process_of_a_dead_node() -> None:
    """It is known by what the node has said of itself; others on the same host with the same pid are not meant."""
    dead = node("a", NodeState.DEAD, "h:1:x")
    assert dead_process("a", [dead, node("b", NodeState.ACTIVE, "h:1:y")]) == "h:1:x"
    assert dead_process("b", [dead]) is None


def test_a_process_that_has_become_a_new_node_lives() -> None:
    """Declared dead by mistake, it goes on as a new incarnation: nothing of it is ended."""
    nodes = [node("a", NodeState.DEAD, "h:1:x"), node("a2", NodeState.DRAINING, "h:1:x")]
    assert dead_process("a", nodes) is None


def test_a_node_that_has_not_said_it() -> None:
    """An older version, or a living node: there is nothing to end."""
    assert dead_process("a", [node("a", NodeState.DEAD, None)]) is None
    assert dead_process("a", [node("a", NodeState.ACTIVE, "h:1:x")]) is None


def test_the_name_is_short_and_stays() -> None:
    """Servers keep 63 characters of a name."""
    assert process_name() == process_name()
    assert len(process_name()) <= 40
