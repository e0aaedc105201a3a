"""Firing schedules beside other nodes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from ratchet.engine.recurring import RecurringRuns
from ratchet.model.composition import FireRecord, ScheduleSpec
from ratchet.model.errors import Conflict
from ratchet.model.identifiers import new_id
from ratchet.stores.memory import MemoryStore

NOW = datetime(2030, 1, 1, 2, tzinfo=UTC)


class Contended(MemoryStore):
    """A store in which another transaction is faster, once."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def advance(self, name: str, **given: Any) -> list[FireRecord] | None:
        if name not in self.met and name == "first":
            self.met.append(name)
            raise Conflict("another transaction was faster")
        return super().advance(name, **given)


def test_a_write_conflict_of_one_schedule(caplog: pytest.LogCaptureFixture) -> None:
    """It is no error, the other schedules fire, and the next look fires this one."""
    store = Contended()
    for name in ("first", "second"):
        spec = ScheduleSpec(
            name=name,
            expression="0 2 * * *",
            zone="UTC",
            target="shop:report",
            template='{"target":"shop:report","payload":"{}"}',
            next_fire_at=NOW,
        )
        store.upsert_schedule(spec, now=NOW)
    caplog.set_level(logging.INFO, logger="ratchet.engine")
    runs = RecurringRuns(store=store, ids=new_id, wake=lambda: None)
    assert runs.run_once(NOW) == 1
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "first" in caplog.text
    assert runs.run_once(NOW) == 1
    assert store.met == ["first"]
