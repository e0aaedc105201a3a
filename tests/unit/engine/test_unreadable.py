"""Jobs whose rows cannot be read: a dead letter, unless a newer node may read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from ratchet.engine.unreadable import outcome_of_unreadable
from ratchet.model.claim import ClaimedJob, JobBody, JobClaim, RowFault
from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.model.decision import NotStarted, Outcome, Postponed, Unreadable
from ratchet.model.errors import StoreUnavailable
from ratchet.model.status import JobType, Priority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID(int=1)


def node(node_id: str, version: str, state: NodeState = NodeState.ACTIVE) -> NodeRecord:
    return NodeRecord(
        node_id=node_id, name="n", host="h", pid=1, version=version, state=state, beat=1, started_at=NOW, last_beat_at=NOW,
        beat_interval=timedelta(seconds=2), silence=timedelta(seconds=5),
    )  # fmt: skip


class Nodes:
    def __init__(self, *nodes: NodeRecord) -> None:
        self._nodes = list(nodes)

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        if not self._nodes:
            raise StoreUnavailable("gone")
        return self._nodes


def outcome(fault: RowFault, *others: NodeRecord) -> Outcome:
    claim = JobClaim(
        job_id=ID, claim_id=ID, node_id="own", stream_id=1, type=JobType.SINGLE, priority=Priority.NORMAL, scheduled_at=NOW,
        claimed_at=NOW, attempts=0, crashes=0, max_retries=0,
    )  # fmt: skip
    body = JobBody(job_id=ID, target="a:b", payload="", created_at=NOW, root_id=ID, queue="default")
    job = ClaimedJob(claim=claim, body=body, unreadable=fault)
    return outcome_of_unreadable(job, Nodes(*others))


WORD = RowFault(text="job_type is 'SAGA'", may_be_newer=True)


@pytest.mark.parametrize("newer", ["0.1.1", "0.2.0rc1", "0.10.0", "1.0"])
def test_left_to_a_newer_node(newer: str) -> None:
    """While a node of a newer version is active, the job comes back a little later, uncounted."""
    found = outcome(WORD, node("own", "0.1.0"), node("other", newer))
    assert isinstance(found, Postponed)
    assert not found.counted


@pytest.mark.parametrize(
    "others",
    [
        [],
        [node("other", "0.1.0")],
        [node("other", "0.0.9")],
        [node("other", "0.2.0", NodeState.DEAD)],
        [node("x", "?")],
    ],
)
def test_a_dead_letter_where_nobody_is_newer(others: list[NodeRecord]) -> None:
    """Nobody could run it: it is ended, and seen."""
    found = outcome(WORD, node("own", "0.1.0"), *others)
    assert isinstance(found, Unreadable)
    assert "SAGA" in str(found.error)


def test_damage_is_not_left_to_anybody() -> None:
    """A newer version writes no damage: such a job is a dead letter at once, although a newer node is there."""
    found = outcome(RowFault(text="timeout_us is -1"), node("own", "0.1.0"), node("other", "9.0"))
    assert isinstance(found, Unreadable)


def test_the_store_cannot_be_asked() -> None:
    """Then nothing is decided: the job is handed back."""
    assert isinstance(outcome(WORD), NotStarted)
