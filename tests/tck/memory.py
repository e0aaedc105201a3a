"""The harness of the in-memory store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore
from ratchet.tck import Harness
from ratchet.tck.harness import CommitMoment


class MemoryHarness(Harness):
    """Every contract gets a store of its own; another node is the same object."""

    capabilities = MemoryStore().capabilities
    random_lives = 80

    def open(self) -> JobStore:
        # waiting shorter than in production: the only contract that waits to the end waits for all of it
        self.memory = MemoryStore(lock_wait=timedelta(seconds=0.5))
        return self.memory

    def reopen(self) -> JobStore:
        return self.memory

    def close(self) -> None:
        self.memory.check_invariants()

    def commit_fault(self, store: JobStore, moment: CommitMoment) -> AbstractContextManager[None]:
        return lost_answer(self.memory._state._journal, "keep", moment)


@contextmanager
def lost_answer(owner: Any, name: str, moment: CommitMoment) -> Iterator[None]:
    """The first call of the method *name* of *owner* loses its answer, before or after it did its work."""
    real = getattr(owner, name)

    def lose(*arguments: Any) -> None:
        setattr(owner, name, real)
        if moment == "before":
            raise StoreUnavailable("the connection was lost before the commit")
        real(*arguments)
        raise CommitUnknown("the connection was lost after the commit")

    setattr(owner, name, lose)
    try:
        yield
    finally:
        setattr(owner, name, real)
