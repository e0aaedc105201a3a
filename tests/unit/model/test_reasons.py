"""The words of `explain`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from ratchet.model import reasons
from ratchet.model.cluster import PermitRecord

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def holder(number: int) -> PermitRecord:
    return PermitRecord(
        resource="printer", job_id=UUID(int=number), claim_id=UUID(int=number), node_id=f"node-{number}"
    )


def test_a_permit_names_three_holders() -> None:
    """And says that there are others."""
    code, text, until = reasons.no_permit("printer", [holder(number) for number in range(1, 5)])
    assert (code, until) == ("no_permit", None)
    assert text.startswith("as many jobs of 'printer' run as its limit allows; they are held by job ")
    assert "on node node-3, others" in text
    assert "node-4" not in text


def test_a_permit_without_holders() -> None:
    """They may have been freed since."""
    assert reasons.no_permit("printer", [])[1] == "as many jobs of 'printer' run as its limit allows"


def test_parents_are_named_where_the_store_knows_them() -> None:
    """Three at most; without any it is the batch."""
    parents = [UUID(int=number) for number in range(1, 5)]
    assert reasons.waiting_parent([])[1] == "it waits for its batch"
    assert reasons.waiting_parent(parents)[1] == f"it waits for {parents[0]}, {parents[1]}, {parents[2]}"


def test_a_job_that_waits_for_code() -> None:
    """It is due at the latest then; its own due time is a reason of its own."""
    soon, later = NOW + timedelta(seconds=5), NOW + timedelta(seconds=60)
    assert reasons.of_due_time(NOW, None, NOW) == []
    assert reasons.of_due_time(soon, None, NOW) == [reasons.not_due(soon)]
    assert reasons.of_due_time(NOW, later, NOW) == [reasons.still_running(later)]
    assert reasons.of_due_time(soon, later, NOW) == [reasons.not_due(soon), reasons.still_running(later)]
    assert reasons.of_due_time(later, soon, NOW) == [reasons.not_due(later)]
    assert reasons.of_due_time(NOW, NOW, NOW) == []
    code, text, until = reasons.still_running(later)
    assert (code, until) == ("still_running", later)
    assert "an earlier run is still running" in text
