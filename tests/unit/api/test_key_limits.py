"""`KeyLimits`: how long a process relies on the limit of a key that it has stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from ratchet.api.backend import Backend
from ratchet.model.cluster import KeyLimit
from ratchet.scheduler import key_limits
from ratchet.scheduler.key_limits import KeyLimits
from ratchet.stores.memory import MemoryStore
from ratchet.stores.stream_cache import HOUR

LIMIT = KeyLimit(concurrent=2)


class Watched(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def ensure_limit(self, name: str, **values: Any) -> None:
        self.asked.append(name)
        super().ensure_limit(name, **values)


class Process:
    """What `KeyLimits` sees of a scheduler."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def limits(self) -> KeyLimits:
        return KeyLimits(cast("Backend", self))


def test_it_is_stored_once_an_hour() -> None:
    """Housekeeping removes what nobody has asked for in days, so a process must not rely on it for ever."""
    process = Process(Watched())
    limits = process.limits()
    for _ in range(3):
        limits.ensure("order-1", LIMIT, joined=False)
    assert process.store.asked == ["order-1"]
    process.passed += HOUR + 1
    process.store.remove_limit("order-1", now=process.now())
    limits.ensure("order-1", LIMIT, joined=False)
    assert process.store.asked == ["order-1"] * 2
    assert [limit.name for limit in process.store.limits()] == ["order-1"]


def test_another_number_is_stored_at_once() -> None:
    """The last submission decides."""
    process = Process(Watched())
    limits = process.limits()
    limits.ensure("order-1", LIMIT, joined=False)
    limits.ensure("order-1", KeyLimit(concurrent=5), joined=False)
    assert [limit.concurrent for limit in process.store.limits()] == [5]


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key per order does not fill the memory; what was forgotten is asked for again."""
    monkeypatch.setattr(key_limits, "REMEMBERED", 3)
    process = Process(Watched())
    limits = process.limits()
    for _ in range(2):
        for number in range(4):
            limits.ensure(f"order-{number}", LIMIT, joined=False)
    assert len(limits._known) <= 3
    assert process.store.asked.count("order-0") == 2


def test_a_store_of_an_earlier_version() -> None:
    """It knows no limits of keys, only limits."""

    class Earlier:
        capabilities = MemoryStore().capabilities

        def __init__(self) -> None:
            self.set: list[tuple[str, int | None]] = []

        def set_limit(self, name: str, *, concurrent: int | None, **_: Any) -> None:
            self.set.append((name, concurrent))

    process = Process(Earlier())
    process.limits().ensure("order-1", LIMIT, joined=False)
    assert process.store.set == [("order-1", 2)]
