"""Which of two ways a product ends jobs is said by its dialect; losing the faster one would break no other test."""

from __future__ import annotations

import pytest

from ratchet.model.options import Options
from ratchet.stores.sql.dependants.batch_counters import count_at_once, count_in_steps
from ratchet.stores.sql.dependants.edges import EdgeWriter, FusedEdgeWriter
from ratchet.stores.sql.finish.completions import succeed_at_once, succeed_in_steps
from ratchet.stores.sql.urls import dialect_of


@pytest.mark.parametrize(
    ("url", "fused"),
    [
        ("sqlite:///:memory:", False),
        ("mysql://u@127.0.0.1/d", False),
        ("postgresql://u@127.0.0.1/d", True),
    ],
)
def test_one_statement_where_it_may_change_several_tables(url: str, fused: bool) -> None:
    """PostgreSQL sends one statement for each of the three ends, the others several."""
    dialect = dialect_of(url, Options())
    assert dialect.write_successes is (succeed_at_once if fused else succeed_in_steps)
    assert dialect.count_ends is (count_at_once if fused else count_in_steps)
    assert type(dialect.edge_writer) is (FusedEdgeWriter if fused else EdgeWriter)
