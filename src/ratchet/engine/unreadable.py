"""What becomes of a claimed job whose row cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from ratchet.model.claim import ClaimedJob
from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.model.decision import NotStarted, Outcome, Postponed, TargetMissing, Unreadable
from ratchet.model.errors import Conflict, StoreUnavailable, UnreadableJob

#: So much later a job comes back that is left to a newer node.
LEFT_TO_NEWER = timedelta(seconds=5)

_NUMBER = re.compile(r"\d+")


class Nodes(Protocol):
    """Knows the nodes."""

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        """All rows, by start time."""
        ...


def outcome_of_unreadable(job: ClaimedJob, store: Nodes) -> Outcome:
    """
    A dead letter, unless another node may be able to read it: a newer one, or one with the key.

    Words that this node does not know may come from a newer version. While a node of one is there, it is left to that
    node; otherwise nobody could run it, and a dead letter is seen.
    """
    why = job.unreadable
    assert why is not None
    if why.missing_keys:
        return TargetMissing(why.text, why.missing_keys)
    try:
        if why.may_be_newer and any(_newer_nodes(job.claim.node_id, store.nodes(counting=False))):
            return Postponed(LEFT_TO_NEWER, False, f"left to a newer node: {why.text}")
    except (StoreUnavailable, Conflict):
        return NotStarted()
    return Unreadable(UnreadableJob(why.text))


def _newer_nodes(node_id: str, nodes: list[NodeRecord]) -> Iterator[NodeRecord]:
    own = next((_release(node.version) for node in nodes if node.node_id == node_id), None)
    if own is None:
        return
    for node in nodes:
        if node.state is NodeState.ACTIVE and _release(node.version) > own:
            yield node


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them; 0.2.0rc1 counts as 0.2.0."""
    found: list[int] = []
    for part in version.split("."):
        number = _NUMBER.match(part)
        if number is None:
            break
        found.append(int(number[0]))
    return tuple(found)
