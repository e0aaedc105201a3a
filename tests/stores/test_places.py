"""Room for a trial: beside what is there, and gone afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from ratchet.model.options import Options
from ratchet.stores import open_store, trial_room
from tests.support.store_urls import KINDS, fresh_url


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_leaves_nothing_behind(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A store that can make room for itself does; the others say that they cannot."""
    url = fresh_url(kind, request, tmp_path)
    before = sorted(tmp_path.iterdir())
    with trial_room(url, Options(auto_migrate=True)) as room:
        assert room.is_own == (kind in ("sqlite", "postgresql"))
        store = open_store(room.url, room.options)
        store.pause_queue("q", now=datetime(2026, 1, 1, tzinfo=UTC))
        store.close()
    named = open_store(url, Options())
    assert [queue.name for queue in named.queues()] == ([] if room.is_own else ["q"])
    named.close()
    assert sorted(tmp_path.iterdir()) == before
    if kind == "postgresql":
        with psycopg.connect(url) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'ratchet_trial%'"
            ).fetchall()
        assert found == []
