"""The in-memory store: the readable reference of what every store must do."""

from ratchet.stores.memory.state import Transaction
from ratchet.stores.memory.store import MemoryStore

__all__ = ["MemoryStore", "Transaction"]
