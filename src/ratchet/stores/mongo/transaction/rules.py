"""The rules of the contract, as the in-memory store has them, over the tables of one transaction."""

from __future__ import annotations

from ratchet.stores.memory.batches import MemoryBatches
from ratchet.stores.memory.cluster import MemoryCluster
from ratchet.stores.memory.permits import MemoryPermits
from ratchet.stores.memory.recurring import MemoryRecurring
from ratchet.stores.memory.signals import MemorySignals
from ratchet.stores.memory.transitions import MemoryTransitions
from ratchet.stores.mongo.transaction.work import Work


class Rules(MemoryTransitions, MemoryBatches, MemoryRecurring, MemorySignals, MemoryCluster, MemoryPermits):
    """
    Every verb that is decided by a few documents.

    Verbs that walk through many (claims, search, sweeps) are written for MongoDB in their own files.
    """

    def __init__(self, work: Work) -> None:
        self._state = work
