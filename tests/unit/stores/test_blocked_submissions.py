"""What a submission is told that waited for another transaction in vain."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.stores.blocked_submissions import blocked
from ratchet.tck.steps import Steps

STEPS = Steps()


@pytest.mark.parametrize(
    ("specs", "held"),
    [
        ([{}], "this submission has waited"),
        ([{"business_key": "b"}, {}], "the business key 'b' of this submission is held"),
        (
            [{"idempotency_key": "i", "business_key": "b"}],
            "the idempotency key 'i' or the business key 'b' of this",
        ),
        ([{"idempotency_key": "i"}, {"idempotency_key": "j"}], "one of the 2 idempotency keys of this"),
    ],
)
def test_keys(specs: list[dict[str, Any]], held: str) -> None:
    """Each kind of key that it has, by name where it is one; none where it has none."""
    assert str(blocked([STEPS.spec(**one) for one in specs], [])).startswith(held)


def test_parents() -> None:
    """A parent of its own cannot be held by others."""
    parent, child = STEPS.spec(), STEPS.spec()
    edge = STEPS.edge(parent, child)
    assert str(blocked([child], [edge])).startswith("a parent of this submission is held")
    assert str(blocked([parent, child], [edge])).startswith("this submission has waited")
