"""The harness of the in-memory store."""

from __future__ import annotations

from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore
from ratchet.tck import Harness


class MemoryHarness(Harness):
    """Every contract gets a store of its own; another node is the same object."""

    capabilities = MemoryStore().capabilities

    def open(self) -> JobStore:
        self.memory = MemoryStore()
        return self.memory

    def reopen(self) -> JobStore:
        return self.memory

    def close(self) -> None:
        self.memory.check_invariants()
